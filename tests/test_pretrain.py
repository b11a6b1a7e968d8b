"""Pretraining from end to end, in three tiny houses and a handful of updates."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from langgoalirl import pretrain as module
from langgoalirl.config import as_dict
from langgoalirl.demonstrations import observe_along
from langgoalirl.errors import UserError
from langgoalirl.language.vocabulary import END, Vocabulary
from langgoalirl.models.policy import FrozenEncoder
from langgoalirl.models.sizes import Sizes
from langgoalirl.models.speaking import Sampling, sample_goals
from langgoalirl.objectives import (
    FrozenDemonstrations,
    imitation_loss,
    lower_bound,
    walk_along,
)
from langgoalirl.pretrain import initialised, pretrain
from langgoalirl.recipe import Pretraining, WorldChoice, open_world
from langgoalirl.rollout import rollout
from langgoalirl.run_folder import RunFolder, Tensors, digest
from langgoalirl.trained import Trained
from langgoalirl.training import GeneratorTraining, Training
from langgoalirl.worlds.geometry import VIEWS
from langgoalirl.worlds.types import NO_ACTION, STOP

torch.set_num_threads(1)

SHORT = Training(updates=4, batch=8, validate_every=2, mirror=True, average=0.9)
RECIPE = Pretraining(
    world=WorldChoice(houses=3, unseen=1),
    sizes=Sizes(hidden=16, word=8, angle=4, latent=4),
    select_split="val_unseen",
    base_model=SHORT,
    bc=SHORT,
    goal_agnostic=SHORT,
    goal_generator=GeneratorTraining(updates=4, batch=8, validate_every=2, kl_updates=10),
)
EVERY = ["base_model", "bc", "bc_concat", "goal_agnostic", "goal_generator"]


@pytest.fixture(scope="module", autouse=True)
def _each_world_once() -> Iterator[None]:
    """Houses take a moment to build; nothing here changes them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "open_world", cache(open_world))
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which everything was trained once, as the run 'tiny'."""
    folder = tmp_path_factory.mktemp("runs")
    pretrain(RECIPE, folder, "tiny", EVERY)
    return folder


@pytest.fixture(scope="module")
def trained(runs: Path) -> Trained:
    return Trained.open(runs / "tiny")


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The stages whose training begins; none of them gets further."""
    begun: list[str] = []

    def fit(run: RunFolder, *anything: Any, **more: Any) -> Tensors:
        begun.append(run.path.name.rsplit("-", 1)[0])
        raise InterruptedError

    monkeypatch.setattr(module, "fit", fit)
    return begun


def test_the_run_folder_is_complete(runs: Path) -> None:
    run = RunFolder(runs / "tiny")
    assert run.finished
    assert run.config == json.loads(json.dumps(as_dict(RECIPE)))
    assert list(run.status["stages"]) == EVERY
    assert len(set(run.status["stages"].values())) == 5
    for name, place in run.status["stages"].items():
        stage = RunFolder(runs / place)
        assert stage.finished
        assert stage.path.parent == runs / "stages"
        assert stage.status["digest"] == digest(stage.need("final"))
        assert stage.status.keys() >= {"config_digest", "commit", "date", "minutes"}
        logged = {key for line in stage.metrics() for key in line}
        if name == "goal_generator":
            assert logged >= {"reconstruction", "kl", "loss"}
        else:
            assert logged >= {"agreement", "loss", "sr", "spl", "ne"}
            best = stage.load("best")
            assert best is not None
            assert digest(best[0]) == stage.status["digest"]
    vocabulary = Vocabulary.load(runs / run.status["stages"]["base_model"] / "vocabulary.json")
    assert vocabulary.words == Trained.open(runs / "tiny").ground.vocabulary.words


def test_a_second_call_trains_nothing(runs: Path, fits: list[str]) -> None:
    before = RunFolder(runs / "tiny").status
    _, stages = pretrain(RECIPE, runs, "tiny", EVERY)
    assert fits == []
    assert [stage.path for stage in stages.values()] == [
        runs / place for place in before["stages"].values()
    ]
    assert RunFolder(runs / "tiny").status == before


