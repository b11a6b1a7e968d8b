"""Acting in batches: what followers do is what the world did, and agents that learn nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from langgoalirl.agents import RandomAgent, shortest_paths
from langgoalirl.evaluate import AT_ONCE, follow, follower_scores, validation
from langgoalirl.rollout import STEP_LIMIT, Trajectories, cast, rollout
from langgoalirl.worlds.geometry import VIEWS
from langgoalirl.worlds.houses.world import Houses
from langgoalirl.worlds.types import NO_ACTION, STOP, Observation, Split, Tasks

torch.set_num_threads(1)

WORLD = Houses(seed=0, houses=2, unseen=1, routes=12)
SPLIT = WORLD.split("train")
TASKS = SPLIT.tasks
WORDS = torch.zeros(len(TASKS), 3, dtype=torch.long)


class Scripted:
    """Does at step t what its list says, whatever it sees."""

    def __init__(self, actions: Tensor) -> None:
        self.actions = actions  # [B, T]

    def begin(self, words: Tensor) -> int:
        return 0

    def act(self, seen: Observation, memory: int) -> tuple[Tensor, int]:
        wanted = self.actions[:, memory].clamp_min(STOP)
        return 5.0 * torch.nn.functional.one_hot(wanted, seen.mask.shape[1]), memory + 1


class Restless(RandomAgent):
    """As random, but never stops."""

    def act(self, seen: Observation, memory: None) -> tuple[Tensor, None]:
        logits, _ = super().act(seen, memory)
        logits[:, STOP] = -1e9
        return logits, None


def check(done: Trajectories, tasks: Tasks) -> None:
    """What holds of all trajectories: the world's own steps, and silence after the end."""
    assert torch.equal(done.states[:, 0], tasks.start)
    t = torch.arange(done.actions.shape[1])
    taken = t < done.lengths[:, None]
    assert torch.equal(done.actions == NO_ACTION, ~taken)
    for step in t:
        before, action = done.states[:, step], done.actions[:, step]
        after = WORLD.step(before, action.clamp_min(STOP))
        assert torch.equal(done.states[:, step + 1], after)
        there = WORLD.mask[before // VIEWS].gather(1, action.clamp_min(STOP)[:, None])
        assert bool(there.all())
    last = done.actions.gather(1, done.lengths[:, None] - 1)[:, 0]
    stops = done.actions == STOP
    assert torch.equal(stops.sum(1), (last == STOP).long())  # *stop* is the last, if it is there
    assert torch.equal(done.moves, done.lengths - stops.sum(1))


def draw(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_random_walk_is_the_worlds() -> None:
    done = rollout(WORLD, RandomAgent(), TASKS, WORDS, generator=draw(0))
    check(done, TASKS)
    assert len(set(done.lengths.tolist())) > 3


def test_following_the_demonstrations_walks_the_annotated_paths() -> None:
    assert SPLIT.demonstrations is not None
    assert SPLIT.references is not None
    actions = SPLIT.demonstrations.actions
    done = rollout(WORLD, Scripted(actions), TASKS, WORDS, generator=None)
    check(done, TASKS)
    assert torch.equal(done.actions, actions)
    assert torch.equal(done.lengths, SPLIT.references.lengths)  # a path's viewpoints, one is stop
    assert torch.equal(done.states[:, :-1] // VIEWS, SPLIT.references.paths)


@pytest.mark.parametrize("limit", [1, 3, STEP_LIMIT])
def test_time_runs_out(limit: int) -> None:
    done = rollout(WORLD, Restless(), TASKS, WORDS, generator=draw(1), limit=limit)
    check(done, TASKS)
    assert done.actions.shape == (len(TASKS), limit)
    assert done.states.shape == (len(TASKS), limit + 1)
    assert done.lengths.tolist() == done.moves.tolist() == [limit] * len(TASKS)


def test_when_all_have_stopped_nothing_more_is_asked() -> None:
    """A scripted follower with one column would fail at the second step."""
    done = rollout(WORLD, Scripted(torch.zeros(len(TASKS), 1, dtype=torch.long)), TASKS, WORDS)
    assert done.actions.tolist() == [[STOP]] * len(TASKS)
    assert torch.equal(done.states, TASKS.start[:, None].expand(-1, 2))


def test_greedy_takes_the_likeliest_that_exists() -> None:
    """Candidates that are absent are never taken, whatever their logits."""

    class Last:
        def begin(self, words: Tensor) -> None: ...

        def act(self, seen: Observation, memory: None) -> tuple[Tensor, None]:
            return torch.arange(float(seen.mask.shape[1])).expand_as(seen.mask), None

    done = rollout(WORLD, Last(), TASKS, WORDS, limit=2)
    for t in range(2):
        assert torch.equal(done.actions[:, t], WORLD.mask[done.states[:, t] // VIEWS].sum(1) - 1)


def test_sampling_repeats_with_its_generator() -> None:
    first, again, other = (
        rollout(WORLD, Restless(), TASKS, WORDS, generator=draw(seed)) for seed in (2, 2, 3)
    )
    assert torch.equal(first.actions, again.actions)
    assert torch.equal(first.states, again.states)
    assert not torch.equal(first.actions, other.actions)


def test_the_random_agent_takes_every_candidate_alike() -> None:
    one = TASKS.rows(torch.zeros(8000, dtype=torch.long))
    words = torch.zeros(8000, 1, dtype=torch.long)
    done = rollout(WORLD, RandomAgent(), one, words, generator=draw(4), limit=1)
    count = int(WORLD.mask[one.start[0] // VIEWS].sum())
    share = torch.bincount(done.actions[:, 0], minlength=count) / 8000
    torch.testing.assert_close(share, torch.full((count,), 1 / count), rtol=0, atol=0.028)


def test_the_follower_sees_the_precision_that_is_asked_for() -> None:
    kinds = set()

    class Looking(RandomAgent):
        def act(self, seen: Observation, memory: None) -> tuple[Tensor, None]:
            kinds.update({seen.views.dtype, seen.actions.dtype, seen.facing.dtype})
            return super().act(seen, memory)

    rollout(WORLD, Looking(), TASKS, WORDS, limit=1, dtype=torch.bfloat16)
    assert kinds == {torch.bfloat16}
    assert cast(WORLD.observe(TASKS.start), torch.float64).views.dtype == torch.float64


def test_shortest_paths_reach_the_goal_by_the_least_way() -> None:
    for name in ("train", "val_seen", "val_unseen"):
        split = WORLD.split(name)
        assert split.references is not None
        paths, lengths = shortest_paths(WORLD, split.tasks.start, split.references)
        assert torch.equal(paths[:, 0], split.tasks.start // VIEWS)
        assert torch.equal(paths[:, -1], split.references.goals)
        assert lengths.tolist() == [paths.shape[1]] * len(paths)
        moved = paths[:, :-1] != paths[:, 1:]
        joined = (WORLD.neighbour[paths[:, :-1]] == paths[:, 1:, None]).any(-1)
        assert bool((joined | ~moved).all())
        walked = WORLD.distance(paths[:, :-1], paths[:, 1:]).sum(1)
        torch.testing.assert_close(walked, WORLD.distance(paths[:, 0], paths[:, -1]))


# Splits, some hundred episodes at a time


def test_parts_of_different_lengths_are_joined() -> None:
    """Early stoppers in one part, late ones in the next; padded to the limit."""
    count = AT_ONCE + 7
    tasks = TASKS.rows(torch.arange(count) % len(TASKS))
    words = torch.zeros(count, 1, dtype=torch.long)

    class Late(RandomAgent):
        """Stops at once in a full part, never in the rest."""

        def act(self, seen: Observation, memory: None) -> tuple[Tensor, None]:
            logits, _ = super().act(seen, memory)
            logits[:, STOP] = 1.0 if len(logits) == AT_ONCE else -1.0
            return logits, None

    done = follow(WORLD, Late(), tasks, words)
    check(done, tasks)
    assert done.actions.shape == (count, STEP_LIMIT)
    assert done.states.shape == (count, STEP_LIMIT + 1)
    assert done.lengths.tolist() == [1] * AT_ONCE + [STEP_LIMIT] * 7


def test_the_expert_scores_full_marks() -> None:
    assert SPLIT.demonstrations is not None
    expert = Scripted(SPLIT.demonstrations.actions)
    scores = follower_scores(WORLD, expert, SPLIT, WORDS)
    for metric in ("sr", "osr", "spl", "ndtw", "sdtw", "cls"):
        torch.testing.assert_close(scores[metric], torch.ones(len(SPLIT)).double())
    seen = validation(WORLD, SPLIT, WORDS, torch.float32)(expert)
    assert seen == {"sr": 1.0, "spl": pytest.approx(1.0), "ne": 0.0}


def test_a_split_without_goals_cannot_be_scored() -> None:
    with pytest.raises(ValueError, match="'test' has no goals"):
        follower_scores(WORLD, RandomAgent(), Split("test", TASKS, None, None), WORDS)
