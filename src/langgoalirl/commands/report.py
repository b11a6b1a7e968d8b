"""`langgoalirl report`: one page about runs."""

from __future__ import annotations

import argparse
from pathlib import Path


def add(commands: argparse._SubParsersAction) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "report",
        help="one HTML page about runs: what was run, and learning curves",
        description="Write one self-contained HTML page about finished runs of 'train': what was "
        "run, how it ended, and success against interactions and against minutes for the splits "
        "that the runs watched. Runs of one method share a colour.",
        epilog="langgoalirl report runs/houses-langgoalirl-s0 runs/houses-langgoalirl_base-s0",
    )
    parser.add_argument("runfolders", type=Path, nargs="+", metavar="RUN", help="runs' folders")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="the page (default: report.html in the first run)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """langgoalirl report."""
    from langgoalirl.files import atomic_write
    from langgoalirl.progress import console
    from langgoalirl.report.runs import runs_page

    text = runs_page(options.runfolders)
    file = options.out or options.runfolders[0] / "report.html"
    with atomic_write(file, "w") as out:
        out.write(text)
    console.print(f"The report: {file}", highlight=False)
