"""Paired differences: their interval knows which instructions belong together."""

from __future__ import annotations

import pytest
import torch

from langgoalirl.compare import paired_difference


def test_a_constant_difference_has_no_width() -> None:
    second = torch.zeros(3, 12)
    found = paired_difference(second + 0.25, second, torch.arange(12) // 3)
    assert (found.difference, found.low, found.high) == (0.25, 0.25, 0.25)
    assert (found.first, found.second, found.seeds, found.n) == (0.25, 0.0, 3, 12)


def test_the_interval_is_that_of_the_mean_over_routes() -> None:
    """200 routes of one instruction, differences of ±1: the mean's deviation is 1 / √200."""
    draw = torch.Generator().manual_seed(0)
    first = torch.randint(2, (1, 200), generator=draw).double()
    found = paired_difference(first, 1 - first, torch.arange(200))
    assert found.high - found.low == pytest.approx(2 * 1.96 / 200**0.5, rel=0.08)
    assert found.low < found.difference < found.high


def test_instructions_of_one_route_count_as_one() -> None:
    draw = torch.Generator().manual_seed(0)
    by_route = torch.randint(2, (1, 100), generator=draw).double()
    alone = paired_difference(by_route, 1 - by_route, torch.arange(100))
    thrice = by_route.repeat_interleave(3, 1)
    together = paired_difference(thrice, 1 - thrice, torch.arange(100).repeat_interleave(3))
    assert together.high - together.low == pytest.approx(alone.high - alone.low, rel=1e-6)


def test_seeds_that_disagree_widen_the_interval() -> None:
    none = torch.zeros(2, 50)
    agreeing = torch.full((2, 50), 0.5)
    apart = torch.stack([torch.ones(50), torch.zeros(50)])
    route = torch.arange(50)
    narrow, wide = (paired_difference(x, none, route) for x in (agreeing, apart))
    assert narrow.difference == wide.difference == 0.5
    assert narrow.high - narrow.low == 0
    assert (wide.low, wide.high) == (0.0, 1.0)
