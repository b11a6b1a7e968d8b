"""The benchmark of the world measures what it says, on a world that is small enough for a test."""

from __future__ import annotations

import functools
import json

import pytest

from langgoalirl.bench import world as module
from langgoalirl.cli import main
from langgoalirl.recipe import WorldChoice
from langgoalirl.worlds.houses.world import Houses


def test_rates_and_ratios(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def small(choice: WorldChoice, device: str) -> Houses:
        return Houses(0, houses=1, unseen=1, routes=2, features=choice.features, device=device)

    monkeypatch.delenv("LANGGOALIRL_R2R", raising=False)
    monkeypatch.setattr(module, "open_world", small)
    monkeypatch.setattr(module, "_rates", functools.partial(module._rates, seconds=0.01))
    assert main(["bench", "world", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rates = {name: rate["per_second"] for name, rate in found["steps_per_second"].items()}
    assert rates.keys() == {"transitions", "observed_2048", "copy_2048", "observed_own"}
    assert min(rates.values()) > 0
    assert found["of_memory_limit"] == rates["observed_2048"] / rates["copy_2048"]
    assert found["times_r2rbatch"] == [rates["observed_2048"] / n for n in (11_000, 7_000)]
    assert (found["world"], found["own_width"]) == ("houses", 92)
