"""Demonstrations as tensors: batches that follow from (seed, update), and mirrored worlds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from langgoalirl.demonstrations import BatchOrder, DemonstrationSet, mix, observe_along, trace
from langgoalirl.language.vocabulary import PAD, Vocabulary
from langgoalirl.worlds.geometry import HEADINGS, VIEWS
from langgoalirl.worlds.navgraph import DIRECTION, House, NavGraph
from langgoalirl.worlds.types import NO_ACTION, STOP, Demonstrations, Observation, Split, Tasks

torch.set_num_threads(1)

# A house without symmetry: nobody stands between two views, so that no tie is to be broken.
POSITIONS = np.array([[0, 0, 1.5], [2.1, 3, 1.5], [-3.4, 1.2, 2.9], [1.3, -4, 0.2], [2, 7, 1.5]])
EDGES = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 4)]
WALKS = [[0, 1, 4], [4, 1, 2, 0], [3, 0], [2]]
GOALS = [
    "Turn left, then go to the leftmost door.",
    "Right at the lamp and right again; stop on the left.",
    "Go ahead.",
    "Stay here, where the bed is.",
]


def world_at(positions: np.ndarray, features: Tensor) -> NavGraph:
    count = len(positions)
    edges = np.zeros((count, count), dtype=bool)
    for a, b in EDGES:
        edges[a, b] = edges[b, a] = True
    names = [f"v{i}" for i in range(count)]
    house = House("home", names, positions, edges, edges, np.full(count, 1.5))
    table = torch.zeros(count + 1, VIEWS, features.shape[-1] + DIRECTION)
    table[:count, :, :-DIRECTION] = features
    return NavGraph([house], table)


FEATURES = torch.randn(5, VIEWS, 3, generator=torch.Generator().manual_seed(0))
WORLD = world_at(POSITIONS, FEATURES)
VIEW_AT_START = 2  # 60 degrees clockwise, looking down


def demonstrations(world: NavGraph, view: int, repeat: int = 1) -> DemonstrationSet:
    """The walks in a world, starting in that view; `repeat` times."""
    longest = max(map(len, WALKS))
    paths = torch.tensor([walk + [walk[-1]] * (longest - len(walk)) for walk in WALKS])
    actions = world.actions_along(paths, torch.tensor([len(walk) for walk in WALKS]))
    start = paths[:, 0] * VIEWS + view
    route = torch.arange(len(WALKS))
    tasks = Tasks(
        [f"{i}_0" for i in range(len(WALKS) * repeat)],
        GOALS * repeat,
        start.repeat(repeat),
        route.repeat(repeat),
    )
    split = Split("train", tasks, Demonstrations(actions.repeat(repeat, 1)), None)
    return DemonstrationSet(world, split, Vocabulary.build([*GOALS, "rightmost"], 1), 80)


DATA = demonstrations(WORLD, VIEW_AT_START)


def rows(*chosen: int) -> Tensor:
    return torch.tensor(chosen)


# Sets and batches


def test_the_states_lead_along_the_walks() -> None:
    for row, walk in enumerate(WALKS):
        assert (DATA.states[row, : len(walk)] // VIEWS).tolist() == walk
    assert DATA.states[0, 0].item() == 0 * VIEWS + VIEW_AT_START
    steps = zip(DATA.states.T, DATA.states.T[1:], DATA.actions.T, strict=False)
    for before, after, action in steps:
        assert torch.equal(after, WORLD.step(before, action.clamp_min(STOP)))


def test_trace_stays_after_stop() -> None:
    start = torch.tensor([VIEW_AT_START])
    actions = torch.tensor([[1, STOP, NO_ACTION, NO_ACTION]])
    first, second, *later = trace(WORLD, start, actions)[0].tolist()
    assert first == VIEW_AT_START
    assert second // VIEWS == WORLD.neighbour[0, 1]
    assert later == [second, second]


def test_a_batch_is_trimmed_to_its_longest_row() -> None:
    batch = DATA.rows(rows(2, 3))
    assert batch.actions.shape == batch.states.shape == (2, 2)
    assert batch.lengths.tolist() == [2, 1]
    assert batch.actions[1].tolist() == [STOP, NO_ACTION]
    assert (batch.words != PAD).sum(1).max() == batch.words.shape[1]
    assert torch.equal(batch.words, DATA.words[[2, 3], : batch.words.shape[1]])
    assert not bool(batch.mirrored.any())
    assert DATA.rows(rows(1)).lengths.tolist() == [4]


def test_a_split_without_demonstrations_is_refused() -> None:
    tasks = Tasks(["0_0"], ["go"], torch.tensor([0]), torch.tensor([0]))
    with pytest.raises(ValueError, match="'test' has no demonstrations"):
        DemonstrationSet(WORLD, Split("test", tasks, None, None), Vocabulary.build(["go"], 1), 80)


# Order


MANY = demonstrations(WORLD, VIEW_AT_START, repeat=6)  # 24


@pytest.mark.parametrize("batch", [1, 4, 8, 24])
@pytest.mark.parametrize("buckets", [1, 2, 12])
def test_every_demonstration_once_per_epoch(batch: int, buckets: int) -> None:
    order = BatchOrder(MANY, batch, seed=3, mirror=False, buckets=buckets)
    for epoch in range(3):
        updates = range(epoch * 24 // batch, (epoch + 1) * 24 // batch)
        drawn = torch.cat([order(update).rows for update in updates])
        assert sorted(drawn.tolist()) == list(range(24))


def test_nobody_twice_in_an_epoch_when_sizes_do_not_divide() -> None:
    order = BatchOrder(MANY, 7, seed=3, mirror=False)
    for epoch in range(5):
        drawn = torch.cat([order(update).rows for update in range(3 * epoch, 3 * epoch + 3)])
        assert len(set(drawn.tolist())) == 21


def test_more_than_there_is_gives_what_there_is() -> None:
    order = BatchOrder(DATA, 100, seed=3, mirror=False)
    assert sorted(order(0).rows.tolist()) == sorted(order(7).rows.tolist()) == [0, 1, 2, 3]


def drawn(order: BatchOrder, updates: list[int]) -> dict[int, list[tuple[int, bool]]]:
    found = {}
    for update in updates:
        batch = order(update)
        found[update] = list(zip(batch.rows.tolist(), batch.mirrored.tolist(), strict=True))
    return found


def test_a_batch_follows_from_seed_and_update_alone() -> None:
    """Asked in any order, as after a resume; and otherwise for another seed."""
    ahead = drawn(BatchOrder(MANY, 4, seed=3, mirror=True), list(range(18)))
    jumping = drawn(BatchOrder(MANY, 4, seed=3, mirror=True), [17, 2, 9, 3, 16, 0])
    assert all(ahead[update] == found for update, found in jumping.items())
    other = drawn(BatchOrder(MANY, 4, seed=4, mirror=True), list(range(18)))
    assert sum(ahead[update] == other[update] for update in ahead) < 3


def test_epochs_differ_in_who_comes_together() -> None:
    order = BatchOrder(MANY, 4, seed=3, mirror=False)
    groups = [tuple(sorted(order(update).rows.tolist())) for update in range(18)]
    epochs = [set(groups[:6]), set(groups[6:12]), set(groups[12:])]
    assert all(a != b for a, b in itertools.pairwise(epochs))


def test_half_of_the_demonstrations_are_mirrored_when_asked() -> None:
    batches = drawn(BatchOrder(MANY, 24, 0, True), list(range(50)))
    flips = [m for batch in batches.values() for _, m in batch]
    # Five standard deviations of the share of heads among 1200 coins.
    assert sum(flips) / len(flips) == pytest.approx(0.5, abs=5 * 0.5 / 1200**0.5)
    plain = drawn(BatchOrder(MANY, 24, 0, False), list(range(5)))
    assert not any(m for batch in plain.values() for _, m in batch)


def test_batches_hold_sentences_of_similar_length() -> None:
    order = BatchOrder(MANY, 6, seed=0, mirror=False)  # the pool holds all 24
    lengths = (MANY.words != PAD).sum(1)
    spans = [lengths[order(update).rows] for update in range(4)]
    assert [len(set(span.tolist())) for span in spans] == [1] * 4


def test_mix_is_distinct_and_of_one_word() -> None:
    numbers = [-1, 0, 1, 2, 3, 1000, 2**40]
    inputs = [(a,) for a in numbers] + list(itertools.product(numbers, repeat=2))
    inputs += [(seed, update, use) for seed in range(20) for update in range(200) for use in (1, 3)]
    seeds = [mix(*one) for one in inputs]
    assert len(set(seeds)) == len(inputs)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert mix(1, 2) != mix(2, 1)


# Mirrors


def reflected_world() -> NavGraph:
    """The same house in a mirror: x becomes -x, and what a view at heading φ showed is at -φ."""
    view = torch.arange(VIEWS)
    other = view // HEADINGS * HEADINGS + (-view % HEADINGS)
    return world_at(POSITIONS * [-1, 1, 1], FEATURES[:, other])


def by_direction(things: Tensor, mask: Tensor | None = None) -> list[list[float]]:
    """What is seen at one moment, in an order that is the same for both worlds."""
    there = things if mask is None else things[mask]
    return sorted((there * 1000).round().div(1000).add(0.0).tolist())


def test_mirrored_rows_see_the_reflected_world() -> None:
    reflected = demonstrations(reflected_world(), -VIEW_AT_START % HEADINGS)
    every = torch.arange(len(WALKS))
    ours = DATA.rows(every, torch.ones(len(WALKS), dtype=torch.bool))
    theirs = reflected.rows(every)
    seen = observe_along(WORLD, ours, torch.float32)
    wanted = observe_along(reflected_world(), theirs, torch.float32)
    torch.testing.assert_close(seen.facing, wanted.facing)
    for row, length in enumerate(ours.lengths.tolist()):
        for t in range(length):
            assert by_direction(seen.views[row, t]) == by_direction(wanted.views[row, t])
            a, b = ((s.actions[row, t], s.mask[row, t]) for s in (seen, wanted))
            assert by_direction(*a) == by_direction(*b)
            chosen = a[0][ours.actions[row, t]], b[0][theirs.actions[row, t]]
            torch.testing.assert_close(*chosen)


def test_only_mirrored_rows_are_reflected() -> None:
    plain = observe_along(WORLD, DATA.rows(rows(0, 1)), torch.float32)
    half = observe_along(WORLD, DATA.rows(rows(0, 1), torch.tensor([True, False])), torch.float32)
    assert all(torch.equal(a[1], b[1]) for a, b in zip(plain, half, strict=True))
    assert not torch.equal(plain.views[0], half.views[0])
    assert torch.equal(plain.views[0, ..., :-DIRECTION], half.views[0, ..., :-DIRECTION])
    again = observe_along(WORLD, DATA.rows(rows(0, 1)), torch.float32)
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))  # the world is whole


def test_observations_come_in_the_precision_that_is_asked_for() -> None:
    seen: Observation = observe_along(WORLD, DATA.rows(rows(0)), torch.bfloat16)
    kinds = [part.dtype for part in seen]
    assert kinds == [torch.bfloat16, torch.bfloat16, torch.bool, torch.bfloat16]


def test_left_and_right_change_places_in_words() -> None:
    vocabulary = Vocabulary.build([*GOALS, "rightmost"], 1)
    batch = DATA.rows(rows(0, 1, 2), torch.tensor([True, True, False]))
    assert vocabulary.decode(batch.words) == [
        "Turn right, then go to the rightmost door.",
        "Left at the lamp and left again; stop on the right.",
        "Go ahead.",
    ]


def test_twice_mirrored_is_as_before() -> None:
    twice = DATA.mirror_word[DATA.mirror_word]
    assert torch.equal(twice, torch.arange(len(twice)))
    assert not torch.equal(DATA.mirror_word, twice)


def test_a_word_without_its_opposite_stays() -> None:
    tasks = Tasks(["0_0"], ["go left"], torch.tensor([0]), torch.tensor([0]))
    split = Split("train", tasks, Demonstrations(torch.tensor([[STOP]])), None)
    data = DemonstrationSet(WORLD, split, Vocabulary.build(["go left"], 1), 80)
    assert torch.equal(data.rows(rows(0), torch.tensor([True])).words, data.words)
