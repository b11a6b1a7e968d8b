"""`adapt`: new houses, without anything that anybody said there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import langgoalirl.pretrain as pretraining
from langgoalirl.adaptation import Adaptation, adapt, chosen_houses, demonstrations_of
from langgoalirl.adversarial import Learning, train
from langgoalirl.cli import main
from langgoalirl.irl.algorithm import LangGoalIRL, Strategies
from langgoalirl.irl.learner import Rates
from langgoalirl.models.sizes import Sizes
from langgoalirl.recipe import WorldChoice, open_world
from langgoalirl.run_folder import RunFolder
from langgoalirl.trained import Trained
from langgoalirl.training import GeneratorTraining, Training
from langgoalirl.worlds.geometry import VIEWS
from langgoalirl.worlds.types import NO_ACTION, STOP, Split

torch.set_num_threads(1)

SHORT = Training(updates=3, batch=8, validate_every=2)
RECIPE = Learning(
    world=WorldChoice(houses=1, unseen=2),
    sizes=Sizes(hidden=8, word=4, angle=4, latent=4, dropout=0.3),
    word_limit=20,
    base_model=SHORT,
    bc=SHORT,
    goal_agnostic=SHORT,
    goal_generator=GeneratorTraining(updates=3, batch=8, kl_updates=2),
    interactions=300,
    look_every=300,
    watch="val_unseen",
    strategies=Strategies(1, episodes=20, sampled=10.0, replay=300),
    rates=Rates(batch=64),
)
HOW = Adaptation(trajectories=60, interactions=400, look_every=150, watch="val_unseen")


@pytest.fixture(scope="module", autouse=True)
def _each_world_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretraining, "open_world", cache(open_world))
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    train(RECIPE, folder, "lang")
    return folder


def opened(runs: Path) -> Trained:
    return Trained.open(runs / "lang")


def houses(trained: Trained) -> torch.Tensor:
    return chosen_houses(trained.ground.world, "val_unseen", "")


def test_the_walks_are_experts_in_the_new_houses_with_a_sentence_each(runs: Path) -> None:
    trained = opened(runs)
    world, wanted = trained.ground.world, houses(opened(runs))
    _, stages = adapt(trained, wanted, HOW, "walks")
    data = demonstrations_of(trained.ground, stages["walks"])
    assert len(data) == 60
    taken = data.actions != NO_ACTION
    assert set(world.house_of[data.states[taken] // VIEWS].tolist()) <= set(wanted.tolist())
    lengths = taken.sum(1)
    assert bool((lengths > 1).all())
    assert bool((data.actions.gather(1, lengths[:, None] - 1) == STOP).all())
    assert bool(((data.words != 0).sum(1) > 0).all())
    assert len({tuple(row) for row in data.states.tolist()}) > 30


def test_it_goes_on_where_training_ended(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the weights and critics of the last update, new demonstrations, no EGR, and rollouts
    in the new houses alone."""
    trained = opened(runs)
    last: Any = trained.folder("policy").load("last")
    seen: list[LangGoalIRL] = []
    first: list[dict[str, torch.Tensor]] = []
    real = LangGoalIRL.iterate

    def iterate(self: LangGoalIRL) -> Iterator[dict[str, torch.Tensor]]:
        if not seen:
            seen.append(self)
            first.append({k: v.clone() for k, v in self.learner.state().items()})
        yield from real(self)

    monkeypatch.setattr(LangGoalIRL, "iterate", iterate)
    run, stages = adapt(trained, houses(trained), replace(HOW, run_seed=1, rounds=2), "on")
    for name, value in first[0].items():
        assert torch.equal(value, last[0][f"learner.{name}"]), name
    irl = seen[0]
    assert irl.strategies == replace(RECIPE.strategies, expert_goals=0, rounds=2)
    data = demonstrations_of(trained.ground, stages["walks"])
    assert irl.expert_goals.size == len(data)
    world = trained.ground.world
    keys = irl.replay.columns["key"][: irl.replay.size]
    assert set(world.house_of[keys // VIEWS].tolist()) <= set(houses(trained).tolist())
    looks = stages["policy"].metrics()
    assert looks[0]["interactions"] == 0
    ended = trained.folder("policy").metrics()[-1]
    assert looks[0]["sr_val_unseen"] == ended["sr_val_unseen"]
    assert looks[0]["ne_val_unseen"] == pytest.approx(ended["ne_val_unseen"])
    prior = trained.folder("policy").need("final")
    for name, value in irl.learner.prior.state_dict().items():
        assert torch.equal(value, prior[f"prior.{name}"]), name
    assert looks[-1]["interactions"] >= HOW.interactions
    assert all("sr_val_unseen" in line for line in looks)
    follower = Trained.open(run.path).follower("policy")
    assert follower is not None


def test_only_the_houses_of_a_split_are_read(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other instructions, starts and goals in the same houses: the same bytes."""
    (tmp_path / "stages").mkdir()
    for stage in (runs / "stages").iterdir():
        if not stage.name.startswith(("walks", "langgoalirl_adapted")):
            (tmp_path / "stages" / stage.name).symlink_to(stage)
    (tmp_path / "lang").symlink_to(runs / "lang")
    how = replace(HOW, watch="", run_seed=2)
    plain, _ = adapt(opened(runs), houses(opened(runs)), how, "plain")
    trained = opened(tmp_path)
    world = trained.ground.world
    real = type(world).split

    def other(self: Any, name: str) -> Split:
        split = real(self, name)
        if name != "val_unseen":
            return split
        some = torch.unique(split.tasks.start // VIEWS)
        start = some.flip(0)[: len(split)] * VIEWS + 5
        start = torch.cat([start, split.tasks.start])[: len(split)]
        tasks = replace(split.tasks, goals=["nonsense"] * len(split), start=start)
        return replace(split, tasks=tasks, demonstrations=None, references=None)

    monkeypatch.setattr(type(world), "split", other)
    assert world.split("val_unseen").tasks.goals[0] == "nonsense"
    changed, _ = adapt(trained, houses(trained), how, "plain")
    assert changed.status["digest"] == plain.status["digest"]


def test_the_control_clones_the_very_same_walks(runs: Path) -> None:
    trained = opened(runs)
    _, ours = adapt(trained, houses(trained), HOW, "ours")
    run, control = adapt(trained, houses(trained), HOW, "control", control=True)
    assert control["walks"].path == ours["walks"].path
    before = trained.folder("bc").need("final")
    after = control["bc"].need("final")
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(name.startswith("head.") for name in changed)
    assert Trained.open(run.path).follower("bc") is not None


def test_random_exploration_is_another_set_of_walks(runs: Path) -> None:
    trained = opened(runs)
    _, stages = adapt(trained, houses(trained), replace(HOW, explore="random"), "random")
    data = demonstrations_of(trained.ground, stages["walks"])
    moved = (data.actions > STOP).sum(1)
    assert len(data) == 60
    for row, count in zip((data.states // VIEWS).tolist(), moved.tolist(), strict=True):
        visited = row[: count + 1]
        assert len(set(visited)) == len(visited)


def test_the_command_prints_the_curve(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(runs / "lang")
    fields = ["trajectories=60", "interactions=400", "look_every=150", "watch=val_unseen"]
    assert main(["adapt", run, "--split", "val_unseen", "--name", "cli", *fields]) == 0
    assert "sr_val_unseen" in capsys.readouterr().out
    assert RunFolder(runs / "cli").finished


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([], "give either --split or --scans"),
        (["--split", "val_unseen", "--scans", "x"], "give either --split or --scans"),
        (["--scans", "nowhere"], "there is no house 'nowhere'"),
        (["--split", "val_unseen", "rounds=1"], "'rounds' must be 0 or 2"),
        (["--split", "val_unseen", "trajectories=0"], "'trajectories' must be at least 1"),
    ],
)
def test_mistakes_are_answered(
    wrong: list[str], message: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["adapt", str(runs / "lang"), *wrong]) != 0
    assert message in capsys.readouterr().err
