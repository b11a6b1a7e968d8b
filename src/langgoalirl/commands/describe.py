"""`langgoalirl describe`: what the goal generator says of the routes of a split."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langgoalirl.commands.shared import add_json, show

if TYPE_CHECKING:
    from langgoalirl.models.speaking import Sampling


def add(commands: argparse._SubParsersAction) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "describe",
        help="generate instructions for routes and measure them",
        description="Generate instructions for the routes of a split. Measures likeness to what "
        "humans wrote (BLEU-4 and n-gram precisions of one sample against all references), "
        "variety (distinct sentences, self-BLEU, KL, what a foreign z costs) and, with "
        "--follower, truth: the success of another run's base model on generated instructions "
        "over its success on human ones.",
    )
    parser.add_argument("runfolder", type=Path, metavar="RUN", help="a pretrained run's folder")
    parser.add_argument("--split", required=True, help="val_seen, val_unseen, …")
    for name, kind, text in (
        ("samples", int, "sentences per route"),
        ("draws", int, "drawn per sentence; of several, those are kept that differ most"),
        ("temperature", float, "of the words; 0 takes the likeliest"),
        ("spread", float, "of z around the prior's mean, in standard deviations"),
        ("nucleus", float, "draw from the likeliest words of this mass"),
    ):
        parser.add_argument(f"--{name}", type=kind, help=f"{text} (default: the recipe's)")
    parser.add_argument("--seed", type=int, default=0, help="of the samples")
    parser.add_argument(
        "--follower", type=Path, metavar="RUN2", help="a run of another seed that follows"
    )
    parser.add_argument("--results", type=Path, metavar="DIR", help="write a result file there")
    add_json(parser)
    parser.set_defaults(run=run)


def _asked(options: argparse.Namespace) -> dict[str, float]:
    """What of the sampling was set on the command line."""
    names = ("samples", "draws", "temperature", "spread", "nucleus")
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


def _sampling(recipe: Sampling, asked: dict[str, Any]) -> Sampling:
    """The recipe's, where nothing else was asked for."""
    from langgoalirl.errors import UserError

    try:
        how = replace(recipe, **asked)
    except ValueError as error:
        raise UserError(f"describe: {error}.") from None
    if how.samples < 3:
        raise UserError("--samples: at least 3, to be compared with a human's three sentences.")
    return how


def run(options: argparse.Namespace) -> None:
    """langgoalirl describe."""
    from langgoalirl import describe
    from langgoalirl.demonstrations import DemonstrationSet
    from langgoalirl.errors import UserError
    from langgoalirl.trained import Trained, write_stage_result

    asked = _asked(options)
    trained = Trained.open(options.runfolder)
    ground = trained.ground
    split = ground.world.split(options.split)
    if split.demonstrations is None:
        raise UserError(f"Split '{split.name}' has no annotated routes to describe.")
    data = DemonstrationSet(ground.world, split, ground.vocabulary, ground.recipe.word_limit)
    model, base = trained.goal_generator(), trained.base_model()
    how = _sampling(ground.recipe.speaking, asked)
    began = time.perf_counter()
    spoken = describe.speak(ground.world, data, model, base, how, options.seed)
    seconds = time.perf_counter() - began
    numbers = {
        "samples": how.samples,
        "draws": how.draws,
        "temperature": how.temperature,
        "spread": how.spread,
        "seconds_per_route": seconds / len(spoken.rows),  # drawn, compared and chosen among
        **describe.likeness(spoken, ground.vocabulary, split),
        **describe.variety(spoken, ground.vocabulary, split),
        **describe.use_of_latent(ground.world, data, model, options.seed),
    }
    if options.follower:
        other = Trained.open(options.follower)
        if other.ground.recipe.seed == ground.recipe.seed:
            raise UserError(f"{options.follower}: has the same seed as RUN; take another one.")
        if other.ground.vocabulary.words != ground.vocabulary.words:
            raise UserError(f"{options.follower}: was trained on other data than RUN.")
        numbers |= describe.followability(
            ground.world, other.base_model(), ground.vocabulary, spoken, split
        )
    examples = describe.examples(spoken, ground.vocabulary, split, 10)
    if options.results:
        write_stage_result(
            options.results,
            trained.folder("goal_generator"),
            ground.recipe,
            method="goal_generator",
            variant="+".join(f"{name}={value}" for name, value in asked.items()),
            split=options.split,
            metrics=numbers,
        )
    show(
        options.json,
        {**numbers, "examples": examples},
        f"{options.runfolder} on {options.split}",
        ["measure", "value"],
        numbers.items(),
    )
    if not options.json:
        for example in examples:
            print(f"\nhuman:     {example['human']}\ngenerated: {example['generated']}")
