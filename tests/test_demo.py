"""The demo, with hardly any training: it is about what comes out at the end."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from langgoalirl import demo
from langgoalirl.irl.algorithm import Strategies
from langgoalirl.irl.learner import Rates
from langgoalirl.models.sizes import Sizes
from langgoalirl.recipe import WorldChoice
from langgoalirl.training import GeneratorTraining, Training

SHORT = Training(updates=2, batch=8, validate_every=2)


def test_the_demo_scores_describes_and_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(
        demo.RECIPE,
        world=WorldChoice(houses=3, unseen=2),
        sizes=Sizes(hidden=16, word=8, angle=4, latent=4),
        base_model=SHORT,
        bc=SHORT,
        goal_generator=GeneratorTraining(updates=2, batch=8, validate_every=2),
        interactions=20,
        look_every=20,
        strategies=Strategies(expert_goals=1, episodes=4, sampled=8, replay=1000),
        rates=Rates(batch=8),
    )
    methods = {
        label: (name, replace(s, episodes=4, sampled=8, replay=1000))
        for label, (name, s) in demo.METHODS.items()
    }
    monkeypatch.setattr(demo, "METHODS", methods)
    monkeypatch.setattr(demo, "RECIPE", recipe)
    found, page = demo.run_demo(tmp_path)

    assert found.scores["shortest path (knows the goal)"]["val_unseen"]["sr"] == 1.0
    assert found.scores["random"]["val_unseen"]["sr"] < 0.1
    assert [len(row) for row in demo.table_rows(found)] == [5] * 5
    assert all(curve.points("sr_val_unseen")[2] for curve in found.curves)
    assert len(found.sentences) == 5
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg") == 4
    for _, sentences in found.maps:
        assert len(sentences) == 3
    assert not re.search(r"(src|href)=[\"']?https?:", text)  # nothing is loaded from anywhere
    assert page == tmp_path / "demo" / "report.html"
    assert (tmp_path / "demo-langgoalirl" / "config.json").exists()
