"""`langgoalirl adapt`: self-supervised learning in new houses."""

from __future__ import annotations

import argparse
from pathlib import Path

from langgoalirl.commands.shared import add_json, show


def add(commands: argparse._SubParsersAction) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "adapt",
        help="go on learning in new houses, from their graphs and views alone",
        description="Sample trajectories with the goal-agnostic policy in houses that nobody "
        "annotated, let the goal generator say what was done, and go on with Algorithm 1 from "
        "where a run of 'train' ended, with these in place of demonstrations. Of a split only its "
        "houses are read. The new run is evaluated like any other; success on the splits to watch "
        "is logged before, on the way and after.",
        epilog="langgoalirl adapt runs/r2r-langgoalirl-s0 --split val_unseen "
        "trajectories=5000 explore=random watch=val_unseen",
    )
    parser.add_argument("runfolder", type=Path, metavar="RUN", help="a run of 'train'")
    parser.add_argument("--split", default="", help="adapt to the houses of this split")
    parser.add_argument("--scans", default="", metavar="A,B,…", help="or to these houses")
    parser.add_argument(
        "--control",
        action="store_true",
        help="instead: plain behaviour cloning on the very same walks and sentences",
    )
    parser.add_argument("--name", help="of the new run folder; the old one's with '-adapted'")
    parser.add_argument(
        "overrides", nargs="*", metavar="FIELD=VALUE", help="fields that differ from the defaults"
    )
    parser.add_argument("--fields", action="store_true", help="list the fields and stop")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """langgoalirl adapt."""
    from langgoalirl.adaptation import Adaptation, adapt, chosen_houses
    from langgoalirl.commands.pretrain import show_fields
    from langgoalirl.config import load
    from langgoalirl.trained import Trained

    if options.fields:
        show_fields(Adaptation, options.json)
        return
    how = load(Adaptation, None, options.overrides)
    trained = Trained.open(options.runfolder)
    houses = chosen_houses(trained.ground.world, options.split, options.scans)
    name = options.name or f"{options.runfolder.name}-{'cloned' if options.control else 'adapted'}"
    folder, stages = adapt(trained, houses, how, name, options.control)
    lines = stages["policy"].metrics() if "policy" in stages else []
    looks = [line for line in lines if "interactions" in line]
    keys = [key for key in (looks[-1] if looks else {}) if key.startswith("sr_")]
    show(
        options.json,
        {
            "run": str(folder.path),
            "houses": len(houses),
            "curve": [{k: line[k] for k in ("interactions", *keys)} for line in looks],
            "stages": {k: v.status for k, v in stages.items()},
        },
        f"Adapted to {len(houses)} houses in {folder.path}",
        ["interactions", *keys],
        [(f"{line['interactions']:,}", *(f"{line[k]:.3f}" for k in keys)) for line in looks],
    )
