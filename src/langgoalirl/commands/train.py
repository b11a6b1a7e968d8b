"""`langgoalirl train`: Algorithm 1, or one of the methods it is compared with."""

from __future__ import annotations

import argparse
from pathlib import Path

from langgoalirl.commands.shared import add_json, show


def add(commands: argparse._SubParsersAction) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "train",
        help="train a method of the paper: langgoalirl, langgoalirl_base, lc_rl, agile, her, …",
        description="Train a method and all the pretraining that it stands on. What is there "
        "already is not trained again, and what was cut off goes on from its last checkpoint. "
        "The learning curve is in metrics.jsonl and TensorBoard of the policy's folder.",
        epilog="langgoalirl train recipes/houses/langgoalirl.toml seed=1 strategies.hgs=false",
    )
    parser.add_argument("recipe", type=Path, nargs="?", metavar="RECIPE", help="a TOML file")
    parser.add_argument(
        "overrides", nargs="*", metavar="FIELD=VALUE", help="fields that differ from the recipe"
    )
    parser.add_argument("--fields", action="store_true", help="list a recipe's fields and stop")
    parser.add_argument("--name", help="of the run folder; the recipe's and the seed by default")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where runs are kept")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """langgoalirl train."""
    from langgoalirl.adversarial import Learning, train
    from langgoalirl.commands.pretrain import show_fields
    from langgoalirl.config import load
    from langgoalirl.errors import UserError

    if options.fields:
        show_fields(Learning, options.json)
        return
    if options.recipe is None:
        raise UserError("train needs a RECIPE, for example recipes/houses/langgoalirl.toml.")
    recipe = load(Learning, options.recipe, options.overrides)
    name = options.name or f"{options.recipe.parent.name}-{options.recipe.stem}-s{recipe.seed}"
    folder, stages = train(recipe, options.runs, name)
    show(
        options.json,
        {"run": str(folder.path), "stages": {k: v.status for k, v in stages.items()}},
        f"Trained in {folder.path}",
        ["stage", "minutes", "folder"],
        [(k, v.status["minutes"], v.path) for k, v in stages.items()],
    )
