"""`train`: methods as stages, cut off and gone on with; and that one of them learns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import langgoalirl.pretrain as pretraining
from langgoalirl.adversarial import METHODS, Learning, new_learner, train
from langgoalirl.config import load
from langgoalirl.errors import UserError
from langgoalirl.evaluate import follow, follower_scores
from langgoalirl.irl.algorithm import LangGoalIRL, Strategies
from langgoalirl.irl.learner import Rates
from langgoalirl.metrics import summary
from langgoalirl.models.sizes import Sizes
from langgoalirl.models.speaking import Sampling
from langgoalirl.pretrain import Ground, new_policy
from langgoalirl.recipe import WorldChoice, open_world
from langgoalirl.rollout import STEP_LIMIT
from langgoalirl.run_folder import RunFolder, digest
from langgoalirl.trained import Trained
from langgoalirl.training import GeneratorTraining, Training

torch.set_num_threads(1)

SHORT = Training(updates=3, batch=8, validate_every=2, mirror=True)
EVERYTHING = Strategies(1, hgr=True, hgs=True, her=True, episodes=20, sampled=10.0, replay=300)
RECIPE = Learning(
    world=WorldChoice(houses=1, unseen=1),
    sizes=Sizes(hidden=8, word=4, angle=4, latent=4, dropout=0.3),
    word_limit=20,
    base_model=SHORT,
    bc=SHORT,
    goal_generator=GeneratorTraining(updates=3, batch=8, kl_updates=2),
    interactions=1500,
    look_every=400,
    watch="val_unseen",
    strategies=EVERYTHING,
    rates=Rates(batch=64, entropy=0.5, decay=0.01),
)
BASE = replace(EVERYTHING, expert_goals=0, hgr=False, hgs=False, her=False)


@pytest.fixture(scope="module", autouse=True)
def _each_world_once() -> Iterator[None]:
    """Houses take a moment to build; nothing here changes them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretraining, "open_world", cache(open_world))
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which LangGoalIRL was trained once, without interruption, as the run 'whole'."""
    folder = tmp_path_factory.mktemp("runs")
    train(RECIPE, folder, "whole")
    return folder


@pytest.fixture
def elsewhere(runs: Path, tmp_path: Path) -> Path:
    """Another folder, with the same pretraining but none of the runs."""
    (tmp_path / "stages").mkdir()
    for stage in (runs / "stages").iterdir():
        if not stage.name.startswith(METHODS):
            (tmp_path / "stages" / stage.name).symlink_to(stage)
    return tmp_path


def policy_stage(folder: Path, name: str) -> RunFolder:
    return RunFolder(folder / RunFolder(folder / name).status["stages"]["policy"])


def logged(stage: RunFolder) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without what depends on the machine."""
    machine = ("seconds", "peak_gb")
    return [{k: v for k, v in line.items() if k not in machine} for line in stage.metrics()]


def test_the_run_folder_is_complete(runs: Path) -> None:
    run = RunFolder(runs / "whole")
    assert run.finished
    assert list(run.status["stages"]) == [
        "base_model",
        "bc",
        "goal_generator",
        "expert_goals",
        "policy",
    ]
    stage = policy_stage(runs, "whole")
    assert stage.status["digest"] == run.status["digest"] == digest(stage.need("final"))
    lines = stage.metrics()
    steps = [line["interactions"] for line in lines]
    assert steps[0] == 0
    assert steps == sorted(set(steps))
    assert steps[-1] >= RECIPE.interactions
    assert all("sr_val_unseen" in line for line in lines)
    assert {"d_loss", "d_positive", "q_loss", "pi_loss", "entropy", "alpha"} <= lines[-1].keys()
    assert lines[-1]["alpha"] != 1.0
    assert 0.1 < lines[-1]["peak_gb"] < 10


class PowerCut(Exception):
    """What ends a run in the middle."""


def cut(monkeypatch: pytest.MonkeyPatch, iterations: int) -> None:
    """Let the power fail behind so many iterations of this process, in the middle of the next."""
    real, count = LangGoalIRL.iterate, 0

    def iterate(self: LangGoalIRL) -> Any:
        nonlocal count
        count += 1
        for i, measured in enumerate(real(self)):
            if count > iterations and i == 1:
                raise PowerCut
            yield measured

    monkeypatch.setattr(LangGoalIRL, "iterate", iterate)


