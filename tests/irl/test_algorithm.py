"""Which goals Algorithm 1 samples and relabels, by watching what it hands to the learner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny import EXACT, TinyWorld, encoder, episodes_of, new_learner, padded, words_of
from torch import Tensor

from langgoalirl.irl.algorithm import LangGoalIRL, Strategies
from langgoalirl.irl.collect import Actor, collect
from langgoalirl.irl.learner import Learner
from langgoalirl.irl.relabel import Goals
from langgoalirl.irl.transitions import GIVEN, HINDSIGHT, Episodes, Steps, Transitions
from langgoalirl.run_folder import digest
from langgoalirl.worlds.types import NO_ACTION, STOP

WORLD = TinyWorld([[1, 2], [0, 3], [3], [1]])
HORIZON, HIDDEN, CPU = 3, 16, torch.device("cpu")
EXPERT, SAID = (4, 5), 9  # goals of 𝒟̃; the goal that the generator gives to every trajectory
NONE = Strategies(0, hgr=False, hgs=False, her=False, episodes=50, sampled=20.0, replay=3000)
RATES = replace(EXACT, batch=100)


def demonstrations(learner: Learner) -> tuple[Goals, Transitions]:
    """Two goals: from node 0 to 3 and stop, and from node 1 to 0 and stop."""
    pool, k = Goals(10, 2, CPU), WORLD.action_limit
    table = Transitions(50, HIDDEN, k, 1, CPU, torch.float32)
    for start, goal, actions in ((0, EXPERT[0], (1, 2, STOP)), (1, EXPERT[1], (1, STOP))):
        goals = torch.tensor([goal])
        pool.add(torch.tensor([start]), words_of(goals))
        rows = padded([actions], HORIZON)
        table.add(episodes_of(learner, encoder(WORLD.nodes, HIDDEN), start, rows, goals))
    return pool, table


class Speaker:
    """In place of the goal generator: one sentence for all, or one per round."""

    def __init__(self, next_each_time: bool = False) -> None:
        self.next_each_time, self.heard = next_each_time, list[Episodes]()

    def __call__(self, episodes: Episodes, chance: torch.Generator) -> Tensor:
        goal = SAID + (len(self.heard) if self.next_each_time else 0)
        self.heard.append(episodes)
        return words_of(torch.full((len(episodes.keys),), goal))


class Watched:
    """An algorithm, and everything that its learner was given and its policy was told."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        strategies: Strategies,
        *,
        speaker: Any = None,
        **more: Any,
    ) -> None:
        self.positive: list[Steps] = []
        self.negative: list[Steps] = []
        self.policy: list[Steps] = []
        self.told: list[Tensor] = []
        learner = new_learner(WORLD, HORIZON, HIDDEN, RATES, **more)
        relabel: Any = speaker or Speaker()
        discriminate, improve = learner.update_discriminator, learner.update_policy

        def update_discriminator(positive: Steps, negative: Steps) -> dict[str, Tensor]:
            self.positive.append(positive)
            self.negative.append(negative)
            return discriminate(positive, negative)

        def update_policy(steps: Steps) -> dict[str, Tensor]:
            self.policy.append(steps)
            return improve(steps)

        def watching(world: Any, actor: Any, start: Tensor, words: Tensor, *more: Any) -> Any:
            self.told.append(words[:, 0])
            return collect(world, actor, start, words, *more)

        monkeypatch.setattr(learner, "update_discriminator", update_discriminator)
        monkeypatch.setattr(learner, "update_policy", update_policy)
        monkeypatch.setattr("langgoalirl.irl.algorithm.collect", watching)
        self.irl = LangGoalIRL(
            WORLD,
            encoder(WORLD.nodes, HIDDEN),
            learner,
            relabel,
            strategies,
            RATES,
            0,
            demonstrations(learner),
        )

    def run(self, iterations: int) -> Watched:
        for _ in range(iterations):
            list(self.irl.iterate())
        return self


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Watched]:
    def build(strategies: Strategies, **more: Any) -> Watched:
        return Watched(monkeypatch, strategies, **more)

    return build


def goals(batches: list[Steps]) -> Tensor:
    """The goal of every step: its one-hot's place."""
    every = torch.cat([batch.now.goal for batch in batches])
    assert torch.equal(every.sum(1), torch.ones(len(every)))
    return every.argmax(1)


def share(values: Tensor, *wanted: int) -> float:
    return torch.isin(values, torch.tensor(wanted)).float().mean().item()


# The discriminator's batches (lines 21-26)


def test_without_relabelling_the_positives_are_the_experts(watch: Any) -> None:
    seen = watch(NONE).run(4)
    assert share(goals(seen.positive), *EXPERT) == 1
    every = torch.cat([batch.now.key * 10 + batch.action for batch in seen.positive])
    assert set(every.tolist()) == {1, 12, 30, 11, 0}  # 0 → 1 → 3 stop; 1 → 0 stop


