"""Trajectories that nobody asked for: sampled by π_p or at random, in houses without annotations,
and how they compare with what experts do."""

from __future__ import annotations

import torch
from torch import Tensor

from langgoalirl.evaluate import follow
from langgoalirl.language.vocabulary import END
from langgoalirl.rollout import STEP_LIMIT, Follower, Trajectories
from langgoalirl.worlds.geometry import HEADINGS, VIEWS
from langgoalirl.worlds.navgraph import NavGraph
from langgoalirl.worlds.types import NO_ACTION, STOP, Split, Tasks


def houses_of(world: NavGraph, split: Split) -> Tensor:
    """The numbers of the houses that a split is about: all that exploring may know of it."""
    return world.house_of[split.tasks.start.to(world.device) // VIEWS].unique()


def draw_starts(world: NavGraph, houses: Tensor, count: int, generator: torch.Generator) -> Tasks:
    """Viewpoints and level headings drawn uniformly from some houses; no goals."""
    inside = torch.isin(world.house_of, houses) & (world.mask.sum(1) > 1)
    places = inside.nonzero()[:, 0].cpu()
    viewpoint = places[torch.randint(len(places), (count,), generator=generator)]
    view = HEADINGS + torch.randint(HEADINGS, (count,), generator=generator)
    ids = [str(i) for i in range(count)]
    return Tasks(ids, [""] * count, viewpoint * VIEWS + view, torch.arange(count))


def wander(
    world: NavGraph, prior: Follower, tasks: Tasks, generator: torch.Generator
) -> Trajectories:
    """Trajectories of a policy that needs no goal, by sampling."""
    silence = torch.full((len(tasks), 1), END)
    return follow(world, prior, tasks, silence, generator=generator)


def random_explore(world: NavGraph, tasks: Tasks, generator: torch.Generator) -> Trajectories:
    """The paper's RandomExplore: any action at random, but to no viewpoint that was visited."""
    state = world.reset(tasks)
    rows = torch.arange(len(state), device=world.device)
    visited = torch.zeros(len(state), len(world.house_of), dtype=torch.bool, device=world.device)
    going = torch.ones_like(state, dtype=torch.bool)
    states, actions = [state], []
    for _ in range(STEP_LIMIT):
        viewpoint = state // VIEWS
        visited[rows, viewpoint] = True
        new = ~visited.gather(1, world.neighbour[viewpoint]) & world.mask[viewpoint]
        new[:, STOP] = True
        action = torch.multinomial(new.float(), 1, generator=generator)[:, 0]
        action = torch.where(going, action, NO_ACTION)
        state = torch.where(going, world.step(state, action.clamp_min(STOP)), state)
        going = action > STOP
        states.append(state)
        actions.append(action)
    done = torch.stack(actions, dim=1)
    return Trajectories(torch.stack(states, dim=1), done, (done != NO_ACTION).sum(1))


def habits(world: NavGraph, paths: Tensor, houses: Tensor) -> dict[str, float | list[float]]:
    """How paths [n, T] (the last viewpoint repeated at the end) go through houses.

    moves: their mean and their histogram; revisits: moves to a viewpoint seen before;
    directness: shortest way from start to end over the way taken; coverage: viewpoints of the
    houses that some path came through.
    """
    moved = paths[:, 1:] != paths[:, :-1]
    moves = moved.sum(1)
    before = (paths[:, 1:, None] == paths[:, None, :-1]).tril().any(-1) & moved
    metres = world.distance(paths[:, :-1], paths[:, 1:]).sum(1)
    shortest = world.distance(paths[:, 0], paths[:, -1])
    inside = torch.isin(world.house_of, houses)
    reached = torch.zeros_like(inside)
    reached[paths.flatten()] = True
    counts = torch.bincount(moves, minlength=STEP_LIMIT + 1)
    return {
        "paths": len(paths),
        "moves": moves.double().mean().item(),
        "histogram": (counts / len(paths)).tolist(),
        "revisits": (before.sum() / moves.sum().clamp_min(1)).item(),
        "directness": (shortest.sum() / metres.sum().clamp_min(1e-9)).item(),
        "coverage": ((reached & inside).sum() / inside.sum()).item(),
    }