@pytest.mark.parametrize(
    "cuts",
    [
        (1,),  # before the first checkpoint
        (5,),
        (4, 3, 4),
    ],
)
def test_a_run_that_was_cut_off_ends_with_the_same_bytes(
    cuts: tuple[int, ...], runs: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a replay that has gone round, averaged weights, a tuned temperature and dropout."""
    for i, iterations in enumerate(cuts):
        torch.manual_seed(i)  # what else a process may have drawn does not matter
        with monkeypatch.context() as patch:
            cut(patch, iterations)
            with pytest.raises(PowerCut):
                train(RECIPE, elsewhere, "cut")
    train(RECIPE, elsewhere, "cut")
    ends = [policy_stage(folder, name) for folder, name in ((runs, "whole"), (elsewhere, "cut"))]
    assert ends[0].status["digest"] == ends[1].status["digest"]
    assert logged(ends[0]) == logged(ends[1])
    last = ends[1].load("last")
    assert last is not None
    assert last[1]["replay_head"] != len(last[0]["replay.key"]) == RECIPE.strategies.replay


def test_a_run_that_was_cut_off_behind_its_last_checkpoint_only_writes_its_end(
    runs: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(self: RunFolder, **status: Any) -> None:
        raise PowerCut

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "finish", failing)
        with pytest.raises(PowerCut):
            train(RECIPE, elsewhere, "cut")
    with monkeypatch.context() as patch:
        cut(patch, 0)
        train(RECIPE, elsewhere, "cut")
    assert logged(policy_stage(elsewhere, "cut")) == logged(policy_stage(runs, "whole"))


def test_a_finished_method_is_not_trained_again(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor by a run that only looks at other splits, or more often."""
    cut(monkeypatch, 0)
    for i, other in enumerate((RECIPE, replace(RECIPE, watch="", look_every=100))):
        run, _ = train(other, runs, f"again{i}")
        assert run.status["stages"] == RunFolder(runs / "whole").status["stages"]


@pytest.mark.parametrize(
    "change",
    [
        {"run_seed": 1},
        {"start": "scratch"},
        {"rates": replace(RECIPE.rates, reward="g")},
        {"strategies": replace(EVERYTHING, her=False)},
    ],
)
def test_what_changes_a_run_changes_its_bytes_but_not_its_pretraining(
    change: dict[str, Any], runs: Path, elsewhere: Path
) -> None:
    run, stages = train(replace(RECIPE, interactions=300, **change), elsewhere, "other")
    before = RunFolder(runs / "whole").status
    assert run.status["digest"] != before["digest"]
    for name, place in run.status["stages"].items():
        if name != "policy":
            assert place == before["stages"][name]
    assert ("bc" in stages) == (change.get("start") != "scratch")


@pytest.mark.parametrize(
    ("method", "strategies"),
    [
        ("langgoalirl_base", BASE),
        ("lc_rl", BASE),
        ("agile", BASE),
        ("her", replace(BASE, her=True)),
        ("bc_egr", replace(BASE, expert_goals=2)),
    ],
)
def test_every_method_trains_and_follows(
    method: str, strategies: Strategies, elsewhere: Path
) -> None:
    recipe = replace(RECIPE, method=method, strategies=strategies, interactions=300)
    run, stages = train(recipe, elsewhere, method)
    assert ("goal_generator" in stages) == (method in ("her", "bc_egr"))
    assert ("bc_concat" in stages) == (method == "lc_rl")
    opened = Trained.open(run.path)
    ground = opened.ground
    split = ground.world.split("val_unseen")
    scores = summary(
        follower_scores(ground.world, opened.follower("policy"), split, ground.words(split))
    )
    assert 0 <= scores["sr"] <= 1
    tensors = stages["policy"].need("final")
    assert all(bool(value.isfinite().all()) for value in tensors.values())
    if method != "bc_egr":
        looked = stages["policy"].metrics()[-1]
        assert looked["sr_val_unseen"] == pytest.approx(scores["sr"])


def test_the_first_weights_depend_on_the_seeds_alone(runs: Path) -> None:
    """Not on torch's global state, which is left as it was."""
    ground = Ground(RECIPE, runs)
    base = RunFolder(runs / RunFolder(runs / "whole").status["stages"]["base_model"])
    digests = []
    for seed, run_seed in ((3, 0), (4, 0), (5, 1)):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        ground.recipe = replace(RECIPE, run_seed=run_seed)
        digests.append(digest(new_learner(ground, new_policy(ground, base)).state_dict()))
        assert torch.equal(torch.get_rng_state(), state)
    assert digests[0] == digests[1] != digests[2]


def test_the_start_is_behaviour_clonings_policy_or_not(runs: Path, elsewhere: Path) -> None:
    """Before anything is learned, the success that is logged is the start's."""
    stages = RunFolder(runs / "whole").status["stages"]
    trained = Trained.open(runs / "whole")
    split = trained.ground.world.split("val_unseen")
    words = trained.ground.words(split)
    scores = follower_scores(trained.ground.world, trained.follower("bc"), split, words)
    first = RunFolder(runs / stages["policy"]).metrics()[0]
    assert first["sr_val_unseen"] == pytest.approx(summary(scores)["sr"])
    assert first["ne_val_unseen"] == pytest.approx(summary(scores)["ne"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"interactions": 0}, "'interactions' must be at least 1"),
        ({"look_every": 0}, "'look_every' must be at least 1"),
        ({"strategies": replace(BASE, replay=199)}, "must hold all steps of strategies.episodes"),
    ],
)
def test_recipes_that_make_no_sense_are_refused(values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(RECIPE, **values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batch": 1}, "rates.batch must be at least 2"),
        ({"alpha": 0.0}, "rates.alpha must be above 0"),
        ({"gamma": 1.1}, "rates.gamma must lie between 0 and 1"),
        ({"smoothing": 0.5}, "rates.smoothing must lie between 0 and 0.5"),
    ],
)
def test_rates_that_make_no_sense_are_refused(values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Rates(**values)


def test_a_name_is_a_plain_folder_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="must be a plain folder name"):
        train(RECIPE, tmp_path, "../other")


