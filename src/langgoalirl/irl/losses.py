"""The equations of the adversarial loop, as functions of tensors.

Sums over candidates run under the mask and are never averaged over the padded width.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def expectation(log_pi: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Σ_i π(a_i) x_i over the candidates that exist: log_pi, values and mask are [B, K]."""
    return torch.where(mask, log_pi.exp() * values, 0.0).sum(-1)


def soft_value(log_pi: Tensor, q: Tensor, mask: Tensor, alpha: Tensor | float) -> Tensor:
    """V(s, G) = Σ_i π(a_i) [Q(a_i) - α log π(a_i)]."""
    return expectation(log_pi, q - alpha * log_pi, mask)


def q_loss(q: Tensor, target: Tensor) -> Tensor:
    """J_Q: the soft Bellman residual of one or several critics [heads, B] on one target [B].

    Half the squared error near zero, linear beyond one: a reward that changes under the critic
    makes for rare, large errors.
    """
    return F.smooth_l1_loss(q, target.expand_as(q), reduction="none").mean(-1).sum()


def policy_loss(log_pi: Tensor, q: Tensor, mask: Tensor, alpha: Tensor | float) -> Tensor:
    """J_π = E Σ_i π(a_i) [α log π(a_i) - Q(a_i)]."""
    return expectation(log_pi, alpha * log_pi - q, mask).mean()


def temperature_loss(log_alpha: Tensor, entropy: Tensor, target: float) -> Tensor:
    """J(α) = α (H(π) - target): falls where the policy is more random than it should be."""
    return (log_alpha.exp() * (entropy.detach() - target)).mean()


def smoothed_cross_entropy(logit: Tensor, label: float) -> Tensor:
    """-label log D - (1 - label) log(1 - D), with D = sigmoid(logit)."""
    return F.softplus(logit) - label * logit


def discriminator_loss(
    logit: Tensor, stopped: Tensor, time: Tensor, absorbed: Tensor, label: float
) -> Tensor:
    """Cross entropy over all steps of a fixed horizon, those after *stop* included.

    logit [b] = f - log π of steps drawn uniformly; an episode that stopped at time t stands in the
    state of having stopped at t + 1 … horizon - 1. There it has one action, so log π = 0 and the
    logit is `absorbed` [horizon]. Counting these steps makes every episode equally long: without
    them the shortest episode costs least while the discriminator is young.
    """
    horizon = len(absorbed)
    later = torch.arange(horizon, device=time.device) > time[:, None]  # [b, horizon]
    count = (later & stopped[:, None]).sum(0)
    total = smoothed_cross_entropy(logit, label).sum()
    total = total + (count * smoothed_cross_entropy(absorbed, label)).sum()
    return total / (len(logit) + count.sum())


def absorbed_values(reward: Tensor, gamma: float) -> Tensor:
    """[horizon + 1] what having stopped is worth from each time on: Σ_k γ^k r(t + k), in closed
    form because nothing happens there. Nothing comes after the horizon."""
    values = [torch.zeros_like(reward[0])]
    for t in range(len(reward) - 1, -1, -1):
        values.append(reward[t] + gamma * values[-1])
    return torch.stack(values[::-1])
