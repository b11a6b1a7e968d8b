"""A run is a folder: configuration, status, metrics, checkpoints. Every file is written whole."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from langgoalirl.errors import UserError
from langgoalirl.files import atomic_write, read_json, write_json

Tensors = dict[str, Tensor]


@dataclass
class RunFolder:
    """`config.json`, `status.json`, `metrics.jsonl`, `checkpoints/`, `tensorboard/`."""

    path: Path

    @property
    def config(self) -> dict[str, Any]:
        """The complete, resolved configuration."""
        return read_json(self.path / "config.json")

    @property
    def status(self) -> dict[str, Any]:
        """What became of the run; empty when it never began."""
        file = self.path / "status.json"
        return read_json(file) if file.exists() else {}

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self.status.get("state") == "finished"

    def begin(self, config: dict[str, Any]) -> None:
        """Write the configuration; the folder may exist already, with the same one."""
        file = self.path / "config.json"
        if file.exists() and read_json(file) != json.loads(json.dumps(config)):
            raise UserError(
                f"{file}: this folder holds a run with another configuration; choose another name."
            )
        write_json(file, config)

    def finish(self, **status: Any) -> None:
        """Write the final status."""
        write_json(self.path / "status.json", {"state": "finished", **status})

    def fail(self, error: str) -> None:
        """Keep what went wrong, for the report."""
        write_json(self.path / "status.json", {"state": "failed", "error": error})

    def log(self, update: int, **numbers: float) -> None:
        """One line of metrics.jsonl."""
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps({"update": update, **numbers}) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """All logged lines; a last line that was cut off is left out."""
        file = self.path / "metrics.jsonl"
        if not file.exists():
            return []
        lines = []
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                lines.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return lines

    def rewind(self, update: int) -> None:
        """Forget what was logged after an update from which the run now goes on."""
        kept = [json.dumps(line) for line in self.metrics() if line["update"] <= update]
        with atomic_write(self.path / "metrics.jsonl", "w") as file:
            file.writelines(line + "\n" for line in kept)

    def save(self, name: str, tensors: Tensors, state: dict[str, Any]) -> None:
        """A checkpoint in one file: tensors, and everything else as JSON in its header."""
        with atomic_write(self.path / "checkpoints" / f"{name}.safetensors") as file:
            write_tensors(file, tensors, {"state": json.dumps(state)})

    def load(self, name: str) -> tuple[Tensors, dict[str, Any]] | None:
        """A checkpoint that `save` wrote, or None."""
        file = self.path / "checkpoints" / f"{name}.safetensors"
        if not file.exists():
            return None
        try:
            with safe_open(str(file), framework="pt") as opened:
                state = json.loads((opened.metadata() or {}).get("state", "{}"))
                return {key: opened.get_tensor(key) for key in opened.keys()}, state  # noqa: SIM118
        except (SafetensorError, json.JSONDecodeError) as error:
            raise UserError(
                f"{file}: damaged checkpoint ({error}); remove it and run again."
            ) from None

    def need(self, name: str) -> Tensors:
        """The tensors of a checkpoint that must be there."""
        loaded = self.load(name)
        if loaded is None:
            raise UserError(f"{self.path}: has no checkpoint '{name}'; train the run first.")
        return loaded[0]


_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def write_tensors(file: IO[bytes], tensors: Tensors, metadata: dict[str, str]) -> None:
    """Tensors in the safetensors format, one after the other: the library's own writer would hold
    a replay buffer in memory three times over."""
    # Those of large elements first, so that each begins where its elements may begin.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {"__metadata__": metadata}
    begin = 0
    for name in names:
        value = tensors[name]
        end = begin + value.numel() * value.element_size()
        place = {"dtype": _NAMES[value.dtype], "shape": list(value.shape)}
        header[name] = place | {"data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for name in names:
        file.write(_bytes(tensors[name]))


def _bytes(tensor: Tensor) -> memoryview:
    """A tensor's bytes, not copied where they lie in one piece in this machine's memory."""
    flat = tensor.detach().cpu().contiguous().flatten()
    if flat.stride(0) != 1:  # of none or a single element
        flat = torch.empty(flat.shape, dtype=flat.dtype).copy_(flat)
    return flat.view(torch.uint8).numpy().data


def digest(tensors: Tensors) -> str:
    """SHA-256 over names, shapes and bytes: equal runs agree in it, to the last bit."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name]
        total.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        total.update(_bytes(value))
    return total.hexdigest()


def under(tensors: Tensors, prefix: str) -> Tensors:
    """The tensors whose names begin with a prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
