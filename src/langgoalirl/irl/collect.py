"""Batched rollouts that keep what the frozen encoders said on the way."""

from __future__ import annotations

import torch
from torch import Tensor

from langgoalirl.irl.transitions import Episodes
from langgoalirl.models.layers import masked_log_softmax
from langgoalirl.models.policy import Frozen, FrozenEncoder, PolicyHead, last_word
from langgoalirl.rollout import cast
from langgoalirl.worlds.types import NO_ACTION, STOP, World


@torch.no_grad()
def collect(
    world: World,
    encoder: FrozenEncoder,
    head: PolicyHead,
    start: Tensor,
    words: Tensor,
    limit: int,
    generator: torch.Generator,
) -> Episodes:
    """τ′ ~ π(E, G): episodes from the start keys [B] under the instructions [B, N], by sampling."""
    base, key = encoder.base, start.to(world.device)
    goal = base.read(words.to(world.device))
    whole = None if encoder.attention else last_word(*goal)
    going = torch.ones(len(key), dtype=torch.bool, device=world.device)
    memory, steps = None, []
    for _ in range(limit):
        seen = cast(world.observe(key), torch.float32)
        memory = base.state(seen.views, seen.facing, memory or base.state.start(seen.views))
        state = memory[0]
        attended = base.attended_goal(state[:, None], goal)[:, 0] if whole is None else whole
        log_pi = masked_log_softmax(head(Frozen(state, attended), seen.actions), seen.mask)
        action = torch.multinomial(log_pi.exp(), 1, generator=generator)[:, 0]
        action = torch.where(going, action, NO_ACTION)
        steps.append((key, action, state, attended))
        key = torch.where(going, world.step(key, action.clamp_min(STOP)), key)
        going = action > STOP
        if not bool(going.any()):
            break
    keys, actions, states, goals = (
        torch.stack(column, dim=1) for column in zip(*steps, strict=True)
    )
    return Episodes(keys, actions, states, (goals,))
