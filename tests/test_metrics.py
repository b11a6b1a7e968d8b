"""Metrics against values computed by hand, slow definitions, and the laws between them."""

from __future__ import annotations

from functools import cache
from math import exp

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from langgoalirl.errors import UserError
from langgoalirl.metrics import PROTOCOLS, score, summary
from langgoalirl.worlds.navgraph import House, NavGraph
from langgoalirl.worlds.types import References

A, B, C, D = range(4)


def corners(*edges: tuple[int, int]) -> NavGraph:
    """Four corners of a rectangle of 4 m by 3 m, joined as asked."""
    positions = np.array([[0, 0, 0], [4, 0, 0], [4, 3, 0], [0, 3, 0]], dtype=float)
    joined = np.zeros((4, 4), dtype=bool)
    for a, b in edges:
        joined[a, b] = joined[b, a] = True
    house = House("corners", list("ABCD"), positions, joined, joined, np.ones(4))
    return NavGraph([house], torch.zeros(5, 36, 8))


CHAIN = corners((A, B), (B, C), (C, D))  # from A: 4, 7 and 11 metres, although D is 3 m off
SHORT_CUT = corners((A, B), (B, C), (C, D), (A, C))  # A to C is 5 m


def padded(paths: list[list[int]], filler: int | None = None) -> tuple[Tensor, Tensor]:
    longest = max(map(len, paths))
    rows = [p + [p[-1] if filler is None else filler] * (longest - len(p)) for p in paths]
    return torch.tensor(rows), torch.tensor([len(p) for p in paths])


def scored(
    world: NavGraph,
    paths: list[list[int]],
    references: list[list[int]],
    protocol: str = "envdrop",
    filler: int | None = None,
) -> dict[str, Tensor]:
    """The scores of paths whose padding is `filler`, or their last viewpoint."""
    return score(world, *padded(paths, filler), References(*padded(references)), protocol)


def expect(scores: dict[str, Tensor], **values: float) -> None:
    """The only row of `scores` has these values."""
    assert scores.keys() == {"tl", "ne", "osr", "sr", "spl", "ndtw", "sdtw", "cls"}
    assert all(values.dtype == torch.float64 for values in scores.values())
    assert {name: scores[name].item() for name in values} == pytest.approx(values, abs=1e-12)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_annotated_path_is_perfect(protocol: str) -> None:
    references = [[A, B], [A, B, C, D], [D, C, B], [B]]
    scores = scored(CHAIN, references, references, protocol)
    for name, values in scores.items():
        wanted = {"tl": [4, 11, 7, 0], "ne": [0] * 4}.get(name, [1] * 4)
        assert values.tolist() == wanted


def test_stopping_exactly_on_the_radius_is_a_failure() -> None:
    coverage = (1 + 1 + exp(-1)) / 3
    shortness = coverage * 7 / (coverage * 7 + abs(coverage * 7 - 4))
    scores = scored(CHAIN, [[A, B]], [[A, B, C]])
    expect(scores, tl=4, ne=3, osr=0, sr=0, spl=0, sdtw=0)
    expect(scores, ndtw=exp(-3 / 9), cls=coverage * shortness)


def test_just_inside_the_radius_is_a_success() -> None:
    house = CHAIN.houses[0]
    nearer = House(
        "near", house.viewpoints, house.positions * 0.999, house.edges, house.edges, house.heights
    )
    world = NavGraph([nearer], torch.zeros(5, 36, 8))
    expect(scored(world, [[A, B]], [[A, B, C]]), ne=2.997, sr=1, osr=1, spl=1)


def test_walking_past_the_goal_counts_for_the_oracle_alone() -> None:
    scores = scored(CHAIN, [[A, B, C, D]], [[A, B, C]])
    expect(scores, tl=11, ne=4, osr=1, sr=0, spl=0, ndtw=exp(-4 / 9), sdtw=0, cls=7 / 11)


def test_walking_to_and_fro_costs_length() -> None:
    scores = scored(CHAIN, [[A, B, C, B, C]], [[A, B, C]])
    expect(scores, tl=13, ne=0, osr=1, sr=1, spl=7 / 13, cls=7 / 13)
    expect(scores, ndtw=exp(-3 / 9), sdtw=exp(-3 / 9))


