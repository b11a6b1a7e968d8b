"""`langgoalirl data`: get Room-to-Room, check it, convert image features."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from langgoalirl.commands.shared import add_json, show
from langgoalirl.errors import UserError, nearest


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
    _add_place(fetch, "where to put it")
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
    _add_place(check, "where it is")
    add_json(check)
    check.set_defaults(run=run_check)

    prepare = kinds.add_parser(
        "prepare",
        help="convert TSV or HDF5 image features to a memory-mapped cache",
        description="Convert a TSV (ResNet-152's upstream form) or HDF5 file to a memory-mapped "
        "cache in half precision, in one pass that takes little memory. Name the cache as "
        "world.features in a recipe.",
    )
    prepare.add_argument(
        "source",
        type=Path,
        metavar="FILE",
        help="a .tsv, .hdf5 or .h5 file, or Room-to-Room's folder with one in features/",
    )
    prepare.add_argument(
        "cache", type=Path, nargs="?", metavar="CACHE", help="the folder to make (FILE.cache)"
    )
    prepare.add_argument(
        "--width", type=int, help="columns to keep of each view (HDF5 may hold more)"
    )
    add_json(prepare)
    prepare.set_defaults(run=run_prepare)


def _add_place(parser: argparse.ArgumentParser, help: str) -> None:
    """`r2r DIR`; either may be left out."""
    parser.add_argument(
        "place",
        nargs="*",
        metavar="r2r DIR",
        help=f"the data set, and {help} ($LANGGOALIRL_R2R or data/r2r)",
    )


def _directory(words: list[str]) -> Path:
    """The folder that was named, or the usual one."""
    names = words[1:] if words[:1] == ["r2r"] else words
    if len(names) > 1:
        unknown = f"there is no data set '{names[0]}'.{nearest(names[0], ['r2r'])}"
        raise UserError(f"{unknown} See 'langgoalirl data --help'.")
    if "" in names:  # a shell variable without a value: Path would take it for this very folder
        raise UserError("The folder's name is empty; name a folder, or leave it out.")
    return Path(names[0] if names else os.environ.get("LANGGOALIRL_R2R") or "data/r2r")


def run_fetch(options: argparse.Namespace) -> None:
    """langgoalirl data fetch."""
    from langgoalirl.data.fetch import fetch
    from langgoalirl.data.sources import STANDARD
    from langgoalirl.progress import Download, console

    wanted = set(STANDARD) | set(options.extras)
    with Download() as download:
        fetch(
            _directory(options.place),
            wanted,
            offline=options.offline,
            report=console.print,
            progress=download.reach,
        )


def run_check(options: argparse.Namespace) -> None:
    """langgoalirl data check: non-zero exit when something is damaged."""
    from langgoalirl.data.check import check

    directory = _directory(options.place)
    report = check(directory)
    show(
        options.json,
        report.as_json(),
        f"Room-to-Room in {directory}",
        ["what", "status", "detail"],
        [(row.what, row.status, row.detail) for row in report.rows],
    )
    if not options.json:
        for row in report.rows:
            if row.remedy:
                print(f"{row.what}: {row.remedy}")
    damaged = [row.what for row in report.rows if row.status == "damaged"]
    if damaged:
        raise UserError(f"{directory}: damaged: {', '.join(damaged)}; see above.")


def run_prepare(options: argparse.Namespace) -> None:
    """langgoalirl data prepare."""
    from langgoalirl.progress import Counter
    from langgoalirl.worlds.features import prepare

    source = _image_features(options.source)
    cache = options.cache or source.with_name(f"{source.name}.cache")
    with Counter("panoramas") as counter:
        table = prepare(source, cache, options.width, counter.reach)
    rows, _, wide = table.values.shape
    found = {"panoramas": rows - 1, "width": wide - 4, "sha256": table.digest}
    show(
        options.json,
        {"cache": str(cache), **found},
        str(cache),
        ["panoramas", "width", "sha256"],
        [list(found.values())],
    )


def _image_features(source: Path) -> Path:
    """A file, or the only one in a folder's features/."""
    if not source.is_dir():
        return source
    folder = source / "features"
    found = [f for f in sorted(folder.glob("*")) if f.suffix in (".tsv", ".hdf5", ".h5")]
    if len(found) != 1:
        raise UserError(
            f"{folder}: holds {len(found)} image feature files (.tsv, .hdf5, .h5); name one."
        )
    return found[0]
