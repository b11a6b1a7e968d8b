"""A follower's scores on a split: greedy, in one run, with the step limit stated."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from langgoalirl.metrics import score, summary
from langgoalirl.rollout import STEP_LIMIT, Follower, Trajectories, rollout
from langgoalirl.worlds.geometry import VIEWS
from langgoalirl.worlds.navgraph import NavGraph
from langgoalirl.worlds.types import Split, Tasks

AT_ONCE = 500  # episodes; bounds the memory that their observations take


def follow(
    world: NavGraph,
    follower: Follower,
    tasks: Tasks,
    words: Tensor,
    dtype: torch.dtype = torch.float32,
    generator: torch.Generator | None = None,
) -> Trajectories:
    """All tasks of a split, some hundred episodes at a time, without steps that nobody took."""
    parts = [
        rollout(world, follower, part, words[rows], generator=generator, dtype=dtype)
        for rows in torch.arange(len(tasks)).split(AT_ONCE)
        for part in [tasks.rows(rows)]
    ]
    return Trajectories(
        _stack([part.states for part in parts], STEP_LIMIT + 1, None),
        _stack([part.actions for part in parts], STEP_LIMIT, -1),
        torch.cat([part.lengths for part in parts]),
    )


def _stack(parts: list[Tensor], width: int, fill: int | None) -> Tensor:
    """Blocks of rows of different widths, padded with a number or with each row's last entry."""
    wide = []
    for part in parts:
        missing = width - part.shape[1]
        last = part[:, -1:] if fill is None else torch.full_like(part[:, -1:], fill)
        wide.append(torch.cat([part, last.expand(-1, missing)], dim=1))
    return torch.cat(wide)


def follower_scores(
    world: NavGraph,
    follower: Follower,
    split: Split,
    words: Tensor,
    dtype: torch.dtype = torch.float32,
) -> dict[str, Tensor]:
    """Every metric per instruction."""
    if split.references is None:
        raise ValueError(f"split '{split.name}' has no goals to be scored against")
    done = follow(world, follower, split.tasks, words, dtype)
    paths = done.states // VIEWS
    return score(world, paths, torch.full_like(done.lengths, paths.shape[1]), split.references)


def validation(
    world: NavGraph, split: Split, words: Tensor, dtype: torch.dtype
) -> Callable[[Follower], dict[str, float]]:
    """What training looks at now and then: success and SPL on one split."""

    def look(follower: Follower) -> dict[str, float]:
        numbers = summary(follower_scores(world, follower, split, words, dtype))
        return {"sr": numbers["sr"], "spl": numbers["spl"], "ne": numbers["ne"]}

    return look