def test_only_duet_weighs_by_the_annotated_length() -> None:
    there_and_round = [[A, B, C]], [[A, B, C]]
    assert scored(SHORT_CUT, *there_and_round, "duet")["spl"].item() == 1
    for protocol in ("envdrop", "simulator"):
        assert scored(SHORT_CUT, *there_and_round, protocol)["spl"].item() == pytest.approx(5 / 7)
    assert scored(SHORT_CUT, [[A, C]], [[A, B, C]], "duet")["spl"].item() == 1


def test_leaving_a_goal_that_was_the_start_loses_everything_but_likeness() -> None:
    expect(scored(CHAIN, [[A, B]], [[A]]), tl=4, ne=4, osr=1, sr=0, spl=0, ndtw=exp(-4 / 3), cls=0)
    expect(scored(CHAIN, [[A, B, A]], [[A]]), tl=8, ne=0, sr=1, spl=0, cls=0)


def test_rows_do_not_touch_each_other_and_padding_is_ignored() -> None:
    paths, references = [[A, B], [A, B, C, D], [A]], [[A, B, C], [A, B], [A, B, C, D]]
    together = scored(CHAIN, paths, references, filler=D)
    for row in range(3):
        alone = scored(CHAIN, [paths[row]], [references[row]])
        for name, values in alone.items():
            assert together[name][row].item() == pytest.approx(values.item(), abs=1e-12)


def test_summary_is_the_mean() -> None:
    scores = scored(CHAIN, [[A, B, C], [A, B]], [[A, B, C], [A, B, C]])
    means = summary(scores)
    assert means["n"] == 2
    assert isinstance(means["n"], int)
    assert (means["tl"], means["ne"], means["sr"]) == (5.5, 1.5, 0.5)
    assert means.keys() == scores.keys() | {"n"}


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(UserError, match=r"no protocol 'due'\. Did you mean 'duet'"):
        scored(CHAIN, [[A]], [[A]], "due")


walks = st.lists(st.booleans(), max_size=6)


def walk(world: NavGraph, start: int, choices: list[bool]) -> list[int]:
    """A walk without turns: each choice picks the first or the last of the neighbours."""
    path = [start]
    for last in choices:
        edges = np.flatnonzero(world.houses[0].edges[path[-1]])
        path.append(int(edges[-1 if last else 0]))
    return path


def slow_warping(world: NavGraph, path: list[int], reference: list[int]) -> float:
    """Dynamic time warping, straight from its definition."""
    apart = world.houses[0].distances

    @cache
    def cost(i: int, j: int) -> float:
        if i < 0 or j < 0:
            return 0.0 if i == j else float("inf")
        here = apart[path[i], reference[j]]
        return float(here) + min(cost(i - 1, j), cost(i, j - 1), cost(i - 1, j - 1))

    return cost(len(path) - 1, len(reference) - 1)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(walks, walks), min_size=1, max_size=4), st.sampled_from(PROTOCOLS))
def test_the_laws_between_the_metrics(
    choices: list[tuple[list[bool], list[bool]]], protocol: str
) -> None:
    paths = [walk(SHORT_CUT, A, mine) for mine, _ in choices]
    references = [walk(SHORT_CUT, A, theirs) for _, theirs in choices]
    scores = scored(SHORT_CUT, paths, references, protocol)
    for path, reference, ndtw in zip(paths, references, scores["ndtw"].tolist(), strict=True):
        slow = exp(-slow_warping(SHORT_CUT, path, reference) / (3 * len(reference)))
        assert ndtw == pytest.approx(slow, abs=1e-12)
    assert torch.equal(scores["sdtw"], scores["ndtw"] * scores["sr"])
    assert (scores["osr"] >= scores["sr"]).all()
    assert (scores["spl"] <= scores["sr"]).all()
    for name in ("spl", "ndtw", "cls"):
        assert ((scores[name] >= 0) & (scores[name] <= 1)).all()


@settings(deadline=None, max_examples=40)
@given(walks, walks, st.lists(st.integers(1, 3), min_size=7, max_size=7))
def test_turning_on_the_spot_changes_nothing(
    mine: list[bool], theirs: list[bool], repeats: list[int]
) -> None:
    path, reference = walk(CHAIN, A, mine), walk(CHAIN, A, theirs)
    turning = [v for v, times in zip(path, repeats, strict=False) for _ in range(times)]
    plain = scored(CHAIN, [path], [reference])
    expect(scored(CHAIN, [turning], [reference]), **{key: v.item() for key, v in plain.items()})
