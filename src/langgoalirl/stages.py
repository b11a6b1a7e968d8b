"""Stages: pieces of training whose outputs are found again by what they depend on.

A stage's name ends in a hash of its configuration, of its inputs' digests and of the sources of
the modules that train it. Asked for the same again, the finished folder is the answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from langgoalirl.progress import console
from langgoalirl.provenance import commit, source_digest
from langgoalirl.run_folder import RunFolder, Tensors, digest


def stage(
    runs: Path,
    name: str,
    config: dict[str, Any],
    module: str,
    train: Callable[[RunFolder], Tensors],
) -> RunFolder:
    """The folder of a stage, trained if it isn't there yet and gone on with if it was cut off.

    `config` holds everything that the result depends on, the digests of its inputs included.
    """
    config = {"stage": name, **config}
    identity = json_digest({"config": config, "source": source_digest(module)})
    run = RunFolder(runs / "stages" / f"{name}-{identity[:12]}")
    if run.finished:
        console.print(f"{name}: found in {run.path}", highlight=False)
        return run
    with _alone(run.path, name):
        if run.finished:
            return run
        run.begin(config)
        began = datetime.now(UTC)
        try:
            tensors = train(run)
        except Exception as error:
            run.fail(f"{type(error).__name__}: {error}")
            raise
        seconds = max((line.get("seconds", 0.0) for line in run.metrics()), default=0.0)
        run.save("final", tensors, {})
        run.finish(
            digest=digest(tensors),
            config_digest=json_digest(config),
            commit=commit(),
            date=began.isoformat(timespec="seconds"),
            minutes=round(seconds / 60, 2),
        )
    return run


@contextmanager
def _alone(folder: Path, name: str) -> Iterator[None]:
    """Several runs may want the same stage at once: one trains it, the others wait for it."""
    try:
        import fcntl
    except ImportError:  # not on Windows, where runs have to take turns themselves
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            console.print(f"{name}: another run trains it; waiting in {folder}", highlight=False)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield  # closing the file, or the end of the process, lets the next one in


def json_digest(value: Any) -> str:
    """SHA-256 of plain values, whatever the order of their names."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
