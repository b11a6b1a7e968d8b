"""The table of steps: what is taken out is what was put in, whatever was overwritten since."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from langgoalirl.irl.transitions import GIVEN, HINDSIGHT, Episodes, Transitions, join
from langgoalirl.worlds.types import NO_ACTION, STOP

torch.set_num_threads(1)

CPU, HIDDEN, ACTIONS, LIMIT = torch.device("cpu"), 3, 2, 4


def marked(numbers: list[int], lengths: list[int], stops: list[bool]) -> Episodes:
    """Episodes whose every entry tells its number and its time: key 10 · number + time."""
    time = torch.arange(max(lengths))
    keys = 10 * torch.tensor(numbers)[:, None] + time
    actions = torch.ones_like(keys)
    for row, (length, stop) in enumerate(zip(lengths, stops, strict=True)):
        actions[row, length:] = NO_ACTION
        if stop:
            actions[row, length - 1] = STOP
    state = keys[..., None].expand(-1, -1, HIDDEN).float()
    priors = tuple(state[..., :ACTIONS] + x for x in (0.125, 0.75))
    return Episodes(keys, actions, state, (state + 0.25, state + 0.5), priors)


def table(capacity: int, dtype: torch.dtype = torch.float32) -> Transitions:
    return Transitions(capacity, HIDDEN, ACTIONS, 2, CPU, dtype)


def test_steps_come_out_as_they_went_in() -> None:
    steps = table(9)
    steps.add(marked([1, 2, 3], [3, 1, 4], [True, True, False]))
    out = steps.at(torch.arange(8))
    assert steps.size == 8
    assert out.now.key.tolist() == [10, 11, 12, 20, 30, 31, 32, 33]
    assert out.now.time.tolist() == [0, 1, 2, 0, 0, 1, 2, 3]
    assert out.action.tolist() == [1, 1, STOP, STOP, 1, 1, 1, 1]
    assert out.last.tolist() == [False, False, True, True, False, False, False, True]
    on = ~out.last
    assert torch.equal(out.then.key[on], out.now.key[on] + 1)
    assert torch.equal(out.then.time[on], out.now.time[on] + 1)
    assert torch.equal(out.then.state[on], out.now.state[on] + 1)
    assert torch.equal(out.then.goal[on], out.now.goal[on] + 1)


@pytest.mark.parametrize(("goal", "mark", "prior"), [(GIVEN, 0.25, 0.125), (HINDSIGHT, 0.5, 0.75)])
def test_both_states_of_a_step_are_under_the_goal_that_is_asked_for(
    goal: int, mark: float, prior: float
) -> None:
    steps = table(9)
    steps.add(marked([1, 2], [3, 2], [True, False]))
    out = steps.at(torch.arange(5), goal)
    for side in (out.now, out.then):
        assert torch.equal(side.goal, side.state + mark)
        assert torch.equal(side.prior, side.state[:, :ACTIONS] + prior)


@given(
    st.integers(2 * LIMIT, 4 * LIMIT),
    st.lists(
        st.lists(st.tuples(st.integers(1, LIMIT), st.booleans()), min_size=1, max_size=2),
        min_size=1,
        max_size=12,
    ),
)
def test_an_episode_that_is_partly_overwritten_never_yields_a_wrong_next_state(
    capacity: int, batches: list[list[tuple[int, bool]]]
) -> None:
    """Against a plain list of all steps, of which the table holds the last `capacity`."""
    steps, every, number = table(capacity), [], 0
    for batch in batches:
        numbers = list(range(number, number + len(batch)))
        number += len(batch)
        steps.add(marked(numbers, [length for length, _ in batch], [stop for _, stop in batch]))
        for n, (length, _) in zip(numbers, batch, strict=True):
            every += [(10 * n + t, t, t == length - 1) for t in range(length)]
        held = every[-capacity:]
        assert steps.size == len(held)
        out = steps.at(torch.arange(steps.size))
        found = list(
            zip(out.now.key.tolist(), out.now.time.tolist(), out.last.tolist(), strict=True)
        )
        assert sorted(found) == sorted(held)
        on = ~out.last
        for column in ("key", "time", "state", "goal"):
            assert torch.equal(getattr(out.then, column)[on], getattr(out.now, column)[on] + 1)


def test_more_than_the_table_holds_is_refused() -> None:
    with pytest.raises(ValueError, match="5 steps do not fit in a table of 4"):
        table(4).add(marked([1, 2], [3, 2], [True, True]))


def test_a_sample_is_uniform_and_repeats_with_its_generator() -> None:
    steps = table(20)
    steps.add(marked([1, 2], [4, 1], [True, True]))
    draw = torch.Generator().manual_seed(0)
    keys = steps.sample(10_000, draw).now.key
    counts = torch.stack([(keys == key).sum() for key in (10, 11, 12, 13, 20)])
    assert counts.sum() == 10_000
    assert bool(((counts - 2000).abs() < 160).all())  # four standard deviations
    again = steps.sample(10_000, draw.manual_seed(0)).now.key
    assert torch.equal(keys, again)
    assert not torch.equal(keys, steps.sample(10_000, draw).now.key)


def test_it_comes_back_from_a_checkpoint_in_the_middle_of_a_round() -> None:
    first, other = table(7), table(7)
    first.add(marked([1, 2], [3, 2], [True, True]))
    first.add(marked([3, 4], [3, 1], [True, True]))
    kept = {name: column.clone() for name, column in first.tensors().items()}
    other.restore(kept, first.head)
    for one in (first, other):
        one.add(marked([5], [4], [False]))
    assert (first.size, first.head) == (other.size, other.head)
    for name, column in first.columns.items():
        assert torch.equal(column, other.columns[name]), name


def test_a_million_steps_under_two_goals_fit_in_four_gigabytes() -> None:
    """With the paper's 512 units."""
    steps = Transitions(1_000_000, 512, 14, 2, torch.device("meta"))
    each = sum(column[0].numel() * column.element_size() for column in steps.columns.values())
    assert 1_000_000 * each < 4 * 2**30


def test_joined_batches_keep_their_order() -> None:
    steps = table(9)
    steps.add(marked([1, 2], [3, 2], [True, False]))
    rows: list[Tensor] = [torch.tensor([4, 0]), torch.tensor([2])]
    both = join([steps.at(rows[0], GIVEN), steps.at(rows[1], HINDSIGHT)])
    assert both.now.key.tolist() == [21, 10, 12]
    assert both.then.key.tolist() == [21, 11, 12]
    assert both.last.tolist() == [True, False, True]
    assert both.action.tolist() == [1, 1, STOP]
    assert (both.now.goal - both.now.state)[:, 0].tolist() == [0.25, 0.25, 0.5]
    assert join([both]) is both
