"""The policy on the frozen state: π = Softmax(e^a · MLP([h^s; g])), and what freezes with it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from langgoalirl.language.vocabulary import PAD
from langgoalirl.models.base_model import BaseModel, FeatureMask, Recurrent, StateEncoder
from langgoalirl.models.layers import MLP, Dropout
from langgoalirl.models.sizes import Sizes
from langgoalirl.worlds.types import Observation


class Frozen(NamedTuple):
    """What the frozen base model says of a state under a goal."""

    state: Tensor  # h^s, [..., hidden]
    goal: Tensor  # g, [..., hidden]


class FrozenEncoder(nn.Module):
    """The trained base model's encoders, never updated again.

    With `attention`, g is attended from the instruction by the state; without it (LC-RL), g is
    the instruction's last word state, whatever the agent sees.
    """

    def __init__(self, base: BaseModel, attention: bool = True) -> None:
        super().__init__()
        self.base = base.eval().requires_grad_(False)
        self.attention = attention

    def train(self, mode: bool = True) -> FrozenEncoder:
        """Frozen for good: dropout stays off."""
        return super().train(False)

    def read(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """The instructions, encoded as far as the longest of them goes."""
        longest = int((words != PAD).sum(1).max())
        return self.base.read(words[:, :longest])

    @torch.no_grad()
    def goal(self, state: Tensor, words: Tensor) -> Tensor:
        """g [B, T, hidden] for the states [B, T, hidden] of episodes under their instructions."""
        encoded = self.read(words)
        if self.attention:
            return self.base.attended_goal(state, encoded)
        return last_word(*encoded)[:, None].expand_as(state)

    @torch.no_grad()
    def along(self, words: Tensor, seen: Observation) -> Frozen:
        """h^s and g along whole trajectories [B, T, …]."""
        state = self.base.state.sequence(seen.views, seen.facing)
        return Frozen(state, self.goal(state, words))


def last_word(encoded: Tensor, is_word: Tensor) -> Tensor:
    """The LSTM's state after the last word: one vector for the whole instruction."""
    last = is_word.sum(1) - 1
    return encoded[torch.arange(len(encoded), device=encoded.device), last]


class PolicyHead(nn.Module):
    """e^a · MLP([h^s; g]): a score for every candidate, 0 for *stop*."""

    def __init__(self, feature_width: int, sizes: Sizes) -> None:
        super().__init__()
        wide = 2 * sizes.hidden
        self.mlp = MLP(wide, sizes.hidden, feature_width, sizes.layers, sizes.dropout)
        self.mask = FeatureMask(feature_width, sizes.feature_dropout)
        self.drop = Dropout(sizes.dropout)

    @property
    def dtype(self) -> torch.dtype:
        """The precision that it computes in."""
        return next(self.parameters()).dtype

    def wanted(self, joined: Tensor) -> Tensor:
        """MLP([h^s; g]), [..., D]: what the best action would look like."""
        wanted = self.mlp(self.drop(joined))
        if self.training:
            mask = self.mask(wanted)  # one for all steps of a trajectory
            wanted = wanted * mask.view(len(mask), *[1] * (wanted.ndim - 2), -1)
        return wanted

    def forward(self, frozen: Frozen, actions: Tensor) -> Tensor:
        """Logits [..., K] from h^s, g [..., hidden] and candidates [..., K, D]."""
        wanted = self.wanted(torch.cat(frozen, dim=-1))
        return (actions @ wanted.unsqueeze(-1)).squeeze(-1)


class Policy(nn.Module):
    """A follower on the frozen state: behaviour cloning's model, and later the actor."""

    def __init__(self, encoder: FrozenEncoder, head: PolicyHead) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def begin(self, words: Tensor) -> tuple[tuple[Tensor, Tensor], Recurrent | None]:
        """Encode the instructions."""
        return self.encoder.base.read(words), None

    def act(
        self, seen: Observation, memory: tuple[tuple[Tensor, Tensor], Recurrent | None]
    ) -> tuple[Tensor, tuple[tuple[Tensor, Tensor], Recurrent | None]]:
        """Logits [B, K] for one step."""
        words, previous = memory
        base = self.encoder.base
        state = base.state(seen.views, seen.facing, previous or base.state.start(seen.views))
        if self.encoder.attention:
            goal = base.attended_goal(state[0][:, None], words)[:, 0]
        else:
            goal = last_word(*words)
        return self.head(Frozen(state[0], goal), seen.actions), (words, state)

    def forward(self, words: Tensor, seen: Observation) -> Tensor:
        """Logits [B, T, K] along given trajectories."""
        return self.head(self.encoder.along(words, seen), seen.actions)


class GoalAgnosticPolicy(nn.Module):
    """π_p: Softmax(BiLinear(h^s, e^a)), a prior of how experts move, whatever they were told."""

    def __init__(self, feature_width: int, sizes: Sizes) -> None:
        super().__init__()
        self.state = StateEncoder(feature_width, sizes)
        self.bilinear = nn.Linear(sizes.hidden, feature_width, bias=False)
        self.mask = FeatureMask(feature_width, sizes.feature_dropout)
        self.drop = Dropout(sizes.dropout)

    def _scores(self, state: Tensor, actions: Tensor, mask: Tensor | None) -> Tensor:
        wanted = self.bilinear(self.drop(state))
        wanted = wanted if mask is None else wanted * mask
        return (actions @ wanted.unsqueeze(-1)).squeeze(-1)

    def forward(self, words: Tensor, seen: Observation) -> Tensor:
        """Logits [B, T, K] along given trajectories; the words are not read."""
        mask = self.mask(seen.views) if self.training else None
        state = self.state.sequence(seen.views, seen.facing, mask)
        return self._scores(state, seen.actions, None if mask is None else mask[:, None])

    def begin(self, words: Tensor) -> Recurrent | None:
        """Nothing to read."""
        return None

    def act(self, seen: Observation, memory: Recurrent | None) -> tuple[Tensor, Recurrent]:
        """Logits [B, K] for one step."""
        state = self.state(seen.views, seen.facing, memory or self.state.start(seen.views))
        return self._scores(state[0], seen.actions, None), state
