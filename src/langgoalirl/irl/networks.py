"""Q(s, a, G), the reward g(s, a, G), the shaping h(s, G), f made of g and h; and the policy π."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from langgoalirl.irl.transitions import Situation
from langgoalirl.models.layers import MLP, Dropout
from langgoalirl.models.policy import Frozen, PolicyHead
from langgoalirl.models.sizes import Sizes


class Choices(NamedTuple):
    """The candidates of B states, padded to K and packed to the P that exist."""

    embedding: Tensor  # [B, K, D]
    mask: Tensor  # [B, K]
    row: Tensor  # [P] whose candidate it is
    packed: Tensor  # [P, D]

    @classmethod
    def of(cls, embedding: Tensor, mask: Tensor) -> Choices:
        """Both forms of the same candidates."""
        return cls(embedding, mask, mask.nonzero()[:, 0], embedding[mask])


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


def unpacked(packed: Tensor, mask: Tensor) -> Tensor:
    """[heads, B, K] from [heads, P], zero where there is no candidate."""
    full = packed.new_zeros(len(packed), *mask.shape)
    full[:, mask] = packed
    return full


class AddedPolicy(nn.Module):
    """π = Softmax(e^a · MLP([h^s; g]) + MLP([h^s; g; e^a])).

    The first term is where π starts, and stays as it is: behaviour cloning. The second has the form
    of Q, which π is to follow, and begins at zero. The first form alone cannot follow Q.
    """

    def __init__(
        self, start: PolicyHead | None, feature_width: int, sizes: Sizes, horizon: int
    ) -> None:
        super().__init__()
        self.start = None if start is None else start.eval().requires_grad_(False)
        self.added = ActionValue(feature_width, sizes, horizon, heads=1)

    def train(self, mode: bool = True) -> AddedPolicy:
        """Where π starts knows no dropout."""
        super().train(mode)
        if self.start is not None:
            self.start.eval()
        return self

    def forward(self, at: Situation, choices: Choices) -> Tensor:
        """Logits [B, K]."""
        logits = unpacked(self.added(at, choices.row, choices.packed), choices.mask)[0]
        if self.start is None:
            return logits
        with torch.no_grad():
            start = self.start(Frozen(at.state, at.goal), choices.embedding)
        return start.float() + logits


def policy_logits(net: PolicyHead | AddedPolicy, at: Situation, choices: Choices) -> Tensor:
    """Logits [B, K] of a policy of either form."""
    if isinstance(net, AddedPolicy):
        return net(at, choices)
    return net(Frozen(at.state, at.goal), choices.embedding)


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