@pytest.mark.parametrize(
    ("changes", "again"),
    [
        ({"goal_generator": replace(RECIPE.goal_generator, free_nats=1.0)}, ["goal_generator"]),
        ({"bc": replace(SHORT, updates=6)}, ["bc", "bc"]),
        ({"seed": 1}, ["base_model", "base_model", "goal_agnostic", "goal_generator"]),
        ({"min_count": 4}, ["base_model", "base_model", "goal_agnostic", "goal_generator"]),
        (
            {"world": WorldChoice(seed=1, houses=3, unseen=1)},
            ["base_model", "base_model", "goal_agnostic", "goal_generator"],
        ),
    ],
)
def test_only_what_a_change_touches_is_trained_again(
    changes: dict[str, Any], again: list[str], runs: Path, fits: list[str], tmp_path: Path
) -> None:
    (tmp_path / "stages").symlink_to(runs / "stages")
    for i, kind in enumerate(["bc", "bc_concat", "goal_agnostic", "goal_generator"]):
        try:
            pretrain(replace(RECIPE, **changes), tmp_path, f"other{i}", [kind])
        except InterruptedError:
            continue
    assert fits == again


def test_the_same_recipe_gives_the_same_bytes_elsewhere(runs: Path, tmp_path: Path) -> None:
    _, stages = pretrain(RECIPE, tmp_path, "again", ["bc", "goal_generator"])
    assert list(stages) == ["base_model", "bc", "goal_generator"]
    first = RunFolder(runs / "tiny").status["stages"]
    for name, stage in stages.items():
        assert stage.status["digest"] == RunFolder(runs / first[name]).status["digest"]
        assert str(stage.path.relative_to(tmp_path)) == first[name]


def test_another_base_model_makes_another_policy(runs: Path) -> None:
    """Though nothing in behaviour cloning's own settings has changed."""
    other = replace(RECIPE, base_model=replace(SHORT, learning_rate=1e-3))
    _, stages = pretrain(other, runs, "other", ["bc"])
    first = RunFolder(runs / "tiny").status["stages"]
    assert stages["base_model"].path != runs / first["base_model"]
    assert stages["bc"].path != runs / first["bc"]


def test_behaviour_cloning_in_single_precision(runs: Path) -> None:
    exact = replace(RECIPE, bc=replace(SHORT, updates=2, precision="fp32"))
    _, stages = pretrain(exact, runs, "exact", ["bc"])
    assert stages["bc"].finished
    assert (
        stages["base_model"].path == runs / RunFolder(runs / "tiny").status["stages"]["base_model"]
    )


def test_stages_are_added_to_a_run(runs: Path) -> None:
    for wanted, known in (
        (["goal_agnostic"], ["goal_agnostic"]),
        (["bc"], ["goal_agnostic", "base_model", "bc"]),
    ):
        run, _ = pretrain(RECIPE, runs, "grown", wanted)
        assert list(run.status["stages"]) == known


def test_another_recipe_under_the_same_name_is_refused(runs: Path) -> None:
    with pytest.raises(UserError, match="another configuration"):
        pretrain(replace(RECIPE, seed=5), runs, "tiny", [])


# What was trained, opened again


@pytest.mark.parametrize("name", ["base_model", "bc", "bc_concat", "goal_agnostic"])
def test_followers_act(name: str, trained: Trained) -> None:
    ground, follower = trained.ground, trained.follower(name)
    assert isinstance(follower, nn.Module)
    assert not follower.training
    assert digest(follower.state_dict()) == trained.folder(name).status["digest"]
    split = ground.world.split("val_unseen")
    done = rollout(ground.world, follower, split.tasks, ground.words(split))
    assert torch.equal(done.states[:, 0], split.tasks.start)
    assert bool((done.lengths >= 1).all())
    moved = done.states[:, :-1] // VIEWS != done.states[:, 1:] // VIEWS
    assert torch.equal(moved, done.actions > STOP)


