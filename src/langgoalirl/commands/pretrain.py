"""`langgoalirl pretrain`: base model, behaviour cloning, goal-agnostic policy, goal generator."""

from __future__ import annotations

import argparse
from pathlib import Path

from langgoalirl.commands.shared import add_json, show


def add(commands: argparse._SubParsersAction) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "pretrain",
        help="train base model, behaviour cloning, goal-agnostic policy and goal generator",
        description="Train what the adversarial loop stands on. Each stage gets a folder under "
        "RUNS/stages, named by a hash of all that it depends on: a stage that is there already is "
        "not trained again, and one that was cut off goes on from its last checkpoint.",
        epilog="'langgoalirl pretrain --fields' lists what a recipe may hold; any field can be "
        "set on the command line: langgoalirl pretrain RECIPE seed=1 base_model.updates=2000",
    )
    parser.add_argument("recipe", type=Path, nargs="?", metavar="RECIPE", help="a TOML file")
    parser.add_argument(
        "overrides", nargs="*", metavar="FIELD=VALUE", help="fields that differ from the recipe"
    )
    parser.add_argument("--fields", action="store_true", help="list a recipe's fields and stop")
    parser.add_argument("--name", help="of the run folder; the recipe's and the seed by default")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where runs are kept")
    parser.add_argument(
        "--only",
        metavar="STAGE",
        choices=STAGES,
        help=f"train one stage and what it needs: {', '.join(STAGES)}",
    )
    add_json(parser)
    parser.set_defaults(run=run)


STAGES = ("base_model", "bc", "bc_concat", "goal_agnostic", "goal_generator")
"""bc_concat, LC-RL's variant without attention, is trained only when asked for."""


def run(options: argparse.Namespace) -> None:
    """langgoalirl pretrain."""
    from langgoalirl.config import load
    from langgoalirl.errors import UserError
    from langgoalirl.pretrain import pretrain
    from langgoalirl.recipe import Pretraining

    if options.fields:
        show_fields(Pretraining, options.json)
        return
    if options.recipe is None:
        raise UserError("pretrain needs a RECIPE, for example recipes/houses/pretrain.toml.")
    recipe = load(Pretraining, options.recipe, options.overrides)
    name = options.name or f"{options.recipe.parent.name}-{options.recipe.stem}-s{recipe.seed}"
    wanted = (options.only,) if options.only else ("bc", "goal_agnostic", "goal_generator")
    run_folder, stages = pretrain(recipe, options.runs, name, wanted)
    show(
        options.json,
        {"run": str(run_folder.path), "stages": {k: v.status for k, v in stages.items()}},
        f"Trained in {run_folder.path}",
        ["stage", "minutes", "folder"],
        [(k, v.status["minutes"], v.path) for k, v in stages.items()],
    )


def show_fields(kind: type, as_json: bool) -> None:
    """What a recipe may hold."""
    from langgoalirl.config import describe

    fields = list(describe(kind))
    show(
        as_json,
        {name: {"default": default, "help": text} for name, default, text in fields},
        "Fields of a recipe",
        ["field", "default", "meaning"],
        fields,
    )
