"""The plain update that ours is measured against computes the same numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from langgoalirl.bench.learning import plain_learner, prepared
from langgoalirl.irl.learner import Learner
from langgoalirl.recipe import WorldChoice

torch.set_num_threads(1)

pytestmark = pytest.mark.skipif(
    plain_learner() is None, reason="benchmarks/ is not beside the sources"
)


def test_losses_and_what_is_learned_are_the_same() -> None:
    work = prepared(WorldChoice(houses=1, unseen=1), hidden=32, batch=40, precision="fp32", drop=0)
    learner: Learner = work.learner
    plain: Any = plain_learner()(learner)
    draw = torch.Generator().manual_seed(0)
    for _ in range(4):
        positive, negative, batch = work.batches(draw)
        ours = learner.update_discriminator(positive, negative) | learner.update_policy(batch)
        theirs = plain.update(positive, negative, batch)
        for name, value in theirs.items():
            assert ours[name].item() == pytest.approx(value, rel=1e-4, abs=1e-5), name
    kept, reward = learner.weights["kept"].named(), learner.weights["reward"].named()
    torch.testing.assert_close(plain.kept.last.weight, kept["out"], atol=1e-6, rtol=1e-3)
    torch.testing.assert_close(plain.absorbed, reward["absorbed"], atol=1e-5, rtol=1e-4)
