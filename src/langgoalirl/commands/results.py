"""`langgoalirl results`: a folder of result files as one table."""

from __future__ import annotations

import argparse
from pathlib import Path

from langgoalirl.commands.shared import add_json, show


def add(commands: argparse._SubParsersAction) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "results",
        help="result files as a table: mean and standard deviation over seeds",
        description="Gather the result files of a folder: for each method, train split and split "
        "the number of seeds, and mean ± standard deviation of the metrics that are asked for.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="for example results/r2r")
    parser.add_argument(
        "--metrics",
        default="sr,spl,osr,ne",
        help="names, separated by commas (default: %(default)s)",
    )
    parser.add_argument("--markdown", action="store_true", help="as Markdown, for a document")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """langgoalirl results."""
    from langgoalirl.results import as_markdown, cells, gather, head

    metrics = [name.strip() for name in options.metrics.split(",") if name.strip()]
    rows = gather(options.folder, metrics)
    if options.markdown:
        print(as_markdown(rows, metrics))
        return
    numbers = {"rows": [vars(row) for row in rows]}
    show(options.json, numbers, str(options.folder), head(metrics), cells(rows, metrics))
