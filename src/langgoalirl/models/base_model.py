"""The base model (appendix, Base Model): instruction in, actions out, by teacher forcing.

Its decoder LSTM becomes the frozen state encoder of everything that comes later. That LSTM is
blind to the goal: it starts at zero and is fed with views and headings only, so that one stored
state serves any instruction.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from langgoalirl.language.vocabulary import PAD
from langgoalirl.models.layers import Dropout, attend
from langgoalirl.models.sizes import Sizes
from langgoalirl.worlds.types import Observation

Recurrent = tuple[Tensor, Tensor]  # h^s and the LSTM's cell, [B, hidden] each

DIRECTION = 4  # the last columns of every view and action embedding


class FeatureMask(nn.Module):
    """Hides some feature columns from a whole trajectory, but never a direction.

    A column that is gone is gone in all views and candidates, as if the house lacked that thing.
    The mask multiplies queries and attended sums, never the views themselves: (m ∘ v)·q = v·(m ∘ q)
    and Σ α (m ∘ v) = m ∘ Σ α v, so it costs next to nothing.
    """

    def __init__(self, feature_width: int, rate: float) -> None:
        super().__init__()
        self.width = feature_width
        self.drop = Dropout(rate)

    def forward(self, like: Tensor) -> Tensor:
        """[B, D] factors for a batch; ones outside training."""
        mask = torch.ones(len(like), self.width, dtype=like.dtype, device=like.device)
        mask[:, :-DIRECTION] = self.drop(mask[:, :-DIRECTION])
        return mask


class StateEncoder(nn.Module):
    """Views and heading into h^s: attention over the views, then LSTM_dec."""

    def __init__(self, feature_width: int, sizes: Sizes) -> None:
        super().__init__()
        self.hidden = sizes.hidden
        self.view_query = nn.Linear(sizes.hidden, feature_width, bias=False)
        self.angle = nn.Linear(DIRECTION, sizes.angle)
        self.cell = nn.LSTMCell(feature_width + sizes.angle, sizes.hidden)
        self.drop = Dropout(sizes.dropout)

    def start(self, views: Tensor) -> Recurrent:
        """No state yet: zeros for as many episodes as there are views."""
        zero = torch.zeros(len(views), self.hidden, dtype=views.dtype, device=views.device)
        return zero, zero

    def forward(
        self, views: Tensor, facing: Tensor, previous: Recurrent, mask: Tensor | None = None
    ) -> Recurrent:
        """One step: f_t = Σ α^s_i f_{t,i}, then h^s_t = LSTM_dec(h^s_{t-1}, [f_t; e^angle_t])."""
        query = self.view_query(self.drop(previous[0]))
        seen, _ = attend(query if mask is None else query * mask, views)
        seen = seen if mask is None else seen * mask
        heading = torch.tanh(self.angle(facing))
        return self.cell(torch.cat([seen, heading], dim=-1), previous)

    def sequence(self, views: Tensor, facing: Tensor, mask: Tensor | None = None) -> Tensor:
        """h^s [B, T, hidden] of whole trajectories: views [B, T, V, D], facing [B, T, 4]."""
        state = self.start(views)
        states = []
        for t in range(views.shape[1]):
            state = self(views[:, t], facing[:, t], state, mask)
            states.append(state[0])
        return torch.stack(states, dim=1)


class GoalEncoder(nn.Module):
    """Words into h^w_1 … h^w_N: embedding, then LSTM_enc."""

    def __init__(self, words: int, sizes: Sizes) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, sizes.word, padding_idx=PAD)
        nn.init.normal_(self.embed.weight, std=0.1)
        self.lstm = nn.LSTM(sizes.word, sizes.hidden, batch_first=True)
        self.drop = Dropout(sizes.dropout)

    def forward(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """h^w [B, N, hidden] and which of them are words."""
        read, _ = self.lstm(self.drop(self.embed(words)))
        return self.drop(read), words != PAD


class BaseModel(nn.Module):
    """p^a = Softmax(BiLinear(Linear([h^s; g]), e^a)), with g attended from the instruction."""

    def __init__(self, feature_width: int, words: int, sizes: Sizes) -> None:
        super().__init__()
        self.goal = GoalEncoder(words, sizes)
        self.state = StateEncoder(feature_width, sizes)
        self.word_query = nn.Linear(sizes.hidden, sizes.hidden, bias=False)
        self.join = nn.Linear(2 * sizes.hidden, sizes.hidden)
        self.bilinear = nn.Linear(sizes.hidden, feature_width, bias=False)
        self.mask = FeatureMask(feature_width, sizes.feature_dropout)
        self.drop = Dropout(sizes.dropout)

    def read(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """The instruction, encoded once per episode."""
        return self.goal(words)

    def attended_goal(self, state: Tensor, goal: tuple[Tensor, Tensor]) -> Tensor:
        """g [B, T, hidden]: what of the instruction each state [B, T, hidden] looks at."""
        encoded, is_word = goal
        score = self.word_query(state) @ encoded.transpose(1, 2)  # [B, T, N]
        score = score.masked_fill(~is_word[:, None], -torch.inf)
        return torch.softmax(score.float(), dim=-1).to(encoded.dtype) @ encoded

    def scores(
        self,
        state: Tensor,
        goal: tuple[Tensor, Tensor],
        actions: Tensor,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Logits [B, T, K] of the candidates [B, T, K, D]; *stop*, all zeros, has the logit 0."""
        state = self.drop(state)
        joined = torch.tanh(self.join(torch.cat([state, self.attended_goal(state, goal)], dim=-1)))
        wanted = self.bilinear(self.drop(joined))
        wanted = wanted if mask is None else wanted * mask[:, None]
        return (actions @ wanted.unsqueeze(-1)).squeeze(-1)

    def forward(self, words: Tensor, seen: Observation) -> Tensor:
        """Logits [B, T, K] along given trajectories (observations are [B, T, …])."""
        mask = self.mask(seen.views) if self.training else None
        state = self.state.sequence(seen.views, seen.facing, mask)
        return self.scores(state, self.read(words), seen.actions, mask)

    def begin(self, words: Tensor) -> tuple[tuple[Tensor, Tensor], Recurrent | None]:
        """Encode the instructions, once per episode."""
        return self.read(words), None

    def act(
        self, seen: Observation, memory: tuple[tuple[Tensor, Tensor], Recurrent | None]
    ) -> tuple[Tensor, tuple[tuple[Tensor, Tensor], Recurrent | None]]:
        """Logits [B, K] for one step of a batch of episodes."""
        goal, previous = memory
        state = self.state(seen.views, seen.facing, previous or self.state.start(seen.views))
        return self.scores(state[0][:, None], goal, seen.actions[:, None])[:, 0], (goal, state)
