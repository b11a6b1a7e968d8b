"""How fast the world is: steps per second on one thread, beside what memory itself allows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median, pstdev
from typing import Any

import torch
from torch import Tensor

from langgoalirl.recipe import WorldChoice, open_world
from langgoalirl.worlds.geometry import VIEWS
from langgoalirl.worlds.navgraph import DIRECTION, NavGraph

BATCH = 100
WIDE = 2048  # of ResNet-152's features
R2RBATCH = (7_000, 11_000)
"""Steps per second of R2R-EnvDrop's R2RBatch, batch 100, 36 x 2048, on a machine like ours."""


def bench_world(data: Path | None) -> dict[str, Any]:
    """State transitions alone, with 2048-wide observations, and with the world's own features."""
    torch.set_num_threads(1)
    choice = WorldChoice("r2r", data=str(data)) if data else WorldChoice("houses")
    bare = open_world(replace(choice, features="none"), "cpu")
    rows = {"transitions": _rate(_walk(bare, look=False))}
    wide = NavGraph(bare.houses, _random_features(len(bare.house_of)), digest="random")
    rows["observed_2048"] = _rate(_walk(wide, look=True))
    rows["copy_2048"] = _rate(_copying(wide))
    own = open_world(choice, "cpu")
    rows["observed_own"] = _rate(_walk(own, look=True))
    limit, reached = rows["copy_2048"]["per_second"], rows["observed_2048"]["per_second"]
    return {
        "world": bare.name,
        "viewpoints": len(bare.house_of),
        "batch": BATCH,
        "own_width": own.feature_width - DIRECTION,
        "steps_per_second": rows,
        "of_memory_limit": reached / limit,
        "times_r2rbatch": [reached / R2RBATCH[1], reached / R2RBATCH[0]],
    }


def _random_features(viewpoints: int) -> Tensor:
    """Features as wide as ResNet's, random, for every viewpoint; the last row is nowhere."""
    generator = torch.Generator().manual_seed(0)
    block = torch.rand(64, VIEWS, WIDE + DIRECTION, generator=generator).half()
    values = block.repeat(viewpoints // 64 + 1, 1, 1)[: viewpoints + 1].clone()
    values[..., -DIRECTION:] = 0
    values[-1] = 0
    return values


def _walk(world: NavGraph, look: bool) -> Callable[[], int]:
    """A random walk of a hundred agents; with `look`, each perceives all there is after a move."""
    generator = torch.Generator().manual_seed(0)
    viewpoints = torch.randint(len(world.house_of), (BATCH,), generator=generator)
    state = viewpoints * VIEWS
    choices = torch.rand(64, BATCH, world.action_limit, generator=generator)
    ways = world.mask.sum(1) - 1
    turn = 0

    def step() -> int:
        nonlocal state, turn
        turn = (turn + 1) % len(choices)
        # One of the neighbours, which fill the columns from 1 on; stay where there is none.
        count = ways[state // VIEWS]
        action = (choices[turn, :, 0] * count).long() + (count > 0)
        state = world.step(state, action)
        if look:
            world.observe(state)
        return BATCH

    return step


def _copying(world: NavGraph) -> Callable[[], int]:
    """Nothing but copies of as many bytes as the observations hold, from random places."""
    generator = torch.Generator().manual_seed(1)
    panoramas = world._panoramas
    places = torch.randint(len(panoramas), (64, BATCH), generator=generator)
    views = places % VIEWS
    turn = 0

    def step() -> int:
        nonlocal turn
        turn = (turn + 1) % len(places)
        torch.stack([panoramas[i] for i in places[turn].tolist()])
        begin = int(views[turn, 0])
        panoramas[begin : begin + BATCH, : world.action_limit * world.feature_width].clone()
        return BATCH

    return step


def _rate(work: Callable[[], int], seconds: float = 0.5, repeats: int = 5) -> dict[str, float]:
    """Units of work per second: median and spread of some repetitions."""
    work()
    rates = []
    for _ in range(repeats):
        done, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            done += work()
        rates.append(done / (time.perf_counter() - began))
    return {"per_second": median(rates), "spread": pstdev(rates)}
