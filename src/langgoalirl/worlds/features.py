"""The feature table of a navigation world, kept on disk in half precision and mapped into memory.

A cache is a folder of two files: `features.f16`, raw little-endian float16 in the very layout that
`NavGraph` gathers from, and `index.json`, which says what its rows are and where they came from.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain
from math import prod
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from langgoalirl.errors import UserError
from langgoalirl.files import read_json, write_json
from langgoalirl.worlds.feature_files import (
    ROW_LIMIT,
    Panoramas,
    opened,
    read_hdf5,
    read_tsv,
    refuse_unfit,
)
from langgoalirl.worlds.geometry import VIEWS
from langgoalirl.worlds.navgraph import DIRECTION, House

VERSION = 1
VALUES = "features.f16"
INDEX = "index.json"
HALF = np.dtype("<f2")
HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"


@dataclass(frozen=True)
class FeatureTable:
    """Features of panoramas as `NavGraph` takes them: F columns, then 4 zeros; last row zeros."""

    values: Tensor  # [R + 1, 36, F + 4] float16, memory-mapped
    keys: list[str]  # "scan_viewpoint" of each row but the last
    digest: str  # sha256 over width, keys and values

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {key: row for row, key in enumerate(self.keys)}

    def rows(self, houses: list[House]) -> Tensor:
        """[N] the row of every viewpoint of the houses, in their order."""
        wanted = [(house.name, viewpoint) for house in houses for viewpoint in house.viewpoints]
        rows = [self._row_of.get(f"{house}_{viewpoint}", -1) for house, viewpoint in wanted]
        missing = rows.count(-1)
        if missing:
            house, viewpoint = wanted[rows.index(-1)]
            raise UserError(
                f"House '{house}': viewpoint '{viewpoint}' has no image features, and {missing} of "
                f"{len(wanted)} viewpoints have none; the feature file is cut short or made for "
                "other houses: fetch it again or choose another."
            )
        return torch.tensor(rows, dtype=torch.long)


@dataclass(frozen=True)
class _Index:
    """What `index.json` says."""

    version: int
    source: str
    width: int
    digest: str
    keys: list[str]

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.keys) + 1, VIEWS, self.width + DIRECTION


def open_cache(folder: Path) -> FeatureTable:
    """Map a cache. Its version and size are checked; its values are not read."""
    index = _read_index(folder)
    file = folder / VALUES
    size = 0
    with suppress(OSError):  # a missing file is as bad as an empty one
        size = file.stat().st_size
    expected = prod(index.shape) * HALF.itemsize
    if size != expected:
        raise UserError(
            f"{file}: {size} bytes where {expected} are expected; the file is cut short or "
            "damaged: prepare the features again."
        )
    try:
        flat = torch.from_file(str(file), shared=False, size=prod(index.shape), dtype=torch.float16)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{file}: cannot be mapped into memory ({reason}).") from None
    return FeatureTable(flat.view(index.shape), index.keys, index.digest)


def _read_index(folder: Path) -> _Index:
    """The checked `index.json` of a cache."""
    file = folder / INDEX
    if not file.is_file():
        raise UserError(f"{folder}: no feature cache ('{INDEX}' is missing); prepare the features.")
    raw = read_json(file)
    version = raw.get("version") if isinstance(raw, dict) else None
    if version != VERSION:
        raise UserError(
            f"{file}: field 'version' is {version!r} where {VERSION} is expected; "
            "prepare the features again."
        )
    types = {"version": int, "source": str, "width": int, "digest": str, "keys": list}
    wrong = [field for field, kind in types.items() if type(raw.get(field)) is not kind]
    if not wrong and raw["width"] < 1:
        wrong = ["width"]
    if not wrong and not all(isinstance(key, str) for key in raw["keys"]):
        wrong = ["keys"]
    if wrong:
        raise UserError(f"{file}: field '{wrong[0]}' is damaged; prepare the features again.")
    return _Index(**{field: raw[field] for field in types})


def write_cache(
    folder: Path, width: int, panoramas: Iterable[tuple[str, NDArray]], source: str
) -> FeatureTable:
    """Store keyed panoramas [36, width] as they come, one in memory at a time.

    The folder appears when all is written, in place of an older cache; after an error nothing is
    left of it. `source` says in the index where the features came from.
    """
    keys: dict[str, None] = {}
    row = np.zeros((VIEWS, width + DIRECTION), dtype=HALF)
    digest = hashlib.sha256(f"{VERSION} {width}\n".encode())
    with _replacing(folder) as part:
        with open(part / VALUES, "wb") as file:
            for key, values in panoramas:
                if values.shape != (VIEWS, width):
                    raise ValueError(f"{key}: shape {values.shape}, expected {(VIEWS, width)}")
                if key in keys:
                    raise UserError(f"{source}: '{key}' occurs twice; remove one of the two.")
                if len(keys) == ROW_LIMIT:
                    raise UserError(f"{source}: more than {ROW_LIMIT} panoramas; split it.")
                refuse_unfit(values, f"{source}: '{key}'")
                keys[key] = None
                row[:, :width] = values
                digest.update(f"{key}\n".encode())
                digest.update(row.data)
                file.write(row.data)
            file.write(np.zeros_like(row).data)
            file.flush()
            os.fsync(file.fileno())
        index = _Index(VERSION, source, width, digest.hexdigest(), list(keys))
        write_json(part / INDEX, asdict(index))
        table = open_cache(part)  # stays mapped, whatever becomes of the folder
    return table


@contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """A temporary sibling that takes the folder's place at the end and vanishes on any error."""
    folder = folder.resolve()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        others: set[str] = set()
        with suppress(FileNotFoundError):
            others = {file.name for file in folder.iterdir()}
        if others - {VALUES, INDEX}:
            raise UserError(f"{folder}: holds other files too; name a folder for features alone.")
        part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".part"))
        try:
            yield part
            part.chmod(0o755)
            _swap(part, folder)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror}).") from None


