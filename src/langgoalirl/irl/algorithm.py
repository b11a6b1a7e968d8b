"""Algorithm 1 of the paper, with every switch that its tables turn. One page.

Lines of the paper's listing are named in the comments. What an iteration does depends on its
number and the seed alone, so a run that was cut off goes on from its last checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from langgoalirl.config import option
from langgoalirl.demonstrations import DemonstrationSet, mix, observe_along
from langgoalirl.irl.collect import Actor, collect
from langgoalirl.irl.learner import Learner, Rates
from langgoalirl.irl.recorded import Recorded
from langgoalirl.irl.relabel import Goals, Relabeller
from langgoalirl.irl.transitions import GIVEN, HINDSIGHT, Episodes, Steps, Transitions, join
from langgoalirl.models.policy import FrozenEncoder
from langgoalirl.worlds.types import NO_ACTION, World

AT_ONCE = 200  # demonstrations that are encoded together


@dataclass(frozen=True)
class Strategies:
    """Which goals are relabelled and sampled, and how often the networks are updated."""

    expert_goals: int = option(2, "EGR: goals generated for each demonstration (N)")
    hgr: bool = option(True, "hindsight goal relabelling for the discriminator")
    hgs: bool = option(True, "hindsight goal sampling for the policy")
    her: bool = option(False, "hindsight experience replay for the policy")
    rounds: int = option(0, "HGS admits goals of this round G^v at most; 2 is SS_G2, 0 all")
    episodes: int = option(100, "episodes at a time")
    sampled: float = option(
        100.0, "steps in a batch of each kind per episode (Algorithm 1: 100); never fewer"
    )
    replay: int = option(1_000_000, "steps that the replay buffer holds")

    def __post_init__(self) -> None:
        if self.rounds not in (0, 2):
            raise ValueError("'rounds' must be 0 or 2")
        for name, least in (("expert_goals", 0), ("episodes", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"'{name}' must be at least {least}")
        if self.sampled <= 0:
            raise ValueError("'sampled' must be above 0")

    @property
    def relabels(self) -> bool:
        """Whether trajectories need a goal in hindsight at all."""
        return self.hgr or self.hgs or self.her


class LangGoalIRL:
    """Everything that Algorithm 1 keeps between two of its iterations."""

    def __init__(
        self,
        world: World,
        encoder: FrozenEncoder,
        learner: Learner,
        relabel: Relabeller | None,
        strategies: Strategies,
        rates: Rates,
        seed: int,
        demonstrations: tuple[Goals, Transitions],
    ) -> None:
        if strategies.relabels and relabel is None:
            raise ValueError("trajectories cannot be relabelled without a goal generator")
        self.world, self.encoder, self.learner = world, encoder, learner
        self.actor = Actor(encoder, learner.policy, learner.prior)
        self.update = Recorded(learner) if world.device.type == "cuda" else learner.update
        self.relabel, self.strategies, self.rates, self.seed = relabel, strategies, rates, seed
        self.expert_goals, self.expert_steps = demonstrations  # 𝒟̃
        last = self.expert_steps.columns["last"][: self.expert_steps.size]
        self.final_rows = last.nonzero()[:, 0] if learner.agile else None
        words = self.expert_goals.words.shape[1]
        hidden, goals = self.expert_steps.hidden, 2 if strategies.relabels else 1
        self.replay = Transitions(  # ℛ
            strategies.replay, hidden, world.action_limit, goals, world.device, learner.dtype
        )
        self.pool = Goals(max(1, strategies.replay // 6), words, world.device)  # 𝒢
        self.iteration = self.interactions = self.episodes = self.updates = 0
        self.chance = torch.Generator(world.device)

    def iterate(self) -> Iterator[dict[str, Tensor]]:
        """One round of the while loop for a batch of episodes; yields what each update measured."""
        learner, s = self.learner, self.strategies
        self.chance.manual_seed(mix(self.seed, self.iteration, 20))
        learner.generator.manual_seed(mix(self.seed, self.iteration, 21))

        start, words, first_round = self._goals()  # lines 11-16
        episodes = collect(  # line 17: τ′ ~ π(E, G)
            self.world, self.actor, start, words, learner.horizon, self.chance
        )
        if self.relabel is not None and s.relabels:
            relabelled = self.relabel(episodes, self.chance)  # line 18: G′ ~ GoalGenerator(τ′)
            hindsight = self.encoder.goal(episodes.state, relabelled)
            prior = learner.log_prior(episodes.keys, episodes.state, hindsight)
            episodes = episodes._replace(
                goals=(*episodes.goals, hindsight), priors=(*episodes.priors, prior)
            )
            admitted = first_round if s.rounds == 2 else torch.ones_like(first_round)
            self.pool.add(start[admitted], relabelled[admitted])  # line 20
        self.replay.add(episodes)  # line 19
        self.iteration += 1
        self.episodes += len(start)
        self.interactions += episodes.steps

        # As many sampled steps per episode as the paper has, in batches of a size that suits.
        while self.updates * self.rates.batch < self.episodes * s.sampled:
            batches = self._positive(), self._replayed(False), self._replayed(s.her)
            self.updates += 1
            yield self.update(*batches)  # lines 27-30

    def _goals(self) -> tuple[Tensor, Tensor, Tensor]:
        """Where to start, what to do, and whether that came from 𝒟̃; with HGS, half from 𝒢."""
        count = self.strategies.episodes
        start, words = self.expert_goals.sample(count, self.chance)
        first_round = torch.ones(count, dtype=torch.bool, device=start.device)
        if self.strategies.hgs and self.pool.size > 0:
            pooled = torch.rand(count, generator=self.chance, device=start.device) < 0.5
            other_start, other_words = self.pool.sample(count, self.chance)
            start = torch.where(pooled, other_start, start)
            words = torch.where(pooled[:, None], other_words, words)
            first_round = ~pooled
        return start, words, first_round

    def _positive(self) -> Steps:
        """P+ (lines 21-25): from 𝒟̃; with HGR, half of it from ℛ under the relabelled goals."""
        b, s = self.rates.batch, self.strategies
        if self.final_rows is not None:  # AGILE: the experts' last states
            rows, device = self.final_rows, self.world.device
            pick = torch.randint(len(rows), (b,), generator=self.chance, device=device)
            return self.expert_steps.at(rows[pick])
        if not s.hgr:
            return self.expert_steps.sample(b, self.chance)
        expert = self.expert_steps.sample(b - b // 2, self.chance)
        return join([expert, self.replay.sample(b // 2, self.chance, HINDSIGHT)])

    def _replayed(self, hindsight: bool) -> Steps:
        """P- or Q (lines 26, 28): from ℛ; with HER, half of it under the relabelled goals."""
        b = self.rates.batch
        if not hindsight:
            return self.replay.sample(b, self.chance, GIVEN)
        given = self.replay.sample(b - b // 2, self.chance, GIVEN)
        return join([given, self.replay.sample(b // 2, self.chance, HINDSIGHT)])


@torch.no_grad()
def relabel_experts(
    data: DemonstrationSet, encoder: FrozenEncoder, relabel: Relabeller, goals: int, seed: int
) -> Tensor:
    """EGR (lines 2-7): words [n, goals, N] of goals generated for each demonstration."""
    device = relabel.world.device
    chance = torch.Generator(device)
    said = []
    for part, rows in enumerate(torch.arange(len(data)).split(AT_ONCE)):
        chance.manual_seed(mix(seed, part, 22))
        batch = data.rows(rows)
        seen = observe_along(relabel.world, batch, torch.float32)
        state = encoder.base.state.sequence(seen.views, seen.facing)
        episodes = Episodes(batch.states.to(device), batch.actions.to(device), state, (), ())
        said.append(torch.stack([relabel(episodes, chance) for _ in range(goals)], dim=1))
    return torch.cat(said)


@torch.no_grad()
def expert_table(
    learner: Learner, encoder: FrozenEncoder, data: DemonstrationSet, generated: Tensor
) -> tuple[Goals, Transitions]:
    """𝒟̃ (line 7): what to follow and the steps to imitate, each demonstration under its own goal
    and under those of `generated` [n, goals, N]."""
    world, times = learner.world, 1 + generated.shape[1]
    device = world.device
    steps = int((data.actions != NO_ACTION).sum()) * times
    pool = Goals(len(data) * times, max(data.words.shape[1], generated.shape[2]), device)
    table = Transitions(
        steps, encoder.base.state.hidden, world.action_limit, 1, device, learner.dtype
    )
    for rows in torch.arange(len(data)).split(AT_ONCE):
        batch = data.rows(rows)
        seen = observe_along(world, batch, torch.float32)
        state = encoder.base.state.sequence(seen.views, seen.facing)
        keys, actions = batch.states.to(device), batch.actions.to(device)
        for words in (batch.words, *generated[rows].unbind(1)):
            words = words.to(device)
            pool.add(keys[:, 0], words)
            goal = encoder.goal(state, words)
            prior = learner.log_prior(keys, state, goal)
            table.add(Episodes(keys, actions, state, (goal,), (prior,)))
    return pool, table
