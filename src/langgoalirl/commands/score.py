"""`langgoalirl score`: the learned reward of a trajectory under an instruction, step by step."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from langgoalirl.commands.shared import add_json, show
from langgoalirl.errors import UserError, nearest


def add(commands: argparse._SubParsersAction) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "score",
        help="the learned reward of a path under an instruction, step by step",
        description="What each step of a path is worth under an instruction, by the reward that a "
        "run of 'train' learned: f with shaping, g without, and log π of behaviour cloning as the "
        "reference. The last step is to stop.",
        epilog='FILE: {"scan": "house_0000", "heading": 0.0, "path": ["house_0000_03", …]}',
    )
    parser.add_argument("runfolder", type=Path, metavar="RUN", help="a run's folder")
    parser.add_argument("--goal", required=True, metavar="TEXT", help="the instruction")
    parser.add_argument("--path", type=Path, required=True, metavar="FILE", help="the path, JSON")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """langgoalirl score."""
    import torch

    from langgoalirl.demonstrations import trace
    from langgoalirl.files import read_json
    from langgoalirl.reward import Reward, Walk, kinds
    from langgoalirl.rollout import STEP_LIMIT
    from langgoalirl.trained import Trained
    from langgoalirl.worlds.geometry import VIEWS, start_view

    scan, heading, names = _path(read_json(options.path), options.path)
    if not options.goal.strip():
        raise UserError("--goal: an instruction has words.")
    if len(names) > STEP_LIMIT:
        raise UserError(f"{options.path}: a path has {STEP_LIMIT} viewpoints at most.")
    trained = Trained.open(options.runfolder)
    world = trained.ground.world
    house = world.house(scan)
    for name in names:
        if name not in house.viewpoints:
            raise UserError(
                f"{options.path}: '{scan}' has no viewpoint '{name}'."
                f"{nearest(name, house.viewpoints)}"
            )
    viewpoints = torch.tensor([[world.index[scan, name] for name in names]], device=world.device)
    length = torch.tensor([len(names)], device=world.device)
    try:
        actions = world.actions_along(viewpoints, length)
    except ValueError as error:
        raise UserError(f"{options.path}: is no path ({error}).") from None
    start = viewpoints[:, 0] * VIEWS + start_view(heading)
    walk = Walk(trace(world, start, actions)[0], actions[0])
    found = {
        kind: Reward.of(trained, kind)(world, options.goal, walk).tolist()
        for kind in kinds(trained)
    }
    to = [*names[1:], "stop"]
    steps = [
        {"from": names[t], "to": to[t], **{kind: values[t] for kind, values in found.items()}}
        for t in range(len(names))
    ]
    mean = {kind: sum(values) / len(values) for kind, values in found.items()}
    show(
        options.json,
        {"goal": options.goal, "scan": scan, "steps": steps, "mean": mean},
        options.goal,
        ["from", "to", *found],
        [*(list(step.values()) for step in steps), ["mean", "", *mean.values()]],
    )


def _path(value: Any, file: Path) -> tuple[str, float, list[str]]:
    """What the file says, or one sentence on what it should."""
    wanted = f'{file}: must be {{"scan": name, "heading": radians, "path": [viewpoint ids]}}.'
    if not isinstance(value, dict):
        raise UserError(wanted)
    scan, heading, path = (value.get(name) for name in ("scan", "heading", "path"))
    number = type(heading) in (int, float) and abs(heading) < 1e6  # type: ignore[arg-type]
    if not isinstance(scan, str) or not number or not isinstance(path, list) or not path:
        raise UserError(wanted)
    if not all(isinstance(name, str) for name in path):
        raise UserError(wanted)
    return scan, float(heading), path  # type: ignore[arg-type]