def _swap(part: Path, folder: Path) -> None:
    """Put a finished cache where another may be: at any time one of them is there whole, or none.

    Several processes may do the same at once; the last one wins.
    """
    while True:
        try:
            return os.replace(part, folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        old = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".old"))
        with suppress(FileNotFoundError):  # somebody else was faster
            os.replace(folder, old)
        for name in (INDEX, VALUES):
            (old / name).unlink(missing_ok=True)
        old.rmdir()


def prepare(
    source: Path,
    cache: Path,
    width: int | None = None,
    on_row: Callable[[int], None] | None = None,
) -> FeatureTable:
    """Convert a TSV or HDF5 file to a cache in one pass; `on_row` is told the rows done so far.

    A whole cache that was made from a file of the same name, size, time and width is opened as it
    is. Size alone would not do: features of one network are as long as those of another.
    """
    if width is not None and width < 1:
        raise UserError(f"Features cannot be {width} wide; give a width of 1 or more, or none.")
    with closing(_reader(source)(source, width)) as panoramas:
        first = next(panoramas)
        found = first[1].shape[1]
        status = source.stat()
        label = f"{source.name} ({status.st_size} bytes, changed at {status.st_mtime_ns} ns)"
        kept = _open_if_made_from(label, found, cache)
        if kept is not None:
            return kept
        return write_cache(cache, found, _counted(chain([first], panoramas), on_row), label)


def _reader(source: Path) -> Callable[[Path, int | None], Panoramas]:
    """Which reader a file needs, by its first bytes or else its suffix."""
    with opened(source) as stream:
        start = stream.read(len(HDF5_SIGNATURE))
    suffix = source.suffix.lower()
    if start == HDF5_SIGNATURE or suffix in (".hdf5", ".h5"):
        return read_hdf5
    if suffix == ".tsv":
        return read_tsv
    raise UserError(
        f"{source}: features are read from .tsv, .hdf5 and .h5 files; unpack an archive first."
    )


def _open_if_made_from(label: str, width: int, cache: Path) -> FeatureTable | None:
    """The cache if it is whole and of this origin."""
    try:
        index = _read_index(cache)
        return open_cache(cache) if (index.source, index.width) == (label, width) else None
    except UserError:
        return None


def _counted(
    panoramas: Iterable[tuple[str, NDArray]], on_row: Callable[[int], None] | None
) -> Iterator[tuple[str, NDArray]]:
    """The same panoramas; after each one has been written, its number is told."""
    for done, panorama in enumerate(panoramas, start=1):
        yield panorama
        if on_row is not None:
            on_row(done)
