"""`langgoalirl wander`: how the goal-agnostic policy goes through houses."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from langgoalirl.commands.shared import add_json, show


def add(commands: argparse._SubParsersAction) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "wander",
        help="sample trajectories without goals and compare them with the experts'",
        description="Sample as many trajectories as the split has routes, in its houses, from "
        "starts and headings drawn uniformly: with the goal-agnostic policy, and at random without "
        "going back (RandomExplore). Compares lengths, revisits, directness (shortest way over way "
        "taken) and coverage (viewpoints that some trajectory came through) with the annotated "
        "routes.",
    )
    parser.add_argument("runfolder", type=Path, metavar="RUN", help="a pretrained run's folder")
    parser.add_argument("--split", required=True, help="val_seen, val_unseen, …")
    parser.add_argument("--seed", type=int, default=0, help="of the samples")
    parser.add_argument("--results", type=Path, metavar="DIR", help="write a result file there")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """langgoalirl wander."""
    import torch

    from langgoalirl.describe import first_rows
    from langgoalirl.errors import UserError
    from langgoalirl.exploration import draw_starts, habits, houses_of, random_explore, wander
    from langgoalirl.trained import Trained, write_stage_result
    from langgoalirl.worlds.geometry import VIEWS

    trained = Trained.open(options.runfolder)
    world = trained.ground.world
    split = world.split(options.split)
    if split.references is None:
        raise UserError(f"Split '{split.name}' has no annotated routes to compare with.")
    houses = houses_of(world, split)
    routes = split.references.paths[first_rows(split.tasks.route)]
    generator = torch.Generator().manual_seed(options.seed)
    tasks = draw_starts(world, houses, len(routes), generator)
    sampled = wander(world, trained.follower("goal_agnostic"), tasks, generator)
    explored = random_explore(world, tasks, generator)
    numbers: dict[str, Any] = {
        "experts": habits(world, routes, houses),
        "goal_agnostic": habits(world, sampled.states // VIEWS, houses),
        "random_explore": habits(world, explored.states // VIEWS, houses),
    }
    if options.results:
        write_stage_result(
            options.results,
            trained.folder("goal_agnostic"),
            trained.ground.recipe,
            method="goal_agnostic",
            variant="wandering",
            split=options.split,
            metrics=numbers,
        )
    head = ["paths of", "moves", "revisits", "directness", "coverage"]
    rows = [[who, *(of[key] for key in head[1:])] for who, of in numbers.items()]
    show(options.json, numbers, f"{options.runfolder} in the houses of {split.name}", head, rows)
    if not options.json:
        for who, of in numbers.items():
            bars = "  ".join(f"{moves}:{share:.2f}" for moves, share in enumerate(of["histogram"]))
            print(f"moves of {who}: {bars}")
