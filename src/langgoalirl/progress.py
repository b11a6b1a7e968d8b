"""Progress on standard error: a live bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as Bars

console = Console(stderr=True, markup=False)  # a name in [brackets] is a name
QUIET_SECONDS = 30.0


class Progress:
    """Counts steps of a long piece of work and shows its latest numbers."""

    def __init__(self, what: str, total: int, done: int = 0) -> None:
        self.what, self.total, self.done = what, total, done
        self.numbers = ""
        self._live = console.is_terminal
        self._spoke = self._began = time.monotonic()
        self._first = done
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[numbers]}"),
            console=console,
            disable=not self._live,
        )

    def __enter__(self) -> Progress:
        self._bars.start()
        self._task = self._bars.add_task(
            self.what, total=self.total, completed=self.done, numbers=""
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()
        if not self._live and kind is None and time.monotonic() - self._began > QUIET_SECONDS:
            self._speak()

    def advance(self, steps: int = 1) -> None:
        """Some steps further."""
        self.done += steps
        self._bars.update(self._task, completed=self.done)
        if not self._live and time.monotonic() - self._spoke > QUIET_SECONDS:
            self._speak()

    def show(self, **numbers: float) -> None:
        """The latest numbers beside the bar."""
        self.numbers = "  ".join(f"{name} {value:.3g}" for name, value in numbers.items())
        self._bars.update(self._task, numbers=self.numbers)

    def _speak(self) -> None:
        self._spoke = time.monotonic()
        spent = self._spoke - self._began
        left = spent / max(1, self.done - self._first) * (self.total - self.done)
        print(
            f"{self.what}: {self.done}/{self.total}  {spent:.0f} s, {left:.0f} s left  "
            f"{self.numbers}",
            file=sys.stderr,
            flush=True,
        )


class Board:
    """The same numbers for TensorBoard, in the run's folder; goes on after a resume."""

    def __init__(self, folder: Path, update: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # What was written after the update that a run goes back to is not shown.
        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=update)

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()

    def show(self, update: int, numbers: dict[str, float]) -> None:
        """One point of every curve."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, update)


class Download:
    """One bar per file that is being downloaded."""

    def __init__(self) -> None:
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Download:
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def reach(self, name: str, done: int, total: int | None) -> None:
        """So many bytes of a file by now."""
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=total)
        self._bars.update(self._tasks[name], completed=done, total=total)


class Counter:
    """Counts up to a number that nobody knows beforehand."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._status = console.status("")

    def __enter__(self) -> Counter:
        self._status.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._status.stop()

    def reach(self, count: int) -> None:
        """So many by now."""
        if count % 25 == 0:
            self._status.update(f"{count} {self.what}")
