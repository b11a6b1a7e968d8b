"""`langgoalirl evaluate`: how well instructions are followed, by a run or in a submission."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langgoalirl.commands.shared import add_json, add_world, show
from langgoalirl.errors import UserError

if TYPE_CHECKING:
    from langgoalirl.trained import Trained
    from langgoalirl.worlds.types import Split


def add(commands: argparse._SubParsersAction) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "evaluate",
        help="score a run on a split, or somebody's submission",
        description="Score a run greedily on a split (10 steps at most), or a submission in the "
        "official format. TL and NE are metres, the other metrics fractions; success is strictly "
        "below 3 m. 'envdrop' counts every instruction and takes SPL over the shortest distance; "
        "'simulator' reads the first three instructions of a path; 'duet' takes SPL over the "
        "annotated path's length.",
    )
    parser.add_argument("runfolder", type=Path, nargs="?", metavar="RUN", help="a run's folder")
    parser.add_argument("--split", required=True, help="val_seen, val_unseen, …")
    parser.add_argument(
        "--follower",
        choices=("policy", "base_model", "bc", "bc_concat", "goal_agnostic"),
        help="which of the run's networks acts (default: policy for a run of 'train', else bc)",
    )
    parser.add_argument(
        "--control",
        default="none",
        choices=("none", "shuffled"),
        help="shuffled: everyone gets another route's instruction",
    )
    parser.add_argument("--predictions", type=Path, metavar="FILE", help="a submission to score")
    parser.add_argument(
        "--reward",
        action="store_true",
        help="instead: how often the learned reward puts the true pair of instruction and path "
        "above a false one (reward_auc_…), and the success of the best of eight trajectories of "
        "behaviour cloning by that reward (best_of_8_…)",
    )
    add_world(parser)
    parser.add_argument(
        "--protocol",
        default="envdrop",
        choices=("envdrop", "simulator", "duet"),
        help="whose way of counting (default: envdrop)",
    )
    parser.add_argument("--results", type=Path, metavar="DIR", help="write a result file there")
    parser.add_argument(
        "--variant",
        default="",
        metavar="NAME",
        help="how the run departs from its method's recipe, for the result file's name",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """langgoalirl evaluate."""
    if (options.runfolder is None) == (options.predictions is None):
        raise UserError("evaluate needs a RUN, or --predictions FILE with --world and --data.")
    if options.predictions is not None:
        if options.results is not None:
            raise UserError("--results takes what a RUN scores: a submission has no configuration.")
        numbers = _submission(options)
        title = f"{options.predictions} on {options.split}, protocol {options.protocol}"
    else:
        numbers = _run(options)
        title = f"{options.runfolder} on {options.split}"
    show(options.json, numbers, title, list(numbers), [list(numbers.values())])


def _submission(options: argparse.Namespace) -> dict[str, Any]:
    from langgoalirl.recipe import WorldChoice, open_world
    from langgoalirl.submission import evaluate_predictions

    if options.world is None:
        raise UserError("--predictions needs --world (houses or r2r).")
    data = str(options.data) if options.data else ""
    world = open_world(WorldChoice(options.world, data=data, features="none"), "cpu")
    split = world.split(options.split)
    return evaluate_predictions(options.predictions, world, split, options.protocol)[0]


def _run(options: argparse.Namespace) -> dict[str, Any]:
    from langgoalirl.trained import Trained, write_stage_result

    trained = Trained.open(options.runfolder)
    recipe = trained.ground.recipe
    split = trained.ground.world.split(options.split)
    if split.references is None:
        raise UserError(f"Split '{split.name}' has no goals: it cannot be scored here.")
    follower = options.follower or ("policy" if "policy" in trained.stages else "bc")
    if options.reward:
        numbers = _reward(trained, split)
    else:
        numbers = _followed(options, trained, split, follower)
    if options.results:
        variants = [
            options.variant,
            "" if options.control == "none" else options.control,
            "blanked" if recipe.world.features == "none" else "",
            "concat" if follower == "bc_concat" else "",
        ]
        method = {"bc_concat": "bc", "policy": getattr(recipe, "method", "")}
        write_stage_result(
            options.results,
            trained.folder(follower),
            recipe,
            method=method.get(follower, follower),
            variant="+".join(v for v in variants if v),
            split=options.split,
            metrics=numbers,
        )
    return numbers


def _reward(trained: Trained, split: Split) -> dict[str, Any]:
    """How well the learned reward tells right from wrong."""
    from langgoalirl.reward import Reward, kinds
    from langgoalirl.reward_checks import best_of_several, reward_auc

    rewards = [Reward.of(trained, kind) for kind in kinds(trained)]
    world, seed = trained.ground.world, trained.ground.recipe.seed
    numbers = reward_auc(rewards, world, split, seed)
    if "bc" in trained.stages:
        numbers |= best_of_several(rewards, world, trained.follower("bc"), split, seed)
    return numbers


def _followed(
    options: argparse.Namespace, trained: Trained, split: Split, follower: str
) -> dict[str, Any]:
    """How well instructions are followed; writes the submission."""
    import torch

    from langgoalirl.evaluate import follow
    from langgoalirl.metrics import score, summary
    from langgoalirl.submission import write_submission
    from langgoalirl.worlds.geometry import VIEWS

    assert split.references is not None
    ground = trained.ground
    words = ground.words(split)
    if options.control == "shuffled":
        shuffle = torch.Generator().manual_seed(ground.recipe.seed)
        words = words[torch.randperm(len(words), generator=shuffle)]
    done = follow(ground.world, trained.follower(follower), split.tasks, words)
    if options.control == "none":
        file = options.runfolder / "predictions" / f"{options.split}-{follower}.json"
        write_submission(file, ground.world, split, done.states, done.lengths + 1)
    paths = done.states // VIEWS
    width = torch.full_like(done.lengths, paths.shape[1])
    return summary(score(ground.world, paths, width, split.references, options.protocol))