def test_with_hgr_half_of_every_batch_of_positives_is_hindsight(watch: Any) -> None:
    """Trajectories of the policy under the goals that describe them."""
    seen = watch(replace(NONE, hgr=True)).run(4)
    assert len(seen.positive) == 40
    for batch in seen.positive:
        assert len(batch.action) == 100
        assert share(goals([batch])[:50], *EXPERT) == 1
        assert share(goals([batch])[50:], SAID) == 1
    walked = torch.cat([batch.now.key[50:] * 10 + batch.action[50:] for batch in seen.positive])
    assert len(set(walked.tolist())) > 5  # more than experts do


def test_with_hgr_a_relabelled_step_keeps_its_goal_in_the_next_state(watch: Any) -> None:
    seen = watch(replace(NONE, hgr=True)).run(1)
    for batch in seen.positive:
        assert torch.equal(batch.now.goal, batch.then.goal)


@pytest.mark.parametrize("hgr", [False, True])
def test_the_negatives_are_the_policys_under_the_goals_it_was_given(hgr: bool, watch: Any) -> None:
    seen = watch(replace(NONE, hgr=hgr)).run(4)
    assert share(goals(seen.negative), *EXPERT) == 1
    assert {len(batch.action) for batch in seen.negative} == {100}


def test_agiles_positives_are_the_experts_last_states(watch: Any) -> None:
    seen = watch(NONE, agile=True).run(2)
    for batch in seen.positive:
        assert bool(batch.last.all())
        assert set(batch.now.key.tolist()) == {0, 3}
        assert bool((batch.action == STOP).all())
    assert not bool(seen.negative[0].last.all())


# The policy's batches (lines 28-30)


def test_without_her_the_policy_learns_under_the_goals_it_was_given(watch: Any) -> None:
    seen = watch(replace(NONE, hgr=True)).run(4)
    assert share(goals(seen.policy), *EXPERT) == 1


def test_with_her_half_of_every_policy_batch_is_hindsight(watch: Any) -> None:
    seen = watch(replace(NONE, her=True)).run(4)
    for batch in seen.policy:
        assert share(goals([batch])[:50], *EXPERT) == 1
        assert share(goals([batch])[50:], SAID) == 1
    assert share(goals(seen.positive), *EXPERT) == 1
    assert share(goals(seen.negative), *EXPERT) == 1


# What is followed (lines 10-17) and what is remembered (lines 18-20)


def test_goals_come_from_the_demonstrations_and_start_where_they_do(watch: Any) -> None:
    seen = watch(NONE).run(20)
    told = torch.cat(seen.told)
    assert len(told) == 1000
    assert abs(share(told, EXPERT[0]) - 0.5) < 0.07
    assert share(told, *EXPERT) == 1
    every = seen.irl.replay.at(torch.arange(seen.irl.replay.size))
    first = seen.irl.replay.at((every.now.time == 0).nonzero()[:, 0])
    start = {EXPERT[0]: 0, EXPERT[1]: 1}
    assert bool((first.now.key == torch.tensor([start[int(g)] for g in goals([first])])).all())


def test_with_hgs_half_of_the_goals_are_from_the_pool(watch: Any) -> None:
    """But none at first, when there are none."""
    seen = watch(replace(NONE, hgs=True)).run(21)
    assert share(seen.told[0], *EXPERT) == 1
    later = torch.cat(seen.told[1:])
    assert abs(share(later, SAID) - 0.5) < 0.07
    assert share(later, SAID, *EXPERT) == 1


def test_a_goal_from_the_pool_begins_where_its_trajectory_did(watch: Any) -> None:
    speaker = Speaker()
    seen = watch(replace(NONE, hgs=True), speaker=speaker).run(6)
    begun = torch.cat([episodes.keys[:, 0] for episodes in speaker.heard])
    pool = seen.irl.pool
    assert pool.size == 300
    assert torch.equal(pool.start[:300].long(), begun)
    assert bool((pool.words[:300, 0] == SAID).all())


def test_without_hgs_nothing_is_followed_from_the_pool(watch: Any) -> None:
    seen = watch(replace(NONE, hgr=True)).run(5)
    assert share(torch.cat(seen.told), *EXPERT) == 1


def test_all_rounds_are_sampled_from_unless_they_are_limited(watch: Any) -> None:
    """G^2, G^3, …: the speaker says another word each time, so that words tell rounds apart."""
    seen = watch(replace(NONE, hgs=True), speaker=Speaker(next_each_time=True)).run(6)
    admitted = seen.irl.pool.words[: seen.irl.pool.size, 0] - SAID
    assert torch.bincount(admitted).tolist() == [50] * 6


