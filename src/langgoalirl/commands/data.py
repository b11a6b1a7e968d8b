"""`langgoalirl data`: get Room-to-Room, check it, convert image features."""

from __future__ import annotations

import argparse
from pathlib import Path

from langgoalirl.commands.shared import add_json, show
from langgoalirl.errors import UserError


def add(commands: argparse._SubParsersAction) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "data",
        help="get Room-to-Room, check it, convert image features",
        description="Get Room-to-Room, check it, convert image features.",
    )
    kinds = parser.add_subparsers(title="what to do", metavar="WHAT", required=True)

    fetch = kinds.add_parser(
        "fetch",
        help="download what is missing, or copy it from a folder",
        description="Download annotations, graphs and object boxes (30 MB), each from the first "
        "mirror that has it, verified by size and SHA-256 where these are known. What was cut off "
        "goes on where it stopped.",
    )
    fetch.add_argument("what", choices=("r2r",), help="the data set")
    fetch.add_argument("directory", type=Path, metavar="DIR", help="where to put it")
    fetch.add_argument(
        "--from", dest="offline", type=Path, metavar="DIR", help="copy files already at hand"
    )
    fetch.add_argument(
        "--with",
        dest="extras",
        action="append",
        default=[],
        choices=("glove", "features"),
        help="GloVe vectors, or ResNet-152 image features (3 GB), too; may be given twice",
    )
    fetch.set_defaults(run=run_fetch)

    check = kinds.add_parser(
        "check",
        help="verify counts, checksums and paths, and say what is missing",
        description="Verify counts, checksums and that every annotated path is a walk in its "
        "graph; say what is missing and how to get it.",
    )
    check.add_argument("what", choices=("r2r",), help="the data set")
    check.add_argument("directory", type=Path, metavar="DIR", help="where it is")
    add_json(check)
    check.set_defaults(run=run_check)

    prepare = kinds.add_parser(
        "prepare",
        help="convert TSV or HDF5 image features to a memory-mapped cache",
        description="Convert a TSV (ResNet-152's upstream form) or HDF5 file to a memory-mapped "
        "cache in half precision, in one pass that takes little memory. Name the cache as "
        "world.features in a recipe.",
    )
    prepare.add_argument("source", type=Path, metavar="FILE", help="a .tsv, .hdf5 or .h5 file")
    prepare.add_argument("cache", type=Path, metavar="CACHE", help="the folder to make")
    prepare.add_argument(
        "--width", type=int, help="columns to keep of each view (HDF5 may hold more)"
    )
    add_json(prepare)
    prepare.set_defaults(run=run_prepare)


def run_fetch(options: argparse.Namespace) -> None:
    """langgoalirl data fetch."""
    from langgoalirl.data.fetch import fetch
    from langgoalirl.data.sources import STANDARD
    from langgoalirl.progress import Download, console

    wanted = set(STANDARD) | set(options.extras)
    with Download() as download:
        fetch(
            options.directory,
            wanted,
            offline=options.offline,
            report=console.print,
            progress=download.reach,
        )


def run_check(options: argparse.Namespace) -> None:
    """langgoalirl data check: non-zero exit when something is damaged."""
    from langgoalirl.data.check import check

    report = check(options.directory)
    show(
        options.json,
        report.as_json(),
        f"Room-to-Room in {options.directory}",
        ["what", "status", "detail"],
        [(row.what, row.status, row.detail) for row in report.rows],
    )
    if not options.json:
        for row in report.rows:
            if row.remedy:
                print(f"{row.what}: {row.remedy}")
    damaged = [row.what for row in report.rows if row.status == "damaged"]
    if damaged:
        raise UserError(f"{options.directory}: damaged: {', '.join(damaged)}; see above.")


def run_prepare(options: argparse.Namespace) -> None:
    """langgoalirl data prepare."""
    from langgoalirl.progress import Counter
    from langgoalirl.worlds.features import prepare

    with Counter("panoramas") as counter:
        table = prepare(options.source, options.cache, options.width, counter.reach)
    rows, _, wide = table.values.shape
    found = {"panoramas": rows - 1, "width": wide - 4, "sha256": table.digest}
    show(
        options.json,
        {"cache": str(options.cache), **found},
        str(options.cache),
        ["panoramas", "width", "sha256"],
        [list(found.values())],
    )
