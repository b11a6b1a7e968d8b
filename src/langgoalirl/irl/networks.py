"""Q(s, a, G), the reward g(s, a, G), the shaping h(s, G), f made of g and h; and the policy π."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from langgoalirl.irl.transitions import Situation
from langgoalirl.models.layers import MLP, Dropout, masked_log_softmax
from langgoalirl.models.policy import PolicyHead
from langgoalirl.models.sizes import Sizes
from langgoalirl.worlds.types import Choices

FLOOR = -10.0
"""Log-probabilities below this are all the same to reward, critics, discriminator and start."""


class ActionValue(nn.Module):
    """MLP([h^s; g; e^a]) and the time, for every candidate; `heads` such networks side by side.

    A first layer on [state; action] is the sum of a layer on the state and one on the action, so
    the state is multiplied once and not once per candidate; and only candidates that exist are
    computed. The last layer starts at zero: what a network adds to its prior grows from nothing.

    Dropout comes before the last layer and hides the same units from all candidates of a state, so
    that they are compared on equal terms.
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

    def forward(self, at: Situation, row: Tensor | None, embedding: Tensor) -> Tensor:
        """[heads, P] for P candidates: `row` [P] says whose (None: one for each state),
        `embedding` [P, D] what they are."""
        dtype = self.out.dtype
        state = self.state(at.encoded.to(dtype)) + self.time(at.time)
        hidden = state if row is None else state.index_select(0, row)
        hidden = hidden.addmm_(embedding.to(dtype), self.action.weight.T).relu_()
        for weight in self.middle:
            each = hidden.view(-1, self.heads, self.hidden).transpose(0, 1)
            hidden = torch.bmm(each, weight).relu_().transpose(0, 1).flatten(1)
        if self.training and self.drop.kept < 256:
            mask = self.drop.mask(state)
            hidden = hidden * (mask if row is None else mask.index_select(0, row))
        # The heads' last layers side by side, as one product that copies nothing.
        return (hidden @ torch.block_diag(*self.out[..., None])).float().T + self.bias[:, None]


class Prior(nn.Module):
    """log π of behaviour cloning, floored: what Q, g and π start from. Zero without one."""

    def __init__(self, head: PolicyHead | None) -> None:
        super().__init__()
        self.head = head

    def train(self, mode: bool = True) -> Prior:
        """Learned before; it never changes and knows no dropout."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, encoded: Tensor, choices: Choices) -> Tensor:
        """[B, K] in the states [h^s; g], zero where there is no candidate."""
        if self.head is None:
            return torch.zeros_like(choices.mask, dtype=torch.float32)
        logits = dot_logits(self.head, encoded, choices)
        log_pi = masked_log_softmax(logits, choices.mask).clamp_min(FLOOR)
        return torch.where(choices.mask, log_pi, 0.0)


def dot_logits(head: PolicyHead, encoded: Tensor, choices: Choices) -> Tensor:
    """e^a · MLP([h^s; g]), [B, K]."""
    wanted = head.wanted(encoded.to(head.dtype))
    packed = (choices.embedding.to(head.dtype) * wanted.index_select(0, choices.row)).sum(-1)
    return choices.unpacked(packed.float()[None])[0]


def policy_logits(net: PolicyHead | ActionValue, at: Situation, choices: Choices) -> Tensor:
    """Logits [B, K] of a policy of either form.

    The paper's π = Softmax(e^a · MLP([h^s; g])) cannot follow every Q. With a network of Q's own
    form that is added to where π starts, π = Softmax(log π_BC + MLP([h^s; g; e^a])), it can.
    """
    if isinstance(net, PolicyHead):
        return dot_logits(net, at.encoded, choices)
    return at.prior + choices.unpacked(net(at, choices.row, choices.embedding))[0]


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
        encoded = at.encoded.to(self.time.weight.dtype)
        return (self.mlp(encoded).float() + self.time(at.time).float())[:, 0]


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
