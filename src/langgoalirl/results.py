"""A result is a small JSON file, written by the command that measured it and never by hand."""

from __future__ import annotations

import platform
import shlex
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from langgoalirl.errors import UserError
from langgoalirl.files import read_json, write_json
from langgoalirl.provenance import commit


def write_result(
    table: Path,
    *,
    method: str,
    variant: str = "",
    train_split: str,
    split: str,
    seed: int,
    config: dict[str, Any],
    metrics: dict[str, Any],
    **origin: Any,
) -> Path:
    """`<table>/<method>[+<variant>]-<train_split>-<split>-s<seed>.json`."""
    name = f"{method}+{variant}" if variant else method
    file = table / f"{name}-{train_split}-{split}-s{seed}.json"
    value = {
        **provenance(),
        "method": method,
        "overrides": variant,
        "train_split": train_split,
        "split": split,
        "seed": seed,
        "interactions": 0,
        **origin,
        "config": config,
        "metrics": metrics,
    }
    write_json(file, value)
    return file


def provenance() -> dict[str, str]:
    """Which command measured, by which sources, when and on what."""
    # A result says nothing of where somebody keeps things.
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
    return {
        "command": shlex.join(["langgoalirl", *words]),
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {_processor()}, one thread",
    }


def _processor() -> str:
    """The processor's name, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown processor"


@dataclass(frozen=True)
class Row:
    """Result files that differ in their seed alone."""

    name: str  # the method, and how it departs from its recipe
    train_split: str
    split: str
    seeds: int
    minutes: float  # of the stage's training, on average
    mean: dict[str, float]
    deviation: dict[str, float]  # of a single run; only where there are several

    def shown(self, metric: str) -> str:
        """Mean ± standard deviation, or a dash where nobody measured it."""
        if metric not in self.mean:
            return "–"
        spread = f" ± {self.deviation[metric]:.3f}" if metric in self.deviation else ""
        return f"{self.mean[metric]:.3f}{spread}"


def gather(folder: Path, metrics: list[str]) -> list[Row]:
    """The result files of a folder, seeds together."""
    groups: dict[tuple[str, str, str], list[tuple[float, dict[str, float]]]] = {}
    for file in sorted(folder.glob("*.json")):
        found = read_json(file)
        if not isinstance(found, dict) or not {"method", "seed", "metrics"} <= found.keys():
            continue  # another kind of file
        try:
            name = "+".join(part for part in (found["method"], found["overrides"]) if part)
            numbers = {m: float(found["metrics"][m]) for m in metrics if m in found["metrics"]}
            key = (name, str(found["train_split"]), str(found["split"]))
            groups.setdefault(key, []).append((float(found["minutes"]), numbers))
        except (KeyError, TypeError, ValueError):
            raise UserError(
                f"{file}: is damaged or its metrics are no numbers; measure it again, or ask for "
                "other --metrics."
            ) from None
    if not groups:
        raise UserError(f"{folder}: holds no result files; 'evaluate --results' writes them.")
    rows = []
    for key, files in groups.items():
        values = {m: [numbers[m] for _, numbers in files if m in numbers] for m in metrics}
        rows.append(
            Row(
                *key,
                len(files),
                fmean(minutes for minutes, _ in files),
                {m: fmean(v) for m, v in values.items() if v},
                {m: stdev(v) for m, v in values.items() if len(v) > 1},
            )
        )
    return rows


def head(metrics: list[str]) -> list[str]:
    """The columns' names."""
    return ["method", "trained on", "split", "seeds", "minutes", *metrics]


def cells(rows: list[Row], metrics: list[str]) -> list[list[str]]:
    """The rows as text."""
    return [
        [row.name, row.train_split, row.split, str(row.seeds), f"{row.minutes:.1f}"]
        + [row.shown(name) for name in metrics]
        for row in rows
    ]


def as_markdown(rows: list[Row], metrics: list[str]) -> str:
    """The table as documents hold it."""
    names = head(metrics)
    lines = [names, ["---"] * len(names), *cells(rows, metrics)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
