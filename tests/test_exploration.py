"""Exploring without goals: where it starts, where it goes, how it is measured."""

from __future__ import annotations

import pytest
import torch

from langgoalirl.agents import RandomAgent
from langgoalirl.exploration import draw_starts, habits, houses_of, random_explore, wander
from langgoalirl.rollout import STEP_LIMIT
from langgoalirl.worlds.geometry import HEADINGS, VIEWS
from langgoalirl.worlds.houses.world import Houses
from langgoalirl.worlds.types import STOP


@pytest.fixture(scope="module")
def world() -> Houses:
    return Houses(houses=2, unseen=2, routes=4)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_starts_cover_the_splits_houses_and_no_others(world: Houses) -> None:
    houses = houses_of(world, world.split("val_unseen"))
    assert houses.tolist() == [2, 3]
    tasks = draw_starts(world, houses, 4000, generator())
    viewpoints, views = tasks.start // VIEWS, tasks.start % VIEWS
    wanted = torch.isin(world.house_of, houses).nonzero()[:, 0]
    assert viewpoints.unique().tolist() == wanted.tolist()
    assert views.unique().tolist() == list(range(HEADINGS, 2 * HEADINGS))
    assert set(tasks.goals) == {""}


def test_random_explore_never_goes_back(world: Houses) -> None:
    tasks = draw_starts(world, torch.tensor([0, 1]), 300, generator())
    done = random_explore(world, tasks, generator())
    for row in range(300):
        moves = int(done.moves[row])
        path = (done.states[row, : moves + 1] // VIEWS).tolist()
        assert len(set(path)) == len(path)
        ended = moves == STEP_LIMIT or done.actions[row, moves] == STOP
        assert ended
    again = random_explore(world, tasks, generator())
    assert torch.equal(done.actions, again.actions)


def test_wandering_is_repeatable_sampling(world: Houses) -> None:
    tasks = draw_starts(world, torch.tensor([3]), 50, generator())
    one = wander(world, RandomAgent(), tasks, generator())
    two = wander(world, RandomAgent(), tasks, generator())
    assert torch.equal(one.states, two.states)
    assert (world.house_of[one.states // VIEWS] == 3).all()


def test_habits_by_hand(world: Houses) -> None:
    house = world.houses[0]
    a = 0
    b = int(house.edges[a].nonzero()[0][0])
    there_and_back = torch.tensor([[a, b, a, a], [a, b, b, b]])
    found = habits(world, there_and_back, torch.tensor([0]))
    assert found["paths"] == 2
    assert found["moves"] == 1.5
    assert found["histogram"] == [0, 0.5, 0.5] + [0] * 8
    assert found["revisits"] == pytest.approx(1 / 3)
    assert found["directness"] == pytest.approx(1 / 3)
    assert found["coverage"] == pytest.approx(2 / len(house))
