"""`langgoalirl compare`: is one method better than another, and how sure is that."""

from __future__ import annotations

import argparse
from pathlib import Path

from langgoalirl.commands.shared import add_json, show


def add(commands: argparse._SubParsersAction) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "compare",
        help="success of one method's runs against another's, with a paired interval",
        description="Success on a split of the policies of some runs against those of others, "
        "paired by seed and by instruction: the mean difference and its 95 % bootstrap interval "
        "over seeds and routes.",
        epilog="langgoalirl compare runs/a-s0 runs/a-s1 --against runs/b-s0 runs/b-s1 --split S",
    )
    parser.add_argument("runfolders", type=Path, nargs="+", metavar="RUN", help="one method's runs")
    parser.add_argument(
        "--against", type=Path, nargs="+", metavar="RUN", help="another's (default: the same runs)"
    )
    parser.add_argument(
        "--follower",
        default="policy",
        choices=("policy", "bc", "base_model"),
        help="who acts in the runs compared against (default: policy)",
    )
    parser.add_argument("--split", required=True, help="val_seen, val_unseen, …")
    parser.add_argument("--results", type=Path, metavar="FILE", help="write the numbers there")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """langgoalirl compare."""
    from dataclasses import asdict

    from langgoalirl.compare import compare
    from langgoalirl.errors import UserError
    from langgoalirl.files import write_json
    from langgoalirl.results import provenance

    if options.against is None and options.follower == "policy":
        raise UserError("compare: --against RUN or --follower bc says what to compare with.")
    against = options.against or options.runfolders
    numbers = asdict(compare(options.runfolders, against, options.follower, options.split))
    if options.results:
        write_json(options.results, {**provenance(), "split": options.split, "metrics": numbers})
    title = f"Success on {options.split}"
    show(options.json, numbers, title, list(numbers), [list(numbers.values())])
