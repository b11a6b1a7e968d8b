"""Sets of sentences that differ, and the one that is followed best."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from langgoalirl.language.vocabulary import END, PAD
from langgoalirl.models.speaking import Sampling, most_different, shared_pairs

A, B, C, D = 10, 11, 12, 13


def said(*sentences: list[int]) -> torch.Tensor:
    """One path with these sentences, END and padding behind them."""
    rows = [[*words, END, *[PAD] * (5 - len(words))] for words in sentences]
    return torch.tensor([rows])


def test_shared_pairs_by_hand() -> None:
    words = said([A, B, C], [A, B, D], [B, A])
    # Pairs: AB BC C. | AB BD D. | BA A.
    wanted = torch.tensor([[[1, 1 / 3, 0], [1 / 3, 1, 0], [0, 0, 1]]])
    torch.testing.assert_close(shared_pairs(words), wanted)


def test_shared_pairs_are_those_of_the_same_path() -> None:
    one, two = said([A, B, C], [A, B, D]), said([D, C], [D, C, A])
    both = shared_pairs(torch.cat([one, two]))
    torch.testing.assert_close(both[:1], shared_pairs(one))
    torch.testing.assert_close(both[1:], shared_pairs(two))


def test_the_first_is_kept_then_what_differs_from_all_kept() -> None:
    words = said([A, B, C], [A, B, C], [A, B, D], [D, C, B, A], [D, C, B])
    assert most_different(words, 1).tolist() == [[0]]
    assert most_different(words, 2).tolist() == [[0, 3]]
    assert most_different(words, 3).tolist() == [[0, 3, 2]]


def test_nothing_is_kept_twice() -> None:
    words = said([A, B], [A, B], [A, B])
    assert sorted(most_different(words, 3)[0].tolist()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("samples", 0), ("draws", 0), ("limit", 0)),
        *(("temperature", -1.0), ("spread", -1.0), ("nucleus", 0.0), ("nucleus", 1.1)),
    ],
)
def test_impossible_sampling_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        replace(Sampling(), **{name: value})
