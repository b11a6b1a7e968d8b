"""The benchmark of the loop counts what it says, and its numbers hang together."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
import torch

from langgoalirl.bench import curves, learning
from langgoalirl.cli import main
from langgoalirl.commands import bench as command
from langgoalirl.recipe import WorldChoice

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_world", lambda options: WorldChoice(houses=1, unseen=1))
    quick = functools.partial(learning.milliseconds, seconds=0.001)
    monkeypatch.setattr(learning, "milliseconds", quick)
    monkeypatch.setattr(curves, "milliseconds", quick)
    monkeypatch.setattr(learning, "ROUNDS", 1)
    monkeypatch.setattr(learning, "DEMONSTRATIONS", 50)
    monkeypatch.setattr(learning, "WARM", 1)


def test_every_part_of_the_loop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bench.json"
    command = ["bench", "--hidden", "16", "--batch", "32", "--interactions", "1", "--json"]
    assert main([*command, "--results", str(file)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert json.loads(file.read_text())["metrics"] == found
    assert (found["hidden"], found["batch"], found["world"]) == (16, 32, "houses")
    parts = found["parts"]
    assert min(row["ms"] for row in parts.values()) > 0
    # An update's products are those of its halves, and a forward pass has fewer than both ways.
    halves = [parts[f"{name} update"]["gflop"] for name in ("discriminator", "actor-critic")]
    assert parts["update"]["gflop"] == pytest.approx(sum(halves), rel=0.05)
    for name in ("f", "Q", "π"):
        both = parts[f"{name} forward and backward"]["gflop"]
        assert 1.5 < both / parts[f"{name} forward"]["gflop"] < 2.1
    for row in parts.values():
        rate = found["gflops"]["mm_bf16"] * row["ms"] * 1e-3
        assert row["of_products"] == pytest.approx(row["gflop"] / rate)
    assert {"mm", "addmm"} <= found["operations"].keys()
    assert min(found["operations"].values()) > 0
    loop = found["loop"]
    assert loop["minutes_per_million"] == pytest.approx(1e6 / loop["interactions_per_second"] / 60)
    assert loop["without_updates"] > loop["interactions_per_second"]
    if learning.plain_learner() is not None:
        assert found["plain"].keys() == {"plain_highest", "plain_medium", "plain_bf16"}
        row = found["plain"]["plain_bf16"]
        assert row["times"] == pytest.approx(row["ms"] / parts["update"]["ms"])


def test_products_are_counted_whole() -> None:
    """Q on P candidates: the state once, the action for each, and the last layer."""
    bench = learning.prepared(WorldChoice(houses=1, unseen=1), hidden=16, batch=32)
    steps = bench.batches(torch.Generator().manual_seed(0))[2]
    choices = bench.learner.choices(steps.now.key)
    wide, p = bench.world.feature_width, len(choices.row)

    def q() -> None:
        with torch.no_grad():
            bench.learner.values(bench.learner.q, steps.now, choices)

    assert learning.flops(q) == 2 * (32 * 32 * 32 + p * wide * 32 + p * 32 * 2)


def test_what_a_plain_update_multiplies_beyond_ours() -> None:
    """Nothing, where every state has the one candidate that there can be; else more and more."""
    one = learning.avoided(batch=10, hidden=8, wide=5, most=1, some=1)
    for why in list(one)[:3]:
        assert one[why] == 0
    many = learning.avoided(batch=10, hidden=8, wide=5, most=14, some=5)
    assert all(many[why] > 0 for why in many)
    # Ten states of 26 numbers into eight units, for 13 more candidates, 18 times over.
    first = next(iter(many.values()))
    assert first == pytest.approx(2e-9 * 10 * 26 * 8 * 13 * 18)


def test_curves_are_measured_and_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"batch": 8, "hidden": 8, "candidates": 3, "width": 5}
    monkeypatch.setattr(curves, "USUAL", small)
    monkeypatch.setattr(curves, "CURVES", dict.fromkeys(small, (4, 8)))
    monkeypatch.setattr(curves, "EPISODES", (5,))
    monkeypatch.setattr(curves, "INTERACTIONS", 10)
    assert main(["bench", "curves", "--plot", str(tmp_path / "c.svg"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == curves.TITLES.keys()
    for name in small:
        assert [point[0] for point in found[name]] == [4, 8]
    sizes = [gigabytes for _, gigabytes, _ in found["replay"]]
    assert sizes == sorted(sizes)
    drawn = (tmp_path / "c.svg").read_text()
    assert all(title in drawn for title, _ in curves.TITLES.values())


@pytest.mark.parametrize("wrong", [["--hidden", "6"], ["--batch", "1"], ["--width", "-1"]])
def test_shapes_that_make_no_sense_are_refused(
    wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *wrong]) != 0
    assert "must be a multiple of 4" in capsys.readouterr().err
