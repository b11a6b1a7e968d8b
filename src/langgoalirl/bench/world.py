"""How fast the world is: steps per CPU second on one thread, beside what memory itself allows.

CPU seconds, as R2RBatch was measured: whatever else the machine does then takes little away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median, pstdev
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from langgoalirl.recipe import WorldChoice, open_world
from langgoalirl.worlds.features import write_cache
from langgoalirl.worlds.geometry import VIEWS
from langgoalirl.worlds.navgraph import DIRECTION, NavGraph

BATCH = 100
WIDE = 2048  # of ResNet-152's features
R2RBATCH = (7_000, 11_000)
"""Steps per CPU second of R2R-EnvDrop's R2RBatch, batch 100, 36 x 2048, on a machine like ours."""


def bench_world(data: Path | None) -> dict[str, Any]:
    """State transitions alone, with 2048-wide observations, and with the world's own features."""
    torch.set_num_threads(1)
    choice = WorldChoice("r2r", data=str(data)) if data else WorldChoice("houses")
    bare = open_world(replace(choice, features="none"), "cpu")
    rows = _rates({"transitions": _walk(bare, look=False)})
    with TemporaryDirectory(prefix="langgoalirl-bench-") as folder:
        table = write_cache(Path(folder) / "cache", WIDE, random_panoramas(bare, WIDE), "random")
        wide = NavGraph(bare.houses, table.values, table.rows(bare.houses), digest=table.digest)
        rows |= _rates({"observed_2048": _walk(wide, look=True), "copy_2048": _copying(wide)})
    own = open_world(choice, "cpu")
    rows |= _rates({"observed_own": _walk(own, look=True)})
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


def random_panoramas(world: NavGraph, width: int) -> Iterator[tuple[str, NDArray]]:
    """Features so wide for every viewpoint: a block of random numbers, repeated."""
    block = np.random.default_rng(0).random((64, VIEWS, width), dtype=np.float32)
    keys = [f"{house.name}_{viewpoint}" for house in world.houses for viewpoint in house.viewpoints]
    for i, key in enumerate(keys):
        yield key, block[i % len(block)]


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
    """Nothing but copies of as many bytes as the observations hold, from as many places."""
    generator = torch.Generator().manual_seed(1)
    panoramas = world._panoramas
    places = torch.randint(len(panoramas), (64, BATCH), generator=generator)
    views = torch.empty(BATCH, panoramas.shape[1], dtype=panoramas.dtype)
    # Of the candidates' rows, those of absent ones lie in the cache and are written alone.
    candidates = torch.empty(BATCH, world.action_limit * world.feature_width, dtype=views.dtype)
    turn = 0

    def step() -> int:
        nonlocal turn
        turn = (turn + 1) % len(places)
        torch.index_select(panoramas, 0, places[turn], out=views)
        candidates.zero_()
        return BATCH

    return step


def _rates(
    works: dict[str, Callable[[], int]], seconds: float = 0.5, repeats: int = 5
) -> dict[str, dict[str, float]]:
    """Units of each work per CPU second: median and spread of some turns, one work after the
    other, so that whatever disturbs the machine disturbs them alike."""
    rates: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            work()
            done, began = 0, time.process_time()
            while time.process_time() - began < seconds:
                done += work()
            rates[name].append(done / (time.process_time() - began))
    return {
        name: {"per_second": median(found), "spread": pstdev(found)}
        for name, found in rates.items()
    }
