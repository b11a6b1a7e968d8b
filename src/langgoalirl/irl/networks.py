"""What scores steps: Q(s, a, G), the reward g(s, a, G), the shaping h(s, G), and f made of both."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from langgoalirl.irl.transitions import Situation
from langgoalirl.models.layers import MLP, Dropout
from langgoalirl.models.sizes import Sizes


class ActionValue(nn.Module):
    """MLP([h^s; g; e^a]) and the time, for every candidate; `heads` such networks side by side.

    A first layer on [state; action] is the sum of a layer on the state and one on the action, so
    the state is multiplied once and not once per candidate; and only candidates that exist are
    computed. The last layer starts at zero: what a network adds to its prior grows from nothing.
    """

    def __init__(self, feature_width: int, sizes: Sizes, horizon: int, heads: int) -> None:
        super().__init__()
        self.heads, self.hidden, wide = heads, sizes.hidden, heads * sizes.hidden
        self.state = nn.Linear(2 * sizes.hidden, wide)
        self.action = nn.Linear(feature_width, wide, bias=False)
        self.time = nn.Embedding(horizon, wide)
        self.middle = nn.ParameterList(
            nn.Parameter(_uniform(heads, sizes.hidden)) for _ in range(sizes.layers - 2)
        )
        self.out = nn.Parameter(torch.zeros(heads, sizes.hidden))
        self.bias = nn.Parameter(torch.zeros(heads))
        self.drop = Dropout(sizes.dropout)
        nn.init.zeros_(self.time.weight)

    def forward(self, at: Situation, row: Tensor, embedding: Tensor) -> Tensor:
        """[heads, P] for P candidates: `row` [P] says whose, `embedding` [P, D] what they are."""
        state = self.state(torch.cat([at.state, at.goal], dim=-1))
        state = state + self.time(at.time).to(state.dtype)  # else all that follows is float32
        hidden = torch.relu(state.index_select(0, row) + self.action(embedding))
        hidden = self.drop(hidden)
        for weight in self.middle:
            each = hidden.view(-1, self.heads, self.hidden).transpose(0, 1)
            each = self.drop(torch.relu(torch.bmm(each, weight)))
            hidden = each.transpose(0, 1).flatten(1)
        # The heads' last layers side by side, as one product that copies nothing.
        value = hidden @ torch.block_diag(*self.out[..., None])
        return value.float().T + self.bias[:, None]


def _uniform(heads: int, wide: int) -> Tensor:
    bound = math.sqrt(3.0 / wide)
    return torch.empty(heads, wide, wide).uniform_(-bound, bound)


class StateValue(nn.Module):
    """MLP([h^s; g]) and the time: one number per state, zero at first."""

    def __init__(self, sizes: Sizes, horizon: int) -> None:
        super().__init__()
        self.mlp = MLP(2 * sizes.hidden, sizes.hidden, 1, sizes.layers, sizes.dropout)
        self.time = nn.Embedding(horizon, 1)
        last = self.mlp[-1]
        assert isinstance(last, nn.Linear)
        for parameter in (*last.parameters(), *self.time.parameters()):
            nn.init.zeros_(parameter)

    def forward(self, at: Situation) -> Tensor:
        """[B]."""
        value = self.mlp(torch.cat([at.state, at.goal], dim=-1)) + self.time(at.time)
        return value.float()[:, 0]


class RewardModel(nn.Module):
    """f(s, a, s′, G) = g(s, a, G) + γ h(s′, G) - h(s, G), and f of having stopped, by time.

    h of what comes after *stop* or the horizon is zero.
    """

    def __init__(self, feature_width: int, sizes: Sizes, horizon: int, gamma: float) -> None:
        super().__init__()
        self.g = ActionValue(feature_width, sizes, horizon, heads=1)
        self.h = StateValue(sizes, horizon)
        self.absorbed = nn.Parameter(torch.zeros(horizon))
        self.gamma = gamma

    def shaping(self, now: Situation, then: Situation, last: Tensor) -> Tensor:
        """γ h(s′, G) - h(s, G)."""
        both = Situation(*(torch.cat(pair) for pair in zip(now, then, strict=True)))
        here, there = self.h(both).chunk(2)
        return self.gamma * torch.where(last, 0.0, there) - here
