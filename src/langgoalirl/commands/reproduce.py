"""`langgoalirl reproduce`: the paper's tables, one command each."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from langgoalirl.commands.shared import add_json, show
from langgoalirl.errors import UserError

NAMES = ("main", "ablation", "experts", "selfsup", "seen-selfsup", "all")


def add(commands: argparse._SubParsersAction) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "reproduce",
        help="the paper's tables: run what is missing, show ours beside the paper's numbers",
        description="Expand tables of the paper to runs, run those that are missing with one "
        "process for each core, and write the tables with ours beside the paper's numbers. What "
        "is finished is not run again, what was cut off goes on, and a run that fails holds up "
        "nobody. Stages that several runs need are trained once.",
        epilog="langgoalirl reproduce main --world r2r --seeds 4 --budget 8h",
    )
    parser.add_argument("tables", nargs="+", choices=NAMES, metavar="TABLE", help=", ".join(NAMES))
    parser.add_argument("--world", choices=("houses", "r2r"), default="houses", help="the world")
    parser.add_argument("--seeds", type=int, help="of every row (default: the table's own)")
    parser.add_argument(
        "--interactions", type=int, default=0, help="of every run (default: 300,000)"
    )
    parser.add_argument("--train-split", default="", help="r2r: train (→ val_seen) or devtrain")
    parser.add_argument("--budget", default="", metavar="TIME", help="run what fits: 90m, 2h")
    parser.add_argument(
        "--on",
        default="local",
        metavar="WHERE",
        help="local; ray, for one started here or named by $RAY_ADDRESS; or a cluster's address: "
        "HOST:PORT, ray://HOST:PORT. Its nodes must share the file system",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where runs are kept")
    parser.add_argument(
        "--results", type=Path, help="where result files are kept (default: RUNS/results)"
    )
    parser.add_argument("--plan", action="store_true", help="only say what would be run")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """langgoalirl reproduce."""
    from langgoalirl.experiments.local import run as run_all
    from langgoalirl.experiments.numbers import as_markdown
    from langgoalirl.experiments.plan import jobs, tables
    from langgoalirl.files import atomic_write

    setting = _setting(options)
    known = tables(setting)
    names = list(known) if "all" in options.tables else options.tables
    results = options.results or options.runs / "results"
    wanted: dict[Any, Any] = {}
    for name in names:
        if name not in known:
            raise UserError(f"{name}: needs a split in houses that nobody trained in.")
        seeds = range(options.seeds or known[name].seeds)
        for job in jobs(known[name], setting, seeds, options.runs, results):
            wanted.setdefault(job.results, job)
    every = list(wanted.values())
    fits, left_out = _within(every, options)
    missing = [job for job in fits if not job.done]
    if options.plan:
        show(
            options.json,
            {"jobs": [job.name for job in missing], "left_out": [job.name for job in left_out]},
            f"{len(missing)} of {len(every)} to be run, {len(left_out)} left out",
            ["to be run"],
            [(job.name,) for job in missing],
        )
        return
    if options.on == "local":
        state = run_all(fits, options.jobs, options.runs / "logs")
    else:
        from langgoalirl.experiments import on_ray

        address = "" if options.on == "ray" else options.on
        state = on_ray.run(fits, address, options.runs / "logs")
    texts = {
        name: as_markdown(known[name], setting, range(options.seeds or known[name].seeds), results)
        for name in names
    }
    page = options.runs / f"{'-'.join(names)}-{setting.world}.md"
    with atomic_write(page, "w") as out:
        out.write("\n".join(texts.values()))
    failed = [(name, "failed", why) for name, why in state.failed.items()]
    show(
        options.json,
        {
            "page": str(page),
            "done": len(state.done),
            "failed": state.failed,
            "left_out": [job.name for job in left_out],
        },
        f"{len(state.done)} done, {len(failed)} failed, {len(left_out)} left out; tables: {page}",
        ["job", "", "its last words"],
        [*failed, *((job.name, "left out", "beyond the budget") for job in left_out)],
    )
    if not options.json:
        print("\n".join(texts.values()))
    if failed:
        raise UserError(f"{len(failed)} of the runs failed; their logs are in {options.runs}/logs.")


def _setting(options: argparse.Namespace) -> Any:
    from langgoalirl.experiments.plan import Setting

    if options.seeds is not None and options.seeds < 1:
        raise UserError("--seeds must be at least 1.")
    if options.jobs < 1 or options.interactions < 0:
        raise UserError("--jobs must be at least 1, --interactions not below 0.")
    if options.world == "houses":
        return Setting("houses", "train", "val_seen", "val_unseen", options.interactions)
    splits = {"train": ("val_seen", ""), "devtrain": ("devseen", "devunseen")}
    split = options.train_split or "train"
    if split not in splits:
        raise UserError(f"--train-split: '{split}' is neither train nor devtrain.")
    return Setting("r2r", split, *splits[split], options.interactions)


def _within(jobs: list[Any], options: argparse.Namespace) -> tuple[list[Any], list[Any]]:
    """The first jobs that fit into the budget, and the others."""
    import re

    if not options.budget:
        return jobs, []
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([mh])", options.budget)
    if found is None:
        raise UserError(f"--budget: '{options.budget}' is no time; write 90m or 2h.")
    minutes = float(found[1]) * (60 if found[2] == "h" else 1)
    each = MINUTES * (options.interactions or 300_000) / 300_000
    count = int(minutes * options.jobs / each)
    missing = [job for job in jobs if not job.done]
    out = missing[count:]
    return [job for job in jobs if job not in out], out


MINUTES = 15.0
"""What a run of 300,000 interactions takes on one core, its evaluation included."""
