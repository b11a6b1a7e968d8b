"""What an update costs when batch, networks, candidates or features grow; what the loop does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from matplotlib.figure import Figure
from torch import Tensor

from langgoalirl.bench.learning import Work, hold_policy, loop_rates, milliseconds, prepared
from langgoalirl.files import atomic_write
from langgoalirl.irl.learner import Learner, Rates
from langgoalirl.irl.transitions import Situation, Steps, Transitions
from langgoalirl.models.policy import PolicyHead
from langgoalirl.models.sizes import Sizes
from langgoalirl.pretrain import initialised
from langgoalirl.recipe import WorldChoice
from langgoalirl.report.maps import svg
from langgoalirl.rollout import STEP_LIMIT
from langgoalirl.worlds.types import Choices, World

USUAL = {"batch": 256, "hidden": 512, "candidates": 6, "width": 200}
"""What R2R with object panoramas is like; each curve changes one of them."""

CURVES = {
    "batch": (32, 64, 128, 256, 512, 1024),
    "hidden": (128, 256, 512, 1024),
    "candidates": (2, 4, 6, 10, 14),
    "width": (100, 200, 500, 1000, 2052),
}
EPISODES = (10, 25, 50, 100, 200)
INTERACTIONS = 1000
REPLAYS = (100_000, 250_000, 500_000, 1_000_000)


class AnyWorld:
    """So many candidates in every state, random and so wide: all that an update asks of a world."""

    states = 5000

    def __init__(self, candidates: int, width: int) -> None:
        self.device, self.action_limit, self.feature_width = torch.device("cpu"), candidates, width
        draw = torch.Generator().manual_seed(0)
        self.table = torch.rand(self.states, candidates, width, generator=draw).bfloat16()

    def choices(self, state: Tensor, dtype: torch.dtype) -> Choices:
        """All of them."""
        mask = torch.ones(len(state), self.action_limit, dtype=torch.bool)
        return Choices.of(self.table[state].to(dtype), mask)


def update_of(batch: int, hidden: int, candidates: int, width: int) -> Work:
    """A joint update on random steps."""
    world, sizes = cast(World, AnyWorld(candidates, width)), Sizes(hidden=hidden)
    head = initialised(1, PolicyHead, width, sizes).eval()
    rates = replace(Rates(), batch=batch)
    learner: Learner = initialised(2, Learner, world, head, sizes, STEP_LIMIT, rates)
    draw = torch.Generator().manual_seed(0)

    def situation() -> Situation:
        encoded = torch.randn(batch, 2 * hidden, generator=draw).bfloat16()
        key = torch.randint(AnyWorld.states, (batch,), generator=draw)
        time = torch.randint(STEP_LIMIT, (batch,), generator=draw)
        return Situation(key, time, encoded, torch.zeros(batch, candidates))

    def steps() -> Steps:
        action = torch.randint(candidates, (batch,), generator=draw)
        return Steps(situation(), action, situation(), action == 0)

    turns = [steps() for _ in range(6)]

    def update() -> None:
        turns.append(turns.pop(0))
        learner.update(*turns[:3])

    return update


def bench_curves(choice: WorldChoice) -> dict[str, Any]:
    """{curve: [[x, y, spread], …]}: milliseconds an update, interactions per second, gigabytes."""
    torch.set_num_threads(1)
    curves: dict[str, Any] = {}
    for name, values in CURVES.items():
        works = {str(value): update_of(**{**USUAL, name: value}) for value in values}
        times = milliseconds(works)
        curves[name] = [[v, times[str(v)]["ms"], times[str(v)]["spread"]] for v in values]
    curves["episodes"] = []
    for episodes in EPISODES:
        bench = prepared(choice, hidden=USUAL["hidden"], batch=USUAL["batch"], episodes=episodes)
        hold_policy(bench)
        list(bench.algorithm.iterate())
        rates = loop_rates(bench, INTERACTIONS)
        curves["episodes"].append(
            [episodes, rates["interactions_per_second"], 0.0, rates["without_updates"]]
        )
    curves["replay"] = [[size, _gigabytes(size), 0.0] for size in REPLAYS]
    return curves


def _gigabytes(steps: int) -> float:
    """Of a replay buffer under two goals."""
    table = Transitions(steps, USUAL["hidden"], 14, 2, torch.device("meta"))
    return sum(column.nbytes for column in table.columns.values()) / 2**30


TITLES = {
    "batch": ("steps in a batch", "ms an update"),
    "hidden": ("hidden units", "ms an update"),
    "candidates": ("candidates in a state", "ms an update"),
    "width": ("width of a candidate's features", "ms an update"),
    "episodes": ("episodes at a time", "interactions per second"),
    "replay": ("steps in the replay buffer", "GB"),
}


def plot(curves: dict[str, Any], file: Path) -> None:
    """All curves on one page, as SVG."""
    figure = Figure(figsize=(10, 5.6), layout="constrained")
    for panel, (name, (x_label, y_label)) in zip(
        figure.subplots(2, 3).flat, TITLES.items(), strict=True
    ):
        x, y, spread, *more = (list(column) for column in zip(*curves[name], strict=True))
        panel.errorbar(x, y, yerr=spread, marker="o", label="with updates" if more else None)
        if more:
            panel.plot(x, more[0], marker="o", linestyle="--", label="rollouts and goals alone")
            panel.legend(frameon=False)
        panel.set(xlabel=x_label, ylabel=y_label, ylim=(0, None))
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.3)
    with atomic_write(file) as out:
        out.write(svg(figure).encode())