RECIPES = Path(__file__).parents[1] / "recipes"


@pytest.mark.parametrize("world", ["houses", "r2r"])
def test_there_is_a_recipe_for_every_method(world: str) -> None:
    """Its file has its name, and all stand on the same pretraining."""
    recipes = {name: load(Learning, RECIPES / world / f"{name}.toml") for name in METHODS}
    first = recipes["langgoalirl"]
    for name, recipe in recipes.items():
        assert (recipe.method, recipe.world.name) == (name, world)
        for field in ("base_model", "bc", "goal_generator", "sizes", "start", "interactions"):
            assert getattr(recipe, field) == getattr(first, field), (name, field)
        used = recipe.strategies
        assert (used.expert_goals > 0) == (name in ("langgoalirl", "bc_egr"))
        assert used.hgr == used.hgs == (name == "langgoalirl")
        assert used.her == (name == "her")
        if name not in ("agile", "langgoalirl"):
            assert recipe.rates == first.rates


def test_the_papers_recipe_updates_once_per_trajectory() -> None:
    recipe = load(Learning, RECIPES / "r2r" / "paper.toml")
    assert recipe.strategies.sampled == recipe.rates.batch == 100
    assert recipe.rates.reward == "g"
    assert recipe.rates.entropy == pytest.approx(0.1 * math.log(14), abs=1e-3)


# Learning

QUICK = Training(updates=300, batch=64, learning_rate=2e-3, decay=True, average=0.98, mirror=True)
LEARNING = Learning(
    world=WorldChoice(houses=1, unseen=1),
    sizes=Sizes(hidden=64, word=32, angle=8, latent=16, dropout=0.2, feature_dropout=0.1),
    min_count=2,
    base_model=QUICK,
    goal_generator=GeneratorTraining(
        **{**vars(QUICK), "updates": 200}, kl_updates=100, dropout=0.1, feature_dropout=0.05
    ),
    speaking=Sampling(samples=3),
    start="scratch",
    interactions=15_000,
    look_every=15_000,
    watch="train",
    strategies=Strategies(expert_goals=1, episodes=50, replay=5000),
    rates=Rates(
        reward_rate=3e-3,
        critic_rate=3e-3,
        policy_rate=1e-3,
        target_rate=0.02,
        gamma=0.8,
        dropout=0.1,
        average=0.99,
    ),
)


def test_langgoalirl_learns_from_scratch_to_follow(tmp_path: Path) -> None:
    """The policy begins with random weights and knows demonstrations by the learned reward alone.
    It neither stops at once nor wanders until time is up."""
    run, _ = train(LEARNING, tmp_path, "quick")
    trained = Trained.open(run.path)
    ground = trained.ground
    split = ground.split
    done = follow(ground.world, trained.follower("policy"), split.tasks, ground.words(split))
    at_once = (done.lengths == 1).float().mean().item()
    to_the_limit = (done.moves == STEP_LIMIT).float().mean().item()
    scores = summary(
        follower_scores(ground.world, trained.follower("policy"), split, ground.words(split))
    )
    assert scores["sr"] > 0.18
    assert at_once < 0.15
    assert to_the_limit < 0.15
