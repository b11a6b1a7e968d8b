"""A policy of the adversarial loop in the world: alone, and in batches that keep what they saw."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from langgoalirl.irl.networks import ActionValue, Prior, policy_logits
from langgoalirl.irl.transitions import Episodes, Situation
from langgoalirl.models.base_model import Recurrent
from langgoalirl.models.layers import masked_log_softmax
from langgoalirl.models.policy import FrozenEncoder, PolicyHead, last_word
from langgoalirl.rollout import cast
from langgoalirl.worlds.types import NO_ACTION, STOP, Choices, Observation, World


class OnTheWay(NamedTuple):
    """What an episode carries from step to step."""

    goal: tuple[Tensor, Tensor]  # the instruction, encoded
    memory: Recurrent | None
    time: int
    at: Situation | None  # where the last action was chosen; its key is not known here


class Actor(nn.Module):
    """A follower out of the frozen encoders, a policy of either form, and where that started."""

    def __init__(self, encoder: FrozenEncoder, net: PolicyHead | ActionValue, prior: Prior) -> None:
        super().__init__()
        self.encoder, self.net, self.prior = encoder, net, prior

    def begin(self, words: Tensor) -> OnTheWay:
        """Encode the instructions."""
        return OnTheWay(self.encoder.read(words), None, 0, None)

    def act(self, seen: Observation, way: OnTheWay) -> tuple[Tensor, OnTheWay]:
        """Logits [B, K] for one step."""
        base, (words, memory, step, _) = self.encoder.base, way
        memory = base.state(seen.views, seen.facing, memory or base.state.start(seen.views))
        state = memory[0]
        if self.encoder.attention:
            goal = base.attended_goal(state[:, None], words)[:, 0]
        else:
            goal = last_word(*words)
        time = torch.full((len(state),), step, device=state.device)
        choices = Choices.of(seen.actions, seen.mask)
        encoded = torch.cat([state, goal], dim=-1)
        at = Situation(torch.zeros_like(time), time, encoded, self.prior(encoded, choices))
        return policy_logits(self.net, at, choices), OnTheWay(words, memory, step + 1, at)


@torch.no_grad()
def collect(
    world: World,
    actor: Actor,
    start: Tensor,
    words: Tensor,
    limit: int,
    generator: torch.Generator,
) -> Episodes:
    """τ′ ~ π(E, G): episodes from the start keys [B] under the instructions [B, N], by sampling."""
    key = start.to(world.device)
    way = actor.begin(words.to(world.device))
    going = torch.ones(len(key), dtype=torch.bool, device=world.device)
    steps = []
    for _ in range(limit):
        seen = cast(world.observe(key), torch.float32)
        logits, way = actor.act(seen, way)
        log_pi = masked_log_softmax(logits, seen.mask)
        action = torch.multinomial(log_pi.exp(), 1, generator=generator)[:, 0]
        action = torch.where(going, action, NO_ACTION)
        assert way.at is not None
        steps.append((key, action, way.at.state, way.at.goal, way.at.prior))
        key = torch.where(going, world.step(key, action.clamp_min(STOP)), key)
        going = action > STOP
        if not bool(going.any()):
            break
    keys, actions, states, goals, priors = (
        torch.stack(column, dim=1) for column in zip(*steps, strict=True)
    )
    return Episodes(keys, actions, states, (goals,), (priors,))
