"""On a GPU: an update that is played back is the update. Skipped where there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from langgoalirl.irl.learner import Learner, Rates
from langgoalirl.irl.recorded import Recorded
from langgoalirl.irl.transitions import Situation, Steps
from langgoalirl.models.policy import PolicyHead
from langgoalirl.models.sizes import Sizes
from langgoalirl.rollout import STEP_LIMIT
from langgoalirl.worlds.houses.world import Houses

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

HIDDEN, BATCH = 32, 64


def learner(world: Houses, rates: Rates) -> Learner:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        sizes = Sizes(hidden=HIDDEN)
        return Learner(
            world, PolicyHead(world.feature_width, sizes).eval(), sizes, STEP_LIMIT, rates
        )


def batch(world: Houses, made: Learner, seed: int) -> Steps:
    draw = torch.Generator("cuda").manual_seed(seed)

    def situation() -> Situation:
        key = torch.randint(36 * len(world.house_of), (BATCH,), generator=draw, device="cuda")
        time = torch.randint(STEP_LIMIT, (BATCH,), generator=draw, device="cuda")
        encoded = torch.randn(BATCH, 2 * HIDDEN, generator=draw, device="cuda")
        prior = made.log_prior(key, *encoded.chunk(2, dim=-1))
        return Situation(key, time, encoded.to(made.dtype), prior)

    last = torch.rand(BATCH, generator=draw, device="cuda") < 0.3
    return Steps(situation(), (~last).long(), situation(), last)


@pytest.mark.parametrize(("precision", "apart"), [("fp32", 1e-4), ("bf16", 3e-2)])
def test_playing_back_learns_what_updating_learns(precision: str, apart: float) -> None:
    world = Houses(0, houses=1, unseen=1, routes=2, device="cuda")
    rates = replace(Rates(), batch=BATCH, dropout=0.0, precision=precision, entropy=0.5)
    plain, recorded = learner(world, rates), learner(world, rates)
    play = Recorded(recorded)
    for i in range(8):
        batches = [batch(world, plain, 3 * i + k) for k in range(3)]
        wanted, found = plain.update(*batches), play(*batches)
        for name, value in wanted.items():
            assert found[name].item() == pytest.approx(value.item(), abs=apart, rel=apart), name
    assert play.graph is not None
    for name, weights in plain.weights.items():
        difference = (weights.exact - recorded.weights[name].exact).abs().max().item()
        assert difference < 10 * apart, name


def test_chance_goes_on_from_one_playing_to_the_next() -> None:
    """Dropout hides other units every time, and the same ones after the same seed."""
    world = Houses(0, houses=1, unseen=1, routes=2, device="cuda")
    rates = replace(Rates(), batch=BATCH, dropout=0.5)
    made = learner(world, rates)
    play = Recorded(made)
    batches = [batch(world, made, k) for k in range(3)]
    for _ in range(5):
        play(*batches)
    kept = {name: weights.exact.clone() for name, weights in made.weights.items()}
    losses = []
    for seed in (1, 1, 2):
        for name, weights in made.weights.items():
            weights.exact.copy_(kept[name])
            weights.half.copy_(weights.exact[: weights.halves])
        made.generator.manual_seed(seed)
        losses.append(play(*batches)["d_loss"].item())
    assert losses[0] == losses[1] != losses[2]
