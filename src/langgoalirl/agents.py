"""Agents that learn nothing: the floor and the ceiling of every score."""

from __future__ import annotations

import torch
from torch import Tensor

from langgoalirl.rollout import STEP_LIMIT
from langgoalirl.worlds.geometry import VIEWS
from langgoalirl.worlds.navgraph import NavGraph
from langgoalirl.worlds.types import STOP, Observation, References


class RandomAgent:
    """Every candidate is as good as any other, *stop* included (act by sampling)."""

    def begin(self, words: Tensor) -> None:
        """Does not listen."""

    def act(self, seen: Observation, memory: None) -> tuple[Tensor, None]:
        """The same logit for all."""
        return torch.zeros_like(seen.mask, dtype=torch.float32), None


def shortest_paths(world: NavGraph, start: Tensor, references: References) -> tuple[Tensor, Tensor]:
    """Viewpoints [n, T] and lengths [n] of an agent that knows the goal: privileged."""
    viewpoint = start.to(world.device) // VIEWS
    goal = references.goals.to(world.device)
    paths = [viewpoint]
    for _ in range(STEP_LIMIT):
        action = world.towards(viewpoint, goal)
        viewpoint = torch.where(action == STOP, viewpoint, world.neighbour[viewpoint, action])
        paths.append(viewpoint)
    walked = torch.stack(paths, dim=1)
    return walked, torch.full_like(goal, walked.shape[1])
