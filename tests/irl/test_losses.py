"""The equations of the adversarial loop against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from langgoalirl.irl.losses import (
    absorbed_values,
    discriminator_loss,
    expectation,
    policy_loss,
    q_loss,
    smoothed_cross_entropy,
    soft_value,
    temperature_loss,
)
from langgoalirl.models.layers import masked_log_softmax

torch.set_num_threads(1)

LOGITS = torch.tensor([[0.0, math.log(3), 7.0], [0.0, math.log(2), math.log(5)]])
MASK = torch.tensor([[True, True, False], [True, True, True]])
Q = torch.tensor([[1.0, 2.0, 9.0], [-1.0, 0.5, 4.0]])
PI = [[1 / 4, 3 / 4], [1 / 8, 2 / 8, 5 / 8]]  # Softmax of what exists


def log_pi() -> Tensor:
    return masked_log_softmax(LOGITS, MASK)


def by_hand(alpha: float) -> list[float]:
    """V of both states."""
    return [
        sum(p * (q - alpha * math.log(p)) for p, q in zip(pi, qs, strict=False))
        for pi, qs in zip(PI, Q.tolist(), strict=True)
    ]


@pytest.mark.parametrize("alpha", [0.0, 0.2, 1.0])
def test_the_soft_value(alpha: float) -> None:
    assert soft_value(log_pi(), Q, MASK, alpha).tolist() == pytest.approx(by_hand(alpha))


@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_the_policy_loss_is_minus_the_mean_soft_value(alpha: float) -> None:
    loss = policy_loss(log_pi(), Q, MASK, alpha)
    assert loss.item() == pytest.approx(-sum(by_hand(alpha)) / 2)


def test_the_gradient_of_the_policy_loss() -> None:
    """∂J/∂z_k = π_k [(α log π_k - q_k) - Σ_i π_i (α log π_i - q_i)], and 0 where there is none."""
    alpha, logits = 0.5, LOGITS.clone().requires_grad_()
    policy_loss(masked_log_softmax(logits, MASK).clamp_min(-100), Q, MASK, alpha).backward()
    assert logits.grad is not None
    for row, (pi, qs, value) in enumerate(zip(PI, Q.tolist(), by_hand(alpha), strict=True)):
        wanted = [p * (alpha * math.log(p) - q + value) / 2 for p, q in zip(pi, qs, strict=False)]
        assert logits.grad[row, : len(pi)].tolist() == pytest.approx(wanted, abs=1e-6)
    assert logits.grad[0, 2] == 0


def test_padding_with_more_candidates_changes_nothing() -> None:
    """Neither values nor gradients, whatever stands in the columns that do not exist."""
    results = []
    for wide in (0, 5):
        junk = torch.full((2, wide), 1e4)
        logits = torch.cat([LOGITS, junk], 1).requires_grad_()
        mask = torch.cat([MASK, junk < 0], 1)
        q = torch.cat([Q, junk], 1)
        value = soft_value(masked_log_softmax(logits, mask), q, mask, 0.3)
        loss = policy_loss(masked_log_softmax(logits, mask).clamp_min(-100), q, mask, 0.3)
        loss.backward()
        assert logits.grad is not None
        results.append((value.detach(), loss.detach(), logits.grad[:, :3]))
    for narrow, wide_one in zip(*results, strict=True):
        assert torch.equal(narrow, wide_one)


def test_an_expectation_leaves_out_what_does_not_exist() -> None:
    values = torch.tensor([[2.0, 4.0, torch.nan], [8.0, 8.0, 8.0]])
    assert expectation(log_pi(), values, MASK).tolist() == pytest.approx([3.5, 8.0])


def test_the_bellman_residual_of_two_critics() -> None:
    """Half the square within one of the target, linear beyond; the mean of each critic, summed."""
    q = torch.tensor([[1.0, 2.0], [4.0, 0.0]], requires_grad=True)
    target = torch.tensor([0.5, 0.0])
    loss = q_loss(q, target)
    assert loss.item() == pytest.approx((0.125 + 1.5) / 2 + (3.0 + 0.0) / 2)
    loss.backward()
    assert q.grad is not None
    assert q.grad.tolist() == [[0.25, 0.5], [0.5, 0.0]]


@pytest.mark.parametrize(("entropy", "sign"), [(0.9, 1), (0.1, -1)])
def test_the_temperature_falls_where_the_policy_is_too_random(entropy: float, sign: int) -> None:
    log_alpha = torch.tensor(math.log(0.7), requires_grad=True)
    measured = torch.tensor([entropy - 0.1, entropy + 0.1], requires_grad=True)
    loss = temperature_loss(log_alpha, measured, 0.5)
    assert loss.item() == pytest.approx(0.7 * (entropy - 0.5))
    loss.backward()
    assert log_alpha.grad is not None
    assert log_alpha.grad.item() == pytest.approx(0.7 * (entropy - 0.5))
    assert math.copysign(1, log_alpha.grad.item()) == sign
    assert measured.grad is None


@pytest.mark.parametrize("label", [0.95, 0.05, 1.0])
def test_the_smoothed_cross_entropy(label: float) -> None:
    logit = torch.tensor([-2.0, 0.0, 1.5])
    d = torch.sigmoid(logit)
    wanted = -label * d.log() - (1 - label) * (1 - d).log()
    torch.testing.assert_close(smoothed_cross_entropy(logit, label), wanted)


def test_the_smoothed_cross_entropy_far_out_is_finite() -> None:
    assert smoothed_cross_entropy(torch.tensor([-1e4, 1e4]), 0.95).tolist() == pytest.approx(
        [9.5e3, 5e2]
    )


HORIZON = 4
ABSORBED = [0.0, -0.4, 0.3, 0.8]  # f of having stopped, at times 0 … 3


def test_steps_after_stop_count_as_much_as_any_other() -> None:
    """Four steps: on the way, stopped at 1 (absorbed at 2 and 3), stopped at 3, out of time."""
    logit = torch.tensor([0.5, -1.0, 2.0, 0.1], requires_grad=True)
    stopped, time = torch.tensor([False, True, True, False]), torch.tensor([0, 1, 3, 3])
    absorbed = torch.tensor(ABSORBED, requires_grad=True)
    loss = discriminator_loss(logit, stopped, time, absorbed, 0.95)

    def each(x: float) -> float:
        d = 1 / (1 + math.exp(-x))
        return -0.95 * math.log(d) - 0.05 * math.log(1 - d)

    every = [0.5, -1.0, 2.0, 0.1, ABSORBED[2], ABSORBED[3]]
    assert loss.item() == pytest.approx(sum(map(each, every)) / 6)
    loss.backward()
    assert logit.grad is not None
    assert absorbed.grad is not None
    slope = [(1 / (1 + math.exp(-x)) - 0.95) / 6 for x in every]
    assert logit.grad.tolist() == pytest.approx(slope[:4])
    assert absorbed.grad.tolist() == pytest.approx([0.0, 0.0, *slope[4:]])


def test_every_episode_weighs_the_same_however_early_it_stops() -> None:
    """With all logits alike, an episode of one step counts as much as one of four."""
    zero = torch.zeros(HORIZON)
    at_once = discriminator_loss(
        torch.tensor([2.0]), torch.tensor([True]), torch.tensor([0]), zero, 0.95
    )
    late = discriminator_loss(
        torch.tensor([2.0, 0.0, 0.0, 0.0]),
        torch.tensor([False, False, False, True]),
        torch.arange(4),
        zero,
        0.95,
    )
    torch.testing.assert_close(at_once, late)


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_what_having_stopped_is_worth(gamma: float) -> None:
    reward = torch.tensor(ABSORBED, requires_grad=True)
    values = absorbed_values(reward, gamma)
    wanted = [
        sum(gamma**k * r for k, r in enumerate(ABSORBED[start:])) for start in range(HORIZON + 1)
    ]
    assert values.tolist() == pytest.approx(wanted)
    assert values[HORIZON] == 0
