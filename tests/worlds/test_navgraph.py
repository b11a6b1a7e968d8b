"""Houses as tensors: tiny ones checked by hand, random ones by a slow way of doing the same."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from langgoalirl.errors import UserError
from langgoalirl.worlds.geometry import VIEW_ELEVATIONS, VIEW_HEADINGS, candidates, start_view
from langgoalirl.worlds.navgraph import House, NavGraph
from langgoalirl.worlds.types import STOP, Choices, Tasks

SEEN = 2  # columns of features before the four of the direction
CORNER = [(0, 0, 0), (0, 2, 0), (3, 0, 0), (-1, 0, -math.tan(math.pi / 6))]
CORNER_EDGES = {(0, 1), (0, 2), (0, 3), (1, 2)}
A, B, C, D = range(4)


def house(name: str, positions: list, edges: set[tuple[int, int]], one_way: bool = False) -> House:
    """Viewpoints a, b, c, … with edges in both directions."""
    n = len(positions)
    joined = np.zeros((n, n), dtype=bool)
    for i, j in edges:
        joined[i, j] = True
        joined[j, i] |= not one_way
    names = [chr(ord("a") + i) for i in range(n)]
    places = np.array(positions, dtype=np.float64).reshape(n, 3)
    return House(name, names, places, joined, joined, np.ones(n))


def table(viewpoints: int) -> Tensor:
    """Every view of every viewpoint has numbers of its own; the last row is nowhere."""
    features = torch.zeros(viewpoints + 1, 36, SEEN + 4)
    features[:-1, :, 0] = 1 + torch.arange(viewpoints)[:, None]
    features[:-1, :, 1] = 1 + torch.arange(36)
    return features


def corner() -> NavGraph:
    """From a: b is 2 m north, c 3 m east, d 1 m west and 30 degrees down. b and c are joined."""
    return NavGraph([house("corner", CORNER, CORNER_EDGES)], table(4))


def at(viewpoint: int, view: int) -> Tensor:
    return torch.tensor([viewpoint * 36 + view])


def pointing(heading: float, elevation: float) -> list[float]:
    return [math.cos(heading), math.sin(heading), math.cos(elevation), math.sin(elevation)]


# Moving


@pytest.mark.parametrize("view", [0, 17, 35])
@pytest.mark.parametrize(
    ("start", "action", "end", "through"),
    [(A, 1, B, 12), (A, 2, C, 15), (A, 3, D, 9), (B, 1, C, 16), (B, 2, A, 18), (D, 1, A, 27)],
)
def test_one_faces_the_view_that_one_left_through(
    start: int, action: int, end: int, through: int, view: int
) -> None:
    assert corner().step(at(start, view), torch.tensor([action])).equal(at(end, through))


def test_stop_changes_nothing() -> None:
    states = torch.arange(4 * 36)
    assert corner().step(states, torch.full_like(states, STOP)).equal(states)


def test_a_batch_steps_row_by_row() -> None:
    world = corner()
    states = torch.tensor([A * 36 + 5, A * 36 + 5, B * 36, D * 36 + 35])
    moved = world.step(states, torch.tensor([STOP, 3, 1, 1]))
    assert moved.tolist() == [A * 36 + 5, D * 36 + 9, C * 36 + 16, A * 36 + 27]


def test_reset_gives_the_starts() -> None:
    start = torch.tensor([17, 40])
    assert corner().reset(Tasks(["1_0", "2_0"], ["", ""], start, torch.arange(2))).equal(start)


# Perceiving


def test_candidates_are_masked_and_what_is_absent_is_zero() -> None:
    world = corner()
    seen = world.observe(torch.arange(4) * 36)
    assert world.action_limit == 4
    assert seen.mask.tolist() == [
        [True, True, True, True],
        [True, True, True, False],
        [True, True, True, False],
        [True, True, False, False],
    ]
    assert seen.actions.shape == (4, 4, SEEN + 4)
    assert not seen.actions[:, STOP].any()
    assert not seen.actions[~seen.mask].any()
    there = seen.mask.clone()
    there[:, STOP] = False
    assert seen.actions[there].any(-1).all()


@pytest.mark.parametrize("view", [0, 15, 16, 35])
def test_views_and_candidates_are_seen_from_ones_own_heading(view: int) -> None:
    seen = corner().observe(at(A, view))
    own = VIEW_HEADINGS[view]
    for i in range(36):
        expected = [1, 1 + i, *pointing(VIEW_HEADINGS[i] - own, VIEW_ELEVATIONS[i])]
        assert seen.views[0, i].tolist() == pytest.approx(expected, abs=1e-6)
    ways = [(12, 0.0, 0.0), (15, math.pi / 2, 0.0), (9, 3 * math.pi / 2, -math.pi / 6)]
    for k, (through, heading, elevation) in enumerate(ways, start=1):
        expected = [1, 1 + through, *pointing(heading - own, elevation)]
        assert seen.actions[0, k].tolist() == pytest.approx(expected, abs=1e-6)
    assert seen.facing[0].tolist() == pytest.approx(pointing(own, VIEW_ELEVATIONS[view]), abs=1e-6)


def test_a_candidate_is_seen_in_one_view_but_points_where_it_is() -> None:
    """From b, c lies at 123.69 degrees: in the view at 120, whose direction is not its own."""
    seen = corner().observe(at(B, 12))
    expected = [2, 1 + 16, *pointing(math.atan2(3, -2), 0.0)]
    assert seen.actions[0, 1].tolist() == pytest.approx(expected, abs=1e-6)


def test_who_writes_into_an_observation_changes_nothing() -> None:
    world = corner()
    first = world.observe(at(A, 3))
    kept = [part.clone() for part in first]
    for part in first:
        part.zero_()
    assert all(now.equal(then) for now, then in zip(world.observe(at(A, 3)), kept, strict=True))


def test_rows_say_where_each_viewpoint_is_in_the_table() -> None:
    shuffled = torch.tensor([5, 0, 3, 2])  # the table has a row more than the house has viewpoints
    features = torch.zeros(7, 36, SEEN + 4)
    features[shuffled] = table(4)[:4]
    features[[1, 4]] = -7
    other = NavGraph([house("corner", CORNER, CORNER_EDGES)], features, shuffled)
    states = torch.arange(4 * 36)
    for here, there in zip(corner().observe(states), other.observe(states), strict=True):
        assert here.equal(there)


def test_half_precision_stays_half() -> None:
    world = NavGraph([house("corner", CORNER, CORNER_EDGES)], table(4).half())
    seen = world.observe(at(B, 12))
    assert (seen.views.dtype, seen.actions.dtype) == (torch.float16, torch.float16)
    assert seen.views[0, 13].tolist() == pytest.approx([2, 14, *pointing(math.pi / 6, 0)], abs=1e-3)


def test_a_table_that_does_not_fit_is_refused() -> None:
    for features in (torch.zeros(5, 12, 6), torch.zeros(5, 216)):
        with pytest.raises(ValueError, match="4 viewpoints"):
            NavGraph([house("corner", CORNER, CORNER_EDGES)], features)
    with pytest.raises(ValueError, match="4 viewpoints, 3 rows"):
        NavGraph([house("corner", CORNER, CORNER_EDGES)], table(4), torch.arange(3))


def test_a_batch_stays_on_its_device() -> None:
    """The meta device computes nothing, but refuses tensors of any other device among its own."""
    world = NavGraph([house("corner", CORNER, CORNER_EDGES)], table(4), device="meta")
    tasks = Tasks(["1_0"] * 3, ["go"] * 3, torch.zeros(3, dtype=torch.long), torch.arange(3))
    state = world.reset(tasks)
    action = torch.ones_like(state)
    viewpoint = world.step(state, action) // 36
    made = [viewpoint, *world.observe(state)]
    made += [world.distance(viewpoint, viewpoint), world.towards(viewpoint, viewpoint)]
    assert {value.device.type for value in made} == {"meta"}


def test_the_digest_tells_features_apart() -> None:
    plan = [house("corner", CORNER, CORNER_EDGES)]
    changed = table(4)
    changed[2, 7, 0] += 1
    assert corner().digest == NavGraph(plan, table(4)).digest != NavGraph(plan, changed).digest
    given = NavGraph(plan, changed, digest="given").digest
    assert given == NavGraph(plan, table(4), digest="given").digest
    assert given != NavGraph(plan, changed, digest="other").digest


# Several houses


def test_two_houses_do_not_leak_into_each_other() -> None:
    pair = [(0, 0, 0), (0, 5, 0)]
    both = NavGraph(
        [house("pair", pair, {(0, 1)}), house("corner", CORNER, CORNER_EDGES)], table(6)
    )
    alone = corner()
    assert both.index["pair", "b"] == 1
    assert both.index["corner", "b"] == 3
    assert both.neighbour[:2].lt(2).all()
    assert both.neighbour[2:].ge(2).all()
    assert both.distance(torch.tensor([0, 2]), torch.tensor([1, 3])).tolist() == [5.0, 2.0]

    states = torch.arange(4 * 36)
    ours, theirs = both.observe(states + 2 * 36), alone.observe(states)
    assert ours.mask.equal(theirs.mask)
    assert ours.views[..., 1:].equal(theirs.views[..., 1:])  # column 0 numbers the viewpoints
    assert ours.actions[..., 1:].equal(theirs.actions[..., 1:])
    for action in range(4):
        chosen = torch.full_like(states, action)
        existing = theirs.mask[:, action]
        moved = both.step(states + 2 * 36, chosen) - 2 * 36
        assert moved[existing].equal(alone.step(states, chosen)[existing])


def test_houses_are_found_by_name() -> None:
    world = corner()
    assert world.house("corner") is world.houses[0]
    with pytest.raises(UserError, match="Did you mean 'corner'"):
        world.house("korner")
    with pytest.raises(UserError, match="no split 'train'"):
        world.split("train")


# Distances and ways, against a slow Dijkstra


def dijkstra(plan: House, origin: int) -> list[float]:
    """Metres from `origin` to every viewpoint."""
    metres = [math.inf] * len(plan)
    queue = [(0.0, origin)]
    while queue:
        so_far, here = heapq.heappop(queue)
        if so_far >= metres[here]:
            continue
        metres[here] = so_far
        for there in range(len(plan)):
            if plan.edges[here, there]:
                step = math.dist(plan.positions[here], plan.positions[there])
                heapq.heappush(queue, (so_far + step, there))
    return metres


@st.composite
def plans(draw: st.DrawFn, name: str) -> House:
    """Up to seven viewpoints on a lattice; some edges lead one way only."""
    place = st.tuples(st.integers(-4, 4), st.integers(-4, 4), st.integers(-1, 1))
    positions = draw(st.lists(place, min_size=1, max_size=7, unique=True))
    number = st.integers(0, len(positions) - 1)
    edges = draw(st.sets(st.tuples(number, number).filter(lambda e: e[0] != e[1]), max_size=14))
    return house(name, positions, edges, one_way=draw(st.booleans()))


@settings(max_examples=40, deadline=None)
@given(plans("one"), plans("two"))
def test_distances_are_those_of_dijkstra_and_ways_are_shortest(one: House, two: House) -> None:
    world = NavGraph([one, two], torch.zeros(len(one) + len(two) + 1, 36, 4))
    for plan, first in ((one, 0), (two, len(one))):
        n = len(plan)
        expected = torch.tensor([dijkstra(plan, i) for i in range(n)], dtype=torch.float64)
        every = first + torch.arange(n)
        found = world.distance(every[:, None], every[None])
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)

        state, goal = every.repeat_interleave(n) * 36, every.repeat(n)
        walked = torch.zeros(n * n, dtype=torch.float64)
        for _ in range(n):  # no shortest path has more than n - 1 steps
            action = world.towards(state // 36, goal)
            walked += world.metres[state // 36, action]
            state = world.step(state, action)
        reachable = expected.flatten().isfinite()
        assert (state // 36 == goal).equal(reachable)
        walked_there = walked[reachable]
        torch.testing.assert_close(walked_there, expected.flatten()[reachable], rtol=0, atol=1e-5)


def test_actions_along_a_walk() -> None:
    paths = torch.tensor([[D, A, B, C], [C, A, A, A], [B, B, B, B]])
    actions = corner().actions_along(paths, torch.tensor([4, 2, 1]))
    assert actions.tolist() == [[1, 1, 1, 0], [1, 0, -1, -1], [0, -1, -1, -1]]


def test_actions_along_a_walk_lead_along_it() -> None:
    world = corner()
    path = torch.tensor([[C, B, A, D, A, C]])
    state = path[:, 0] * 36
    for t, action in enumerate(world.actions_along(path, torch.tensor([6]))[0, :-1]):
        state = world.step(state, action[None])
        assert state // 36 == path[0, t + 1]


@pytest.mark.parametrize(
    ("path", "where"),
    [([A, B, D], "row 1: no edge leads on from step 1"), ([A, A, B], "row 1: .* from step 0")],
)
def test_what_is_no_walk_is_refused(path: list[int], where: str) -> None:
    with pytest.raises(ValueError, match=where):
        corner().actions_along(torch.tensor([[A, B, C], path]), torch.tensor([3, 3]))


# Geometry


@pytest.mark.parametrize(
    ("heading", "view"),
    [
        *[(0.0, 12), (0.26, 12), (0.27, 13), (-0.1, 12), (-0.3, 23), (math.pi, 18)],
        *[(2 * math.pi - 0.2, 12), (2 * math.pi - 0.3, 23), (100 * math.pi + 0.6, 13)],
    ],
)
def test_the_start_view_is_the_nearest_level_one(heading: float, view: int) -> None:
    assert start_view(heading) == view


@given(st.floats(-1e6, 1e6))
def test_no_level_view_is_nearer_than_the_start_view(heading: float) -> None:
    nearness = [math.cos(heading - VIEW_HEADINGS[view]) for view in range(12, 24)]
    assert 12 <= start_view(heading) < 24
    assert nearness[start_view(heading) - 12] >= max(nearness) - 1e-8


@pytest.mark.parametrize("seed", range(10))
def test_candidates_come_in_the_order_of_a_slow_sweep(seed: int) -> None:
    """View by view, the nearest to the centre first, whoever was not there before."""
    positions = np.random.default_rng(seed).normal(scale=[3, 3, 1], size=(9, 3))
    offsets = np.full((36, 9), np.inf)
    for view in range(36):
        for i in range(1, 9):
            dx, dy, dz = positions[i] - positions[0]
            aside = math.remainder(math.atan2(dx, dy) - VIEW_HEADINGS[view], 2 * math.pi)
            above = math.atan2(dz, math.hypot(dx, dy)) - VIEW_ELEVATIONS[view]
            if abs(aside) <= math.radians(40):
                offsets[view, i] = math.hypot(aside, above)
    order: list[int] = []
    for view in range(36):
        in_field = [i for i in range(1, 9) if offsets[view, i] < np.inf and i not in order]
        order += sorted(in_field, key=offsets[view].__getitem__)

    found = candidates(positions, 0, np.arange(1, 9))
    assert found.target.tolist() == order
    assert found.view.tolist() == [int(offsets[:, i].argmin()) for i in order]
    assert found.offset.tolist() == pytest.approx([offsets[:, i].min() for i in order])
    assert found.metres.tolist() == pytest.approx(
        [math.dist(positions[0], positions[i]) for i in order]
    )


# Candidates one behind the other


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_choices_are_the_candidates_that_an_observation_shows(dtype: torch.dtype) -> None:
    world = NavGraph(
        [house("pair", [(0, 0, 0), (0, 5, 0)], {(0, 1)}), house("corner", CORNER, CORNER_EDGES)],
        table(6),
    )
    draw = torch.Generator().manual_seed(0)
    state = torch.randint(6 * 36, (40,), generator=draw)
    seen, found = world.observe(state), world.choices(state, dtype)
    wanted = Choices.of(seen.actions.to(dtype), seen.mask)
    count = len(wanted.row)
    for name in ("embedding", "row", "slot"):
        assert torch.equal(getattr(found, name)[:count], getattr(wanted, name)), name
    assert torch.equal(found.first, wanted.first)
    assert torch.equal(found.mask, wanted.mask)
    assert found.embedding.dtype == dtype
    assert len(found.row) == 64 * math.ceil(count / 64)
    assert bool((found.slot[count:] == found.mask.numel()).all())
    value = torch.arange(2 * len(found.row)).view(2, -1).float()
    padded = found.unpacked(value)
    assert torch.equal(padded[:, seen.mask], value[:, :count])
    assert bool((padded[:, ~seen.mask] == 0).all())
    for action in range(world.action_limit):
        has = seen.mask[:, action]
        row = found.first[has] + action
        assert torch.equal(found.embedding[row], seen.actions.to(dtype)[has, action])
