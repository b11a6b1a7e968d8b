"""Jobs on a Ray cluster whose nodes share a file system: one task for each job.

A task whose node dies is started again on another one, where its commands go on from their last
checkpoints. The commands are those that run locally, and so are the bytes that they leave.
"""

from __future__ import annotations

import logging
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from rich.live import Live

from langgoalirl.errors import UserError
from langgoalirl.experiments import local
from langgoalirl.experiments.local import Progress, last_line, log_file
from langgoalirl.experiments.plan import Job
from langgoalirl.progress import console

TRIES = 3  # on other nodes, after one has died


def run(jobs: list[Job], address: str, logs: Path) -> Progress:
    """Run what is not done; `address` is a cluster's, or empty for this machine alone."""
    try:
        import ray
    except ImportError:
        raise UserError("--on ray needs Ray: pip install 'langgoalirl[ray]'.") from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(address=address or None, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UserError(f"--on: no Ray cluster answers at '{address}' ({error}).") from None
    state = Progress([], done=[job for job in jobs if job.done])
    task = ray.remote(num_cpus=1, max_retries=TRIES)(_work)
    began, spoke = time.monotonic(), time.monotonic()
    pending: dict[Any, tuple[Job, Path]] = {}
    for job in jobs:
        if not job.done:
            log = log_file(logs, job).resolve()
            ref = task.remote([*map(list, job.steps)], str(log), os.getcwd(), local.PROGRAM)
            pending[ref] = (job, log)
    at_once = max(1, int(ray.cluster_resources().get("CPU", 1)))
    try:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            while pending:
                ended, _ = ray.wait(list(pending), timeout=local.LOOK_EVERY)
                for ref in ended:
                    job, log = pending.pop(ref)
                    try:
                        well = ray.get(ref)
                    except ray.exceptions.RayError as error:
                        well, said = False, str(error).splitlines()[0]
                    else:
                        said = last_line(log)
                    if well and job.done:
                        state.done.append(job)
                        state.seconds.append((time.monotonic() - began) / len(state.done))
                    else:
                        state.failed[job.name] = said or "it left no result files"
                state.waiting = [job for job, _ in pending.values()]
                if console.is_terminal:
                    live.update(state.shown(at_once), refresh=True)
                elif time.monotonic() - spoke > local.SAY_EVERY:
                    spoke = time.monotonic()
                    console.print(state.line(at_once), highlight=False)
    finally:
        ray.shutdown()
    return state


def _work(steps: list[list[str]], log: str, folder: str, program: list[str]) -> bool:
    """On some node: a job's commands, one after the other."""
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    quiet = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "160"}
    with open(log, "ab") as out:
        for step in steps:
            done = subprocess.run(
                [*program, *step],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=quiet,
                cwd=folder,
                check=False,
            )
            if done.returncode != 0:
                return False
    return True
