"""Is one method better than another? Paired, over the same instructions and seeds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from langgoalirl.errors import UserError
from langgoalirl.evaluate import follower_scores
from langgoalirl.trained import Trained

RESAMPLES = 2000


@dataclass(frozen=True)
class Difference:
    """How much more often the first methods' runs succeed, with a 95 % interval."""

    first: float
    second: float
    difference: float
    low: float
    high: float
    seeds: int
    n: int


def paired_difference(first: Tensor, second: Tensor, route: Tensor, seed: int = 0) -> Difference:
    """Bootstrap of success [seeds, n] under both: seeds are drawn anew, and routes with all their
    instructions, because instructions of one route succeed and fail together."""
    apart = (first - second).double()
    _, which = route.unique(return_inverse=True)
    routes = int(which.max()) + 1
    total = torch.zeros(len(apart), routes, dtype=torch.double).index_add_(1, which, apart)
    count = torch.bincount(which, minlength=routes).double()
    chance = torch.Generator().manual_seed(seed)
    seeds = torch.randint(len(apart), (RESAMPLES, len(apart)), generator=chance)
    drawn = torch.randint(routes, (RESAMPLES, routes), generator=chance)
    by_seed = torch.stack([total[rows].mean(0) for rows in seeds])  # [RESAMPLES, routes]
    means = by_seed.gather(1, drawn).sum(1) / count[drawn].sum(1)
    low, high = means.quantile(torch.tensor([0.025, 0.975], dtype=torch.double)).tolist()
    return Difference(
        first.double().mean().item(),
        second.double().mean().item(),
        apart.mean().item(),
        low,
        high,
        *apart.shape,
    )


def compare(first: list[Path], second: list[Path], follower: str, split_name: str) -> Difference:
    """Runs of one method against runs of another, seed by seed, on one split.

    `follower` names who acts in the second runs: policy, or bc for what the first started from.
    """
    pairs = list(zip(_by_seed(first).items(), _by_seed(second).items(), strict=False))
    if len(first) != len(second) or any(a[0] != b[0] for a, b in pairs):
        raise UserError("compare: both sides need runs of the same seeds.")
    successes: list[tuple[Tensor, Tensor]] = []
    for (_, one), (_, other) in pairs:
        sides = []
        for trained, name in ((one, "policy"), (other, follower)):
            ground = trained.ground
            split = ground.world.split(split_name)
            scores = follower_scores(
                ground.world, trained.follower(name), split, ground.words(split)
            )
            sides.append(scores["sr"].cpu())
        successes.append((sides[0], sides[1]))
    mine, theirs = (torch.stack(column) for column in zip(*successes, strict=True))
    return paired_difference(mine, theirs, split.tasks.route.cpu())


def _by_seed(runs: list[Path]) -> dict[int, Trained]:
    found: dict[int, Trained] = {}
    for run in runs:
        trained = Trained.open(run)
        seed = trained.ground.recipe.seed + trained.learning.run_seed
        if seed in found:
            raise UserError(f"compare: {run} has the same seed, {seed}, as another run.")
        found[seed] = trained
    return dict(sorted(found.items()))
