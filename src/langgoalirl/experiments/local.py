"""Jobs on this machine: a single-threaded process for each core, and what they are doing, live."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from rich.live import Live
from rich.table import Table as Grid

from langgoalirl.experiments.plan import Job
from langgoalirl.progress import console

PROGRAM = [sys.executable, "-m", "langgoalirl"]
LOOK_EVERY = 0.5  # seconds
SAY_EVERY = 60.0  # where nobody watches a terminal


@dataclass
class Running:
    """A job under way."""

    job: Job
    log: Path
    began: float
    step: int = -1
    process: subprocess.Popen[bytes] | None = None
    out: IO[bytes] | None = None

    def advance(self) -> bool | None:
        """Start the next command when the last one has ended. True at the end, False if one failed,
        None on the way."""
        if self.process is not None:
            code = self.process.poll()
            if code is None:
                return None
            self.process = None
            if code != 0:
                return self._close(False)
        self.step += 1
        if self.step == len(self.job.steps):
            return self._close(True)
        if self.out is None:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            self.out = open(self.log, "wb")  # noqa: SIM115  # as long as the job is
        command = [*PROGRAM, *self.job.steps[self.step]]
        quiet = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "160"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.out, env=quiet
        )
        return None

    def _close(self, well: bool) -> bool:
        if self.out is not None:
            self.out.close()
        return well

    def stop(self) -> None:
        """End it; what it has written stays, and it goes on from there another time."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
        self._close(False)

    @property
    def says(self) -> str:
        """The last line of its log."""
        return last_line(self.log)


def log_file(logs: Path, job: Job) -> Path:
    """Where a job's commands say what they do."""
    return logs / f"{re.sub(r'[^A-Za-z0-9=_.+-]+', '-', job.name).strip('-')}.log"


def last_line(log: Path) -> str:
    """The last thing that a job said."""
    try:
        text = log.read_bytes()[-4000:].decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]
    return lines[-1] if lines else ""


@dataclass
class Progress:
    """What became of the jobs."""

    waiting: list[Job]
    running: list[Running] = field(default_factory=list)
    done: list[Job] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # job: its last words
    seconds: list[float] = field(default_factory=list)  # of each job that was run

    def left(self, at_once: int) -> str:
        """How long the rest takes, as far as can be told."""
        if not self.seconds:
            return "?"
        mean = sum(self.seconds) / len(self.seconds)
        going = sum(max(0.0, mean - (time.monotonic() - r.began)) for r in self.running)
        minutes = (len(self.waiting) * mean + going) / at_once / 60
        return f"{minutes / 60:.1f} h" if minutes > 90 else f"{minutes:.0f} min"

    def line(self, at_once: int) -> str:
        """One line about everything."""
        counts = [(len(self.done), "done"), (len(self.running), "running")]
        counts += [(len(self.waiting), "waiting"), (len(self.failed), "failed")]
        return ", ".join(f"{n} {what}" for n, what in counts) + f"; {self.left(at_once)} left"

    def shown(self, at_once: int) -> Grid:
        """The same as a table with a row for each job under way."""
        grid = Grid("running", "minutes", "step", "says", title=self.line(at_once), expand=True)
        for running in self.running:
            minutes = f"{(time.monotonic() - running.began) / 60:.0f}"
            command = running.job.steps[min(running.step, len(running.job.steps) - 1)][0]
            grid.add_row(running.job.name, minutes, command, running.says[-100:])
        return grid


def run(jobs: list[Job], at_once: int, logs: Path) -> Progress:
    """Run what is not done, a failed job never stopping the others."""
    state = Progress([job for job in jobs if not job.done], done=[job for job in jobs if job.done])
    spoke = time.monotonic()
    with Live(console=console, auto_refresh=False, transient=True) as live:
        try:
            for _ in _turns(state, at_once, logs):
                if console.is_terminal:
                    live.update(state.shown(at_once), refresh=True)
                elif time.monotonic() - spoke > SAY_EVERY:
                    spoke = time.monotonic()
                    console.print(state.line(at_once), highlight=False)
                time.sleep(LOOK_EVERY)
        finally:
            for running in state.running:
                running.stop()
    return state


def _turns(state: Progress, at_once: int, logs: Path) -> Iterator[None]:
    while state.waiting or state.running:
        while state.waiting and len(state.running) < at_once:
            job = state.waiting.pop(0)
            state.running.append(Running(job, log_file(logs, job), time.monotonic()))
        for running in list(state.running):
            ended = running.advance()
            if ended is None:
                continue
            state.running.remove(running)
            if ended and running.job.done:
                state.done.append(running.job)
                state.seconds.append(time.monotonic() - running.began)
            else:
                state.failed[running.job.name] = running.says or "it left no result files"
        yield
