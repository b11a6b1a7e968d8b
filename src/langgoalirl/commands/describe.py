"""`langgoalirl describe`: what the goal generator says of the routes of a split."""

from __future__ import annotations

import argparse
from pathlib import Path

from langgoalirl.commands.shared import add_json, show


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
    parser.add_argument("--samples", type=int, default=5, help="sentences per route (default: 5)")
    parser.add_argument(
        "--temperature", type=float, default=0.0, help="of the words; 0 takes the likeliest"
    )
    parser.add_argument(
        "--nucleus", type=float, default=1.0, help="draw from the likeliest words of this mass"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the samples")
    parser.add_argument(
        "--follower", type=Path, metavar="RUN2", help="a run of another seed that follows"
    )
    parser.add_argument("--results", type=Path, metavar="DIR", help="write a result file there")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """langgoalirl describe."""
    from langgoalirl import describe
    from langgoalirl.demonstrations import DemonstrationSet
    from langgoalirl.errors import UserError
    from langgoalirl.models.speaking import Sampling
    from langgoalirl.trained import Trained, write_stage_result

    if options.samples < 3:
        raise UserError("--samples: at least 3, to be compared with a human's three sentences.")
    trained = Trained.open(options.runfolder)
    ground = trained.ground
    split = ground.world.split(options.split)
    if split.demonstrations is None:
        raise UserError(f"Split '{split.name}' has no annotated routes to describe.")
    data = DemonstrationSet(ground.world, split, ground.vocabulary, ground.recipe.word_limit)
    model, base = trained.goal_generator(), trained.base_model()
    how = Sampling(options.samples, temperature=options.temperature, nucleus=options.nucleus)
    spoken = describe.speak(ground.world, data, model, base, how, options.seed)
    numbers = {
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
            variant=f"best_of_{options.samples}" if options.follower else "",
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