def test_behaviour_cloning_stands_on_the_trained_base_model(trained: Trained) -> None:
    base = digest(trained.base_model().state_dict())
    for name, attention in (("bc", True), ("bc_concat", False)):
        policy: Any = trained.follower(name)
        assert digest(policy.encoder.base.state_dict()) == base
        assert policy.encoder.attention is attention


def test_the_goal_generator_speaks(trained: Trained) -> None:
    ground, model = trained.ground, trained.goal_generator()
    assert digest(model.state_dict()) == trained.folder("goal_generator").status["digest"]
    batch = ground.data.rows(torch.arange(5))
    encoded = model.encode(walk_along(ground.world, batch))
    words = sample_goals(model, encoded, Sampling(samples=2, limit=7), torch.Generator())
    assert (words == END).sum(-1).tolist() == [[1, 1]] * 5


def test_an_unknown_stage_is_one_sentence(runs: Path, trained: Trained) -> None:
    with pytest.raises(UserError, match=r"stage 'goal_agnostc' .*mean 'goal_agnostic'"):
        trained.follower("goal_agnostc")
    with pytest.raises(UserError, match="is no finished run"):
        Trained.open(runs / "nowhere")


# The pieces


def test_imitation_loss_by_hand() -> None:
    """Three real steps: the expert took what has ¾, ¼ and ½; candidates that are absent are out."""
    three, absent = math.log(3), [True, True, False]
    logits = torch.tensor([[[0, three, 9], [three, 0, 9]], [[0.0, 1.0, 0.0], [0, 5, 5]]])
    mask = torch.tensor([[absent, absent], [[True, False, True], [True, True, True]]])
    actions = torch.tensor([[1, 1], [2, NO_ACTION]])
    loss, agreement = imitation_loss(logits, mask, actions)
    assert loss.item() == pytest.approx(-math.log(3 / 4 * 1 / 4 * 1 / 2) / 3)
    assert agreement.item() == pytest.approx(1 / 3)  # of a tie, the first is taken


def test_the_first_weights_follow_from_the_seed_alone() -> None:
    state = torch.random.get_rng_state()
    first, again, other = (initialised(seed, nn.Linear, 3, 4) for seed in (1, 1, 2))
    assert digest(first.state_dict()) == digest(again.state_dict())
    assert digest(first.state_dict()) != digest(other.state_dict())
    assert torch.equal(torch.random.get_rng_state(), state)


def test_frozen_encodings_are_those_of_the_same_side(trained: Trained) -> None:
    ground = trained.ground
    encoder = FrozenEncoder(trained.base_model())
    frozen = FrozenDemonstrations(ground.world, ground.data, encoder, mirror=True)
    batch = ground.data.rows(torch.tensor([7, 200, 3]), torch.tensor([True, False, True]))
    wanted = encoder.along(batch.words, observe_along(ground.world, batch, torch.float32))
    real = batch.actions != NO_ACTION
    for found, part in zip(frozen.of(batch, torch.float32), wanted, strict=True):
        # Eight bits of a bfloat16's fraction.
        torch.testing.assert_close(found[real], part[real], rtol=2**-8, atol=1e-6)
    plain = ground.data.rows(batch.rows)
    assert not torch.equal(
        frozen.of(plain, torch.float32).state, frozen.of(batch, torch.float32).state
    )


@pytest.mark.parametrize("free", [0.0, 1000.0])
def test_the_bounds_weight_grows_and_some_nats_are_free(free: float, trained: Trained) -> None:
    settings = replace(RECIPE.goal_generator, free_nats=free, precision="fp32")
    objective = lower_bound(trained.ground.world, trained.goal_generator(), settings)
    batch = trained.ground.data.rows(torch.arange(6))
    for update, weight in ((0, 0.0), (5, 0.5), (10, 1.0), (99, 1.0)):
        loss, details = objective(batch, update, torch.Generator().manual_seed(0))
        kl = max(details["kl"].item(), free)
        wanted = details["reconstruction"].item() + weight * kl
        assert loss.item() == pytest.approx(wanted, rel=1e-5)
    assert 0 < details["kl"].item() < 1000
