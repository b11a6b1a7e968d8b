"""The generated houses: fixed by a seed, sound as graphs, true in what they tell, hard enough."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
import torch

from langgoalirl.errors import UserError
from langgoalirl.worlds.geometry import VIEW_HEADINGS, VIEWS
from langgoalirl.worlds.houses import Door, Houses, Plan, Room
from langgoalirl.worlds.houses.appearance import WIDTH
from langgoalirl.worlds.houses.facts import Facts, Guide, turn_word
from langgoalirl.worlds.houses.sight import clear, free_distance, room_at, survey, walls
from langgoalirl.worlds.houses.statistics import new_word_pairs, random_success
from langgoalirl.worlds.houses.telling import tell
from langgoalirl.worlds.houses.vocabulary import ROOMS
from langgoalirl.worlds.houses.voices import VOICES
from langgoalirl.worlds.types import NO_ACTION, STOP, Split, Tasks

SPLITS = ("train", "val_seen", "val_unseen")
Told = tuple[Plan, Facts, list[int], list[str]]


@pytest.fixture(scope="module")
def default() -> Houses:
    return Houses()


@pytest.fixture(scope="module")
def small() -> Houses:
    return Houses(seed=3, houses=5, unseen=2, routes=16)


@pytest.fixture(scope="module")
def default_told(default: Houses) -> list[Told]:
    return told(default)


def told(world: Houses) -> list[Told]:
    """Every route with its facts, worked out again, and what is said of it."""
    rows = []
    for name in SPLITS:
        split = world.split(name)
        assert split.references is not None
        guides: dict[int, Guide] = {}
        for i in range(0, len(split), 3):
            house = int(world.house_of[split.references.paths[i, 0]])
            plan = world.plan(world.houses[house].name)
            if house not in guides:
                guides[house] = Guide(plan, survey(plan))
            length = int(split.references.lengths[i])
            path = (split.references.paths[i, :length] - int(world.first[house])).tolist()
            facing = float(VIEW_HEADINGS[int(split.tasks.start[i]) % VIEWS])
            facts = guides[house].facts(path, facing)
            rows.append((plan, facts, path, split.tasks.goals[i : i + 3]))
    return rows


def two_rooms() -> Plan:
    """A kitchen west and a bedroom east of a wall at x = 4 with a door at y = 2."""
    rooms = [Room("kitchen", 0, 0, 0, 4, 4), Room("bedroom", 0, 4, 0, 8, 4)]
    door = Door((0, 1), 0, 4.0, 2.0, 1, 1.0)
    return Plan("two", rooms, [door], [], np.zeros((0, 3)), np.zeros(0, int), np.zeros(0, int))


# Determinism.


def test_the_same_seed_gives_the_same_bytes(small: Houses) -> None:
    again = Houses(seed=3, houses=5, unseen=2, routes=16)
    assert again.digest == small.digest
    for name in SPLITS:
        one, two = small.split(name), again.split(name)
        assert one.tasks.goals == two.tasks.goals
        assert one.tasks.ids == two.tasks.ids
        assert torch.equal(one.tasks.start, two.tasks.start)
        assert one.references is not None
        assert two.references is not None
        assert torch.equal(one.references.paths, two.references.paths)


def test_another_seed_gives_another_world(small: Houses) -> None:
    other = Houses(seed=4, houses=5, unseen=2, routes=16)
    assert other.split("train").tasks.goals != small.split("train").tasks.goals


def test_a_house_does_not_depend_on_how_many_there_are(small: Houses) -> None:
    fewer = Houses(seed=3, houses=2, unseen=1, routes=16)
    for name in ("house_0001", "unseen_0000"):
        one, two = small.house(name), fewer.house(name)
        assert np.array_equal(one.positions, two.positions)
        assert np.array_equal(one.edges, two.edges)
        a, b = (int(w.first[w.house_index[name]]) for w in (small, fewer))
        views = (w.observe(torch.tensor([i * VIEWS])).views for w, i in ((small, a), (fewer, b)))
        assert torch.equal(*views)
    goals = fewer.split("train").tasks.goals
    assert small.split("train").tasks.goals[: len(goals)] == goals
    goals = fewer.split("val_unseen").tasks.goals
    assert small.split("val_unseen").tasks.goals[: len(goals)] == goals


# Structure.


def test_shape_of_the_default_world(default: Houses) -> None:
    assert len(default.houses) == 60
    assert default.feature_width == WIDTH + 4
    assert default.feature_width % 8 == 0
    assert default.action_limit <= 14
    sizes = [len(house) for house in default.houses]
    assert min(sizes) >= 25
    assert max(sizes) <= 46
    storeys = [max(room.floor for room in plan.rooms) for plan in default.plans.values()]
    assert 0.2 < np.mean(storeys) < 0.7
    kinds = {room.kind for plan in default.plans.values() for room in plan.rooms}
    assert kinds == set(ROOMS)


def test_houses_are_connected_and_edges_are_lines_of_sight(default: Houses) -> None:
    for house in default.houses:
        assert np.isfinite(house.distances).all()
        assert np.array_equal(house.edges, house.edges.T)
        assert np.array_equal(house.visible, house.visible.T)
        assert not (house.edges & ~house.visible).any()
        assert not house.edges.diagonal().any()
        assert house.edges.sum(1).max() <= 13
    names = [name for house in default.houses for name in house.viewpoints]
    assert len(set(names)) == len(names)


def test_demonstrations_walk_the_paths_and_stop_at_the_goal(default: Houses) -> None:
    for name in SPLITS:
        split = default.split(name)
        assert split.references is not None
        assert split.demonstrations is not None
        state = default.reset(split.tasks)
        assert torch.equal(state // VIEWS, split.references.paths[:, 0])
        for action in split.demonstrations.actions.T:
            state = default.step(state, action.clamp_min(STOP))
        assert torch.equal(state // VIEWS, split.references.goals)
        actions = split.demonstrations.actions
        stops = (actions == STOP).sum(1)
        assert (stops == 1).all()
        assert ((actions != NO_ACTION).sum(1) == split.references.lengths).all()


def test_routes_are_shortest_paths_of_four_to_seven_moves(default: Houses) -> None:
    for name in SPLITS:
        references = default.split(name).references
        assert references is not None
        moves = references.lengths - 1
        assert int(moves.min()) >= 4
        assert int(moves.max()) <= 7
        start = references.paths[:, 0]
        shortest = default.distance(start, references.goals)
        assert float(shortest.min()) > 5.0
        steps = default.distance(references.paths[:, :-1], references.paths[:, 1:]).sum(1)
        torch.testing.assert_close(steps, shortest)


def test_splits_share_neither_routes_nor_unseen_houses(default: Houses) -> None:
    paths, houses = {}, {}
    for name in SPLITS:
        references = default.split(name).references
        assert references is not None
        paths[name] = {tuple(path) for path in references.paths[:, [0, -1]].tolist()}
        houses[name] = set(default.house_of[references.goals].tolist())
        assert len(paths[name]) * 3 == len(references.lengths)  # nor twice in one split
    assert not paths["train"] & paths["val_seen"]
    assert houses["train"] == houses["val_seen"]
    assert not houses["train"] & houses["val_unseen"]


def test_three_descriptions_of_every_route(default: Houses) -> None:
    for name in SPLITS:
        tasks = default.split(name).tasks
        for i in range(0, len(tasks), 3):
            path_id = tasks.ids[i].removesuffix("_0")
            assert tasks.ids[i : i + 3] == [f"{path_id}_{k}" for k in range(3)]
            assert path_id.isdigit()
            assert len(set(tasks.route[i : i + 3].tolist())) == 1
            assert len(set(tasks.goals[i : i + 3])) == 3
        assert min(len(goal.split()) for goal in tasks.goals) >= 4
        assert len(set(tasks.ids)) == len(tasks)


def test_features_are_finite_and_nowhere_is_zero(default: Houses) -> None:
    everywhere = torch.arange(0, int(default.first[-1]) * VIEWS, VIEWS)
    seen = default.observe(everywhere)
    assert bool(seen.views.isfinite().all())
    assert float(seen.views[..., :-4].abs().mean()) > 0.1
    assert not seen.actions[:, STOP].any()
    assert not seen.actions[~seen.mask].any()


def test_without_features_the_geometry_stays(small: Houses) -> None:
    bare = Houses(seed=3, houses=5, unseen=2, routes=16, features="none")
    key = small.split("train").tasks.start
    one, two = small.observe(key), bare.observe(key)
    assert not two.views[..., :-4].any()
    assert torch.equal(one.views[..., -4:], two.views[..., -4:])
    assert torch.equal(one.mask, two.mask)


def test_the_smallest_world_has_all_splits() -> None:
    tiny = Houses(seed=1, houses=1, unseen=1, routes=1)
    assert [len(tiny.split(name)) for name in SPLITS] == [3, 3, 3]


def test_asking_for_more_routes_than_there_are_gives_what_there_is() -> None:
    full = Houses(seed=1, houses=1, unseen=1, routes=3000)
    train, seen = len(full.split("train")), len(full.split("val_seen"))
    assert 300 < train < 3 * 45 * 44
    assert seen / train == pytest.approx(1 / 8, abs=0.02)


def test_user_errors_are_one_sentence(small: Houses) -> None:
    with pytest.raises(UserError, match="Did you mean 'val_seen'"):
        small.split("valseen")
    with pytest.raises(UserError, match="Did you mean 'house_0001'"):
        small.plan("house_001")
    with pytest.raises(UserError, match="unseen of at least 1, not 0"):
        Houses(unseen=0)
    with pytest.raises(UserError, match="seed of at least 0, not -1"):
        Houses(seed=-1)
    with pytest.raises(UserError, match="no features 'resnet'"):
        Houses(features="resnet")


# Lines of sight, by hand.


def test_walls_hide_and_doors_show() -> None:
    pieces = walls(two_rooms(), 0)
    at = np.array([[1.0, 2.0], [1.0, 1.0]])
    there = np.array([[7.0, 2.2], [7.0, 3.5], [7.0, 0.2], [3.0, 3.0]])
    assert clear(at, there, pieces).tolist() == [
        [True, False, False, True],  # at x = 4 the lines are at y = 2.1, 2.75, 1.1
        [True, True, False, True],  # 1.6, 2.25, 0.6
    ]


def test_distance_to_walls() -> None:
    far = free_distance(
        np.array([[1.0, 2.0]]), np.array([0, np.pi / 2, np.pi]), walls(two_rooms(), 0)
    )
    np.testing.assert_allclose(far, [[2.0, 7.0, 2.0]])  # eastwards through the door


def test_room_at_a_point() -> None:
    assert room_at(two_rooms(), np.array([[3.9, 1.0], [4.1, 1.0]]), 0).tolist() == [0, 1]


# What is told is true.


def test_turn_words() -> None:
    angles = np.deg2rad([10, -10, 45, -45, 90, -90, 170, -170])
    assert [turn_word(angle) for angle in angles] == [
        "straight", "straight", "slight right", "slight left", "right", "left", "around", "around",
    ]  # fmt: skip


def test_stairs_are_told_as_they_are_climbed(default_told: list[Told]) -> None:
    up = re.compile(r"upstairs|up the stairs|stairs up|ascend|upper floor|floor above|lead you up")
    down = re.compile(r"downstairs|down the stairs|descend|lower floor|floor below|lead you down")
    climbs = 0
    for plan, _, path, goals in default_told:
        rise = plan.positions[path[-1], 2] - plan.positions[path[0], 2]
        for goal in goals:
            text = goal.lower()
            if up.search(text):
                assert rise > 1, goal
                climbs += 1
            if down.search(text):
                assert rise < -1, goal
    assert climbs > 50


def test_rooms_of_the_facts_are_walked_through(small: Houses) -> None:
    for plan, facts, path, _ in told(small):
        entered = [entry for leg in facts.legs for entry in leg.entries]
        for one, two in pairwise(entered):
            assert one.room == two.origin
        assert facts.start == (entered[0].origin if entered else facts.final)
        here = plan.rooms[facts.final]
        x, y, _ = plan.positions[path[-1]]
        assert here.x0 <= x <= here.x1
        assert here.y0 <= y <= here.y1
        for thing in facts.beside:
            assert np.hypot(thing.x - x, thing.y - y) <= 2.3


def test_turning_into_a_counted_door_agrees_with_its_side(default_told: list[Told]) -> None:
    agree = [
        leg.turn == leg.entries[0].side
        for _, facts, _, _ in default_told
        for leg in facts.legs[1:]
        if leg.entries and leg.entries[0].nth and leg.turn in ("left", "right")
    ]
    assert len(agree) > 100
    assert np.mean(agree) > 0.98


def test_every_voice_tells_every_route(small: Houses) -> None:
    rows = told(small)[:12]
    for voice in VOICES:
        for plan, facts, _, _ in rows:
            text = tell(voice, plan, facts, np.random.default_rng(0))
            assert text.endswith(".")
            assert text[0].isupper()
            assert "{" not in text
            assert text == tell(voice, plan, facts, np.random.default_rng(0))
    assert len({voice.name for voice in VOICES}) == len(VOICES) >= 5


# It is no toy.


def test_three_tenths_of_unseen_instructions_hold_a_new_word_pair(default: Houses) -> None:
    assert new_word_pairs(default.split("train"), default.split("val_unseen")) >= 0.30


def test_new_word_pairs_by_hand() -> None:
    def split(*goals: str) -> Split:
        tasks = Tasks([""] * len(goals), list(goals), torch.empty(0), torch.empty(0))
        return Split("", tasks, None, None)

    train = split("Go to the red couch.", "Stop, then wait by the lamp.")
    asked = split("Go to the lamp.", "Stop by the red lamp.", "Wait by the bed.", "The red couch.")
    assert new_word_pairs(train, asked) == 0.25  # "stop by" and "red lamp"; "bed" is unknown


@pytest.mark.parametrize("moves", [None, 5, 6])
def test_chance_rarely_succeeds(default: Houses, moves: int | None) -> None:
    for name in ("val_seen", "val_unseen"):
        assert 0.0 < random_success(default, default.split(name), moves, times=3) < 0.10
