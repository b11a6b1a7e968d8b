"""How fast pretraining is, beside the same models trained as one would write it down first.

Plain means: float32 throughout, batches in random order padded to the longest demonstration of
all, and for behaviour cloning the frozen state worked out anew in every update.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, pstdev
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from langgoalirl.demonstrations import Batch, BatchOrder, DemonstrationSet, mix
from langgoalirl.models.layers import use_generator
from langgoalirl.models.policy import FrozenEncoder, Policy, PolicyHead
from langgoalirl.objectives import cloning, frozen_cloning, lower_bound
from langgoalirl.pretrain import (
    Ground,
    initialised,
    new_base_model,
    new_goal_agnostic,
    new_goal_generator,
)
from langgoalirl.recipe import Pretraining
from langgoalirl.training import Objective, Training, precision

UPDATES = 5  # in each round, after one that warms up
ROUNDS = 5  # ours and plain take turns, so that a busy machine is unfair to neither


def bench_pretrain(recipe: Pretraining) -> dict[str, Any]:
    """Instructions per second of every stage: ours, plain, and the ratio of the medians."""
    torch.set_num_threads(1)
    with TemporaryDirectory(prefix="langgoalirl-bench-") as folder:
        ground = Ground(recipe, Path(folder))
        stages = {name: _compare(ours, plain) for name, ours, plain in _stages(ground)}
    return {"world": ground.world.name, "hidden": recipe.sizes.hidden, "stages": stages}


@dataclass
class Job:
    """Something to be trained, a few updates at a time."""

    model: nn.Module
    objective: Objective
    batches: Callable[[int], Batch]
    settings: Training

    def __post_init__(self) -> None:
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(self.parameters, lr=1e-4)
        self.generator = torch.Generator()
        use_generator(self.model, self.generator)
        self.update = 0

    def rate(self) -> float:
        """Instructions per CPU second over a few updates."""
        _, autocast = precision(self.settings.precision, torch.device("cpu"))
        self.model.train()
        began = time.process_time()
        for _ in range(UPDATES):
            self.generator.manual_seed(mix(0, self.update))
            with autocast:
                loss, _ = self.objective(self.batches(self.update), self.update, self.generator)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.parameters, self.settings.clip)
            self.optimizer.step()
            self.update += 1
        return UPDATES * self.settings.batch / (time.process_time() - began)


class PlainOrder:
    """Random demonstrations, padded to the longest instruction and the longest path of all."""

    def __init__(self, data: DemonstrationSet, settings: Training) -> None:
        self.data, self.batch = data, settings.batch
        self.generator = torch.Generator().manual_seed(0)

    def __call__(self, update: int) -> Batch:
        """A batch."""
        rows = torch.randint(len(self.data), (self.batch,), generator=self.generator)
        data, unmirrored = self.data, torch.zeros(self.batch, dtype=torch.bool)
        return Batch(rows, data.words[rows], data.states[rows], data.actions[rows], unmirrored)


def _stages(ground: Ground) -> list[tuple[str, Job, Job]]:
    """(name, ours, plain) of every stage."""
    recipe, world, data = ground.recipe, ground.world, ground.data

    def policy() -> Policy:
        encoder = FrozenEncoder(new_base_model(ground))
        return Policy(encoder, initialised(0, PolicyHead, world.feature_width, recipe.sizes))

    def job(model: nn.Module, objective: Callable[..., Objective], settings: Training) -> Job:
        order = BatchOrder(data, settings.batch, recipe.seed, settings.mirror)
        return Job(model, objective(world, model, settings), order, settings)

    def plain(model: nn.Module, objective: Callable[..., Objective], settings: Training) -> Job:
        settings = replace(settings, precision="fp32")
        return Job(model, objective(world, model, settings), PlainOrder(data, settings), settings)

    def cached(world: Any, model: Policy, settings: Training) -> Objective:
        return frozen_cloning(world, model, data, settings)

    return [
        (
            name,
            job(build(), ours, settings),
            plain(build(), lower_bound if name == "goal_generator" else cloning, settings),
        )
        for name, build, ours, settings in (
            ("base_model", lambda: new_base_model(ground), cloning, recipe.base_model),
            ("bc", policy, cached, recipe.bc),
            ("goal_agnostic", lambda: new_goal_agnostic(ground), cloning, recipe.goal_agnostic),
            (
                "goal_generator",
                lambda: new_goal_generator(ground),
                lower_bound,
                recipe.goal_generator,
            ),
        )
    ]


def _compare(ours: Job, plain: Job) -> dict[str, float]:
    """Rates of both, in turns."""
    ours.rate(), plain.rate()
    rates = [(ours.rate(), plain.rate()) for _ in range(ROUNDS)]
    fast, slow = (median(column) for column in zip(*rates, strict=True))
    return {
        "per_second": fast,
        "spread": pstdev(rate for rate, _ in rates),
        "plain_per_second": slow,
        "plain_spread": pstdev(rate for _, rate in rates),
        "times": fast / slow,
    }
