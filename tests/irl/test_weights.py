"""Parameters in one row: the same learning as parameter by parameter, in fp32 beside half."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from langgoalirl.irl.weights import LARGEST_NORM, Weights
from langgoalirl.run_folder import digest

torch.set_num_threads(1)


class Net(nn.Module):
    """A product, and a vector that is in none."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.ones(2))
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.to(self.layer.weight.dtype)).float() * self.shift


def new(seed: int = 0) -> Net:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Net()


X = torch.tensor([[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]])


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_a_row_learns_like_its_parameters_one_by_one(scale: float) -> None:
    """Clipped where the gradient is long, with weight decay."""
    net, plain = new(), new()
    weights = Weights(net, torch.float32, rate=0.1, decay=0.01)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=0.1, weight_decay=0.01)
    for _ in range(3):
        (scale * net(X)).square().mean().backward()
        weights.step()
        optimizer.zero_grad()
        (scale * plain(X)).square().mean().backward()
        norm = nn.utils.clip_grad_norm_(plain.parameters(), LARGEST_NORM)
        assert (norm > LARGEST_NORM) or scale == 1.0
        optimizer.step()
    for name, value in plain.named_parameters():
        torch.testing.assert_close(weights.named()[name], value.detach())
        torch.testing.assert_close(net.get_parameter(name), value)


def test_matrices_are_multiplied_in_half_precision_and_learn_in_full() -> None:
    """A step far smaller than half precision can tell is not lost."""
    net = new()
    weights = Weights(net, torch.bfloat16, rate=1e-5)
    before = {name: value.clone() for name, value in weights.named().items()}
    assert net.layer.weight.dtype == net.layer.bias.dtype == torch.bfloat16
    assert net.shift.dtype == torch.float32
    for _ in range(10):
        net(X).sum().backward()
        weights.step()
    for name, value in weights.named().items():
        assert value.dtype == torch.float32
        assert (value - before[name]).abs().max().item() == pytest.approx(1e-4, rel=0.1)
        assert torch.equal(net.get_parameter(name), value.to(net.get_parameter(name).dtype))


def test_a_slow_copy_follows_in_full_precision() -> None:
    net, slow = new(0), new(1)
    fast, target = Weights(net, torch.bfloat16, rate=0.1), Weights(slow, torch.bfloat16)
    first = target.exact.clone()
    for _ in range(50):
        target.follow(fast, 0.001)
    wanted = fast.exact + (first - fast.exact) * 0.999**50
    torch.testing.assert_close(target.exact, wanted)
    assert torch.equal(slow.layer.weight, target.named()["layer.weight"].bfloat16())


def test_a_checkpoint_brings_everything_back() -> None:
    def learn(weights: Weights, net: Net) -> None:
        net(X).square().mean().backward()
        weights.step()

    net = new()
    weights = Weights(net, torch.bfloat16, rate=0.01)
    learn(weights, net)
    kept = {name: value.clone() for name, value in weights.state().items()}
    other = new(5)
    restored = Weights(other, torch.bfloat16, rate=0.01)
    restored.restore(copy.deepcopy(kept))
    for each, which in ((weights, net), (restored, other)):
        learn(each, which)
    assert digest(weights.state()) == digest(restored.state())
    assert torch.equal(net.layer.weight, other.layer.weight)


def test_parameters_come_back_by_name() -> None:
    weights, other = Weights(new(0), torch.bfloat16), Weights(new(1), torch.bfloat16)
    other.load(weights.named())
    assert torch.equal(weights.exact, other.exact)
    assert torch.equal(weights.half, other.half)
