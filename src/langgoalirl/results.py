"""A result is a small JSON file, written by the command that measured it and never by hand."""

from __future__ import annotations

import platform
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from langgoalirl.files import write_json
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
    return {
        "command": shlex.join(["langgoalirl", *sys.argv[1:]]),
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
