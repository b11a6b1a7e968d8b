"""Whole batches of episodes at once: a follower acts in a world until it stops or time is up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from langgoalirl.models.layers import masked_log_softmax
from langgoalirl.worlds.types import NO_ACTION, STOP, Observation, Tasks, World

STEP_LIMIT = 10
"""Actions in an episode, *stop* included. The longest annotated path takes seven."""


class Follower(Protocol):
    """Anything that chooses among candidates, given what it saw so far and (perhaps) a goal."""

    def begin(self, words: Tensor) -> Any:
        """Read the instructions [B, N]; what comes back is handed to the first `act`."""
        ...

    def act(self, seen: Observation, memory: Any) -> tuple[Tensor, Any]:
        """Logits [B, K] and what is to be handed to the next `act`."""
        ...


@dataclass(frozen=True)
class Trajectories:
    """What was done: state keys before each action and at the end, and the actions."""

    states: Tensor  # [B, T + 1]; the last state is repeated after the end
    actions: Tensor  # [B, T], then NO_ACTION
    lengths: Tensor  # [B] actions taken, *stop* included

    @property
    def moves(self) -> Tensor:
        """[B] actions that were not *stop*."""
        return (self.actions > STOP).sum(1)


def cast(seen: Observation, dtype: torch.dtype) -> Observation:
    """An observation in the precision that the networks compute in."""
    # By way of float32: from float16 to bfloat16 directly is ten times slower on a CPU.
    views, actions = seen.views.float().to(dtype), seen.actions.float().to(dtype)
    return Observation(views, actions, seen.mask, seen.facing.to(dtype))


@torch.no_grad()
def rollout(
    world: World,
    follower: Follower,
    tasks: Tasks,
    words: Tensor,
    *,
    generator: torch.Generator | None = None,
    limit: int = STEP_LIMIT,
    dtype: torch.dtype = torch.float32,
) -> Trajectories:
    """Let the follower act: greedily, or by sampling when a generator is given."""
    state = world.reset(tasks)
    memory = follower.begin(words.to(world.device))
    going = torch.ones(len(state), dtype=torch.bool, device=world.device)
    states, actions = [state], []
    for _ in range(limit):
        seen = cast(world.observe(state), dtype)
        logits, memory = follower.act(seen, memory)
        log_probability = masked_log_softmax(logits, seen.mask)
        if generator is None:
            action = log_probability.argmax(1)
        else:
            action = torch.multinomial(log_probability.exp(), 1, generator=generator)[:, 0]
        action = torch.where(going, action, NO_ACTION)
        state = torch.where(going, world.step(state, action.clamp_min(STOP)), state)
        going = action > STOP
        states.append(state)
        actions.append(action)
        if not bool(going.any()):
            break
    done = torch.stack(actions, dim=1)
    return Trajectories(torch.stack(states, dim=1), done, (done != NO_ACTION).sum(1))