def test_with_two_rounds_only_goals_of_the_first_trajectories_are_admitted(watch: Any) -> None:
    """SS_G2: G^2 are goals of trajectories that were sampled under G^1; theirs are not kept."""
    seen = watch(replace(NONE, hgs=True, rounds=2), speaker=Speaker(next_each_time=True)).run(6)
    admitted = torch.bincount(seen.irl.pool.words[: seen.irl.pool.size, 0] - SAID, minlength=6)
    from_experts = [int(torch.isin(told, torch.tensor(EXPERT)).sum()) for told in seen.told]
    assert admitted.tolist() == from_experts
    assert from_experts[0] == 50
    assert 0 < sum(from_experts[1:]) < 250


def test_the_replay_keeps_both_goals_of_every_step(watch: Any) -> None:
    seen = watch(replace(NONE, hgs=True)).run(3)
    rows = torch.arange(seen.irl.replay.size)
    assert share(goals([seen.irl.replay.at(rows, HINDSIGHT)]), SAID) == 1
    told = goals([seen.irl.replay.at(rows, GIVEN)])
    assert share(told, SAID, *EXPERT) == 1
    assert 0.1 < share(told, SAID) < 0.6


def test_relabelling_needs_somebody_who_relabels() -> None:
    learner = new_learner(WORLD, HORIZON, HIDDEN, RATES)
    settings, tiny = replace(NONE, hgr=True), encoder(WORLD.nodes, HIDDEN)
    with pytest.raises(ValueError, match="without a goal generator"):
        LangGoalIRL(WORLD, tiny, learner, None, settings, RATES, 0, demonstrations(learner))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rounds": 1}, "'rounds' must be 0 or 2"),
        ({"expert_goals": -1}, "'expert_goals' must be at least 0"),
        ({"episodes": 0}, "'episodes' must be at least 1"),
        ({"sampled": 0.0}, "'sampled' must be above 0"),
    ],
)
def test_strategies_that_make_no_sense_are_refused(change: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(NONE, **change)


# How much is done


@pytest.mark.parametrize(("sampled", "updates"), [(20.0, 10), (2.0, 1), (1.0, 0.5), (100.0, 50)])
def test_as_many_steps_are_sampled_per_episode_as_are_asked_for(
    sampled: float, updates: float, watch: Any
) -> None:
    """Algorithm 1: a batch of 100 of each kind per trajectory; never fewer."""
    seen = watch(replace(NONE, sampled=sampled)).run(4)
    assert seen.irl.updates == 4 * updates == len(seen.positive) == len(seen.policy)
    assert seen.irl.episodes == 200
    assert seen.irl.interactions == seen.irl.replay.size


def test_an_iteration_depends_on_seed_and_number_alone(watch: Any) -> None:
    settings = Strategies(0, hgr=True, hgs=True, her=True, episodes=20, sampled=20.0, replay=200)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = watch(settings).run(5)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    again = watch(settings).run(5)
    for one, other in ((first.irl.learner, again.irl.learner),):
        assert digest(one.state_dict()) == digest(other.state_dict())
    assert digest(first.irl.replay.tensors()) == digest(again.irl.replay.tensors())
    third = watch(settings)
    third.irl.seed = 1
    assert digest(third.run(5).irl.replay.tensors()) != digest(first.irl.replay.tensors())


# Rollouts


def test_what_is_collected_is_what_the_world_and_the_encoder_say() -> None:
    learner = new_learner(WORLD, HORIZON, HIDDEN, RATES)
    enc, start = encoder(WORLD.nodes, HIDDEN), torch.tensor([0, 1, 2, 3] * 50)
    words = words_of(torch.tensor([4, 5] * 100))
    actor = Actor(enc, learner.policy, learner.prior)
    done = collect(WORLD, actor, start, words, HORIZON, torch.Generator())
    taken = done.actions != NO_ACTION
    stops = (done.actions == STOP) & taken
    time = torch.arange(done.actions.shape[1]).expand_as(done.actions)
    assert torch.equal(done.keys[:, 0], start)
    assert torch.equal(done.state[taken], enc.state.at(done.keys[taken], time[taken]))
    assert torch.equal(done.goals[0][taken].argmax(-1), words[:, :1].expand_as(time)[taken])
    for t in range(HORIZON - 1):
        on = taken[:, t + 1]
        assert torch.equal(on, done.actions[:, t] > STOP)
        assert torch.equal(done.keys[on, t + 1], WORLD.step(done.keys[on, t], done.actions[on, t]))
    assert bool(WORLD.mask[done.keys[taken], done.actions[taken]].all())
    assert 0 < int(stops.sum()) < 200  # some ran out of time
    assert done.steps == int(taken.sum())
