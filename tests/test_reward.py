"""The learned reward alone: opened from a run, scored step by step, checked against false pairs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import langgoalirl.pretrain as pretraining
from langgoalirl.adversarial import Learning, train
from langgoalirl.cli import main
from langgoalirl.demonstrations import DemonstrationSet, observe_along, trace
from langgoalirl.errors import UserError
from langgoalirl.irl.algorithm import Strategies, expert_table
from langgoalirl.irl.learner import Rates
from langgoalirl.language.vocabulary import PAD, Vocabulary
from langgoalirl.models.layers import masked_log_softmax
from langgoalirl.models.sizes import Sizes
from langgoalirl.recipe import WorldChoice, open_world
from langgoalirl.reward import Reward, Walk, kinds, mean_per_step
from langgoalirl.reward_checks import (
    best_of_several,
    exchanged,
    other_paths,
    other_route,
    replaced,
    reward_auc,
)
from langgoalirl.run_folder import RunFolder
from langgoalirl.trained import Trained
from langgoalirl.training import Training
from langgoalirl.worlds.geometry import VIEWS
from langgoalirl.worlds.types import NO_ACTION, STOP, Split

torch.set_num_threads(1)

SHORT = Training(updates=3, batch=8, validate_every=2)
RECIPE = Learning(
    world=WorldChoice(houses=1, unseen=1),
    sizes=Sizes(hidden=8, word=4, angle=4, latent=4, dropout=0.3),
    word_limit=40,
    base_model=SHORT,
    bc=SHORT,
    method="langgoalirl_base",
    interactions=300,
    strategies=Strategies(0, hgr=False, hgs=False, episodes=20, sampled=50.0, replay=300),
    rates=Rates(batch=64, reward_rate=1e-2),
)


@pytest.fixture(scope="module", autouse=True)
def _each_world_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretraining, "open_world", cache(open_world))
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    train(RECIPE, folder, "base")
    return folder


@pytest.fixture(scope="module")
def trained(runs: Path) -> Trained:
    return Trained.open(runs / "base")


@pytest.fixture(scope="module")
def split(trained: Trained) -> Split:
    return trained.ground.world.split("val_unseen")


def data_of(trained: Trained, split: Split) -> DemonstrationSet:
    ground = trained.ground
    return DemonstrationSet(ground.world, split, ground.vocabulary, RECIPE.word_limit)


# The function


@pytest.mark.parametrize("kind", ["f", "g"])
def test_a_reward_is_what_the_discriminator_says_of_the_same_steps(
    kind: str, trained: Trained, split: Split
) -> None:
    """Against the table of steps and the learner's own f and g."""
    world, data, reward = trained.ground.world, data_of(trained, split), Reward.of(trained, kind)
    none = torch.zeros(len(data), 0, 1, dtype=torch.long)
    _, table = expert_table(reward.learner, reward.encoder, data, none)
    steps, learner = table.at(torch.arange(table.size)), reward.learner
    with torch.no_grad():
        f, g = learner.f(steps, learner.choices(steps.now.key))
    found = reward.of_words(world, data.words, Walk(data.states, data.actions))
    taken = data.actions != NO_ACTION
    torch.testing.assert_close(found[taken], f if kind == "f" else g, atol=1e-5, rtol=1e-4)
    assert bool((found[~taken] == 0).all())
    assert found[taken].std() > 0.1
    assert not torch.allclose(f, g, atol=1e-3)


def test_f_is_the_final_discriminators(runs: Path, trained: Trained) -> None:
    """Not that of a new learner, nor of another run."""
    stage = RunFolder(runs / trained.stages["policy"]).need("final")
    reward = Reward.open(runs / "base", "f")
    for name, value in reward.learner.reward.state_dict().items():
        assert torch.equal(value, stage[f"reward.{name}"]), name
    assert bool((stage["reward.g.out"] != 0).any())


def test_the_reference_is_log_pi_of_behaviour_cloning(trained: Trained, split: Split) -> None:
    data, world = data_of(trained, split), trained.ground.world
    bc: Any = trained.follower("bc")
    batch = data.rows(torch.arange(len(data)))
    seen = observe_along(world, batch, torch.float32)
    with torch.no_grad():
        log_pi = masked_log_softmax(bc(batch.words, seen), seen.mask)
    wanted = log_pi.gather(-1, batch.actions.clamp_min(STOP)[..., None])[..., 0]
    found = Reward.of(trained, "bc").of_words(world, data.words, Walk(data.states, data.actions))
    taken = data.actions != NO_ACTION
    torch.testing.assert_close(found[taken], wanted[taken].clamp_min(-10), atol=1e-5, rtol=1e-4)


def test_one_trajectory_alone_gets_what_it_gets_among_others(
    trained: Trained, split: Split
) -> None:
    data, world, reward = data_of(trained, split), trained.ground.world, Reward.of(trained)
    every = reward.of_words(world, data.words, Walk(data.states, data.actions))
    for row in (0, 5):
        length = int((data.actions[row] != NO_ACTION).sum())
        walk = Walk(data.states[row, :length], data.actions[row, :length])
        alone = reward(world, split.tasks.goals[row], walk)
        assert alone.shape == (length,)
        torch.testing.assert_close(alone, every[row, :length], atol=1e-5, rtol=1e-4)


def test_too_long_a_trajectory_is_refused(trained: Trained) -> None:
    long = Walk(torch.zeros(11, dtype=torch.long), torch.ones(11, dtype=torch.long))
    with pytest.raises(UserError, match="10 actions at most, not 11"):
        Reward.of(trained)(trained.ground.world, "Go.", long)


@pytest.mark.parametrize(
    ("method", "start", "found"),
    [
        ("agile", "bc", ["g", "bc"]),
        ("lc_rl", "bc", ["f", "g", "bc"]),
        ("langgoalirl_base", "scratch", ["f", "g"]),
        ("bc_egr", "bc", ["bc"]),
    ],
)
def test_every_method_has_its_rewards(
    method: str, start: str, found: list[str], runs: Path
) -> None:
    run, _ = train(replace(RECIPE, method=method, start=start), runs, f"{method}-{start}")
    opened = Trained.open(run.path)
    assert kinds(opened) == found
    world, split = opened.ground.world, opened.ground.world.split("val_seen")
    data = data_of(opened, split)
    for kind in found:
        values = Reward.of(opened, kind).of_words(
            world, data.words, Walk(data.states, data.actions)
        )
        assert bool(values.isfinite().all())
        assert bool((values != 0).any())
        if method == "agile" and kind == "g":
            assert bool((values[data.actions != STOP] == 0).all())
            assert bool(((values >= 0) & (values <= 1)).all())
    if "f" not in found:
        with pytest.raises(UserError, match="has no reward 'f'"):
            Reward.of(opened, "f")


def test_a_mean_per_step_leaves_out_what_was_not_taken() -> None:
    values = torch.tensor([[1.0, 2.0, 0.0], [3.0, 0.0, 0.0]])
    actions = torch.tensor([[1, STOP, NO_ACTION], [STOP, NO_ACTION, NO_ACTION]])
    assert mean_per_step(values, actions).tolist() == [1.5, 3.0]


# False pairs


def draw() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_another_route_is_of_the_same_house() -> None:
    house = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    route = torch.tensor([7, 7, 8, 1, 2, 3, 3])
    other = other_route(house, route, draw())
    assert other[:2].tolist() == [2, 2]
    assert int(other[2]) in (0, 1)
    assert other[3:].tolist() == [4, 3, -1, -1]


VOCABULARY = Vocabulary.build(["turn left right the at couch sofa bed piano then rightmost"], 1)


def test_sides_are_exchanged_and_nothing_else() -> None:
    words = VOCABULARY.encode(["turn left at the couch then right", "turn at the bed"], 20)
    changed, has = exchanged(words, VOCABULARY)
    assert VOCABULARY.decode(changed) == ["Turn right at the couch then left", "Turn at the bed"]
    assert has.tolist() == [True, False]


def test_one_landmark_is_replaced_by_one_that_is_not_mentioned() -> None:
    """Nor by a synonym of one that is."""
    texts = ["turn at the couch", "turn left", "the sofa then the bed"] * 20
    words = VOCABULARY.encode(texts, 20)
    changed, has = replaced(words, VOCABULARY, draw())
    assert has.tolist() == [True, False, True] * 20
    assert ((changed != words).sum(1)).tolist() == [1, 0, 1] * 20
    said = VOCABULARY.decode(changed)
    assert set(said[0::3]) == {"Turn at the bed", "Turn at the piano"}
    assert set(said[2::3]) == {"The piano then the bed", "The sofa then the piano"}


def test_another_path_is_as_long_and_ends_elsewhere(trained: Trained, split: Split) -> None:
    world, data = trained.ground.world, data_of(trained, split)
    walks = Walk(data.states, data.actions)
    other, found = other_paths(world, walks, draw())
    assert found.float().mean() > 0.5
    assert torch.equal(other.states[:, 0], walks.states[:, 0])
    assert torch.equal(other.actions == NO_ACTION, walks.actions == NO_ACTION)
    assert torch.equal(other.actions == STOP, walks.actions == STOP)
    assert torch.equal(other.states, trace(world, other.states[:, 0], other.actions))
    taken = other.actions != NO_ACTION
    there = world.mask[other.states // VIEWS].gather(2, other.actions.clamp_min(STOP)[..., None])
    assert bool(there[..., 0][taken].all())
    for row in found.nonzero()[:, 0].tolist():
        places = (other.states[row][taken[row]] // VIEWS).tolist()
        assert len(set(places)) == len(places)
        assert places[-1] != int(walks.states[row][taken[row]][-1]) // VIEWS


class Known:
    """A reward that is known: `value` of words and walks, the same at each step."""

    def __init__(self, trained: Trained, value: Any) -> None:
        self.kind, self.value = "f", value
        self.vocabulary, self.word_limit = trained.ground.vocabulary, RECIPE.word_limit

    def of_words(self, world: Any, words: Tensor, walks: Walk) -> Tensor:
        taken = walks.actions != NO_ACTION
        return torch.where(taken, self.value(words, walks)[:, None].float(), 0.0)


def test_one_that_knows_the_truth_is_always_right_and_one_that_knows_nothing_half_the_time(
    trained: Trained, split: Split
) -> None:
    data, checks = data_of(trained, split), ("route", "sides", "landmark", "path")
    true = {
        (tuple(words[words != PAD].tolist()), tuple(actions.tolist()), int(start))
        for words, actions, start in zip(data.words, data.actions, data.states[:, 0], strict=True)
    }

    def knows(words: Tensor, walks: Walk) -> Tensor:
        return torch.tensor(
            [
                (tuple(w[w != PAD].tolist()), tuple(a.tolist()), int(s)) in true
                for w, a, s in zip(words, walks.actions, walks.states[:, 0], strict=True)
            ]
        )

    world = trained.ground.world
    for value, wanted in ((knows, 1.0), (lambda words, _: torch.ones(len(words)), 0.5)):
        rewards: list[Any] = [Known(trained, value)]
        numbers = reward_auc(rewards, world, split)
        for check in checks:
            assert numbers[f"reward_pairs_{check}"] > 10
            assert numbers[f"reward_auc_{check}_f"] == wanted, check


def test_the_checks_repeat_and_every_reward_sees_the_same_pairs(
    trained: Trained, split: Split
) -> None:
    rewards = [Reward.of(trained, kind) for kind in ("f", "bc")]
    both = reward_auc(rewards, trained.ground.world, split)
    alone = reward_auc(rewards[1:], trained.ground.world, split)
    assert alone == {k: v for k, v in both.items() if not k.endswith("_f")}
    assert all(0 <= v <= 1 for k, v in both.items() if "auc" in k)


def test_a_reward_that_knows_the_goal_chooses_the_trajectory_that_finds_it(
    trained: Trained, split: Split
) -> None:
    world = trained.ground.world
    assert split.references is not None
    goals = split.references.goals

    def near(words: Tensor, walks: Walk) -> Tensor:
        """Minus the metres between a trajectory's end and its goal."""
        row = torch.arange(len(words))
        end = (walks.actions != NO_ACTION).sum(1) - 1
        last = world.step(walks.states[row, end], walks.actions[row, end]) // VIEWS
        assert len(words) == len(goals)
        return -world.distance(last, goals) / (end + 1)  # summed over the steps again

    rewards: list[Any] = [Known(trained, near), Known(trained, lambda w, _: torch.zeros(len(w)))]
    rewards[1].kind = "none"
    numbers = best_of_several(rewards, world, trained.follower("bc"), split)
    assert 0 < numbers["one_of_8"] < numbers["best_of_8_any"]
    assert numbers["best_of_8_f"] == numbers["best_of_8_any"]
    assert abs(numbers["best_of_8_none"] - numbers["one_of_8"]) < 0.2


# The commands


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


def test_scoring_a_path(
    runs: Path, trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world, data = trained.ground.world, data_of(trained, trained.ground.split)
    row = 4
    length = int((data.actions[row] != NO_ACTION).sum())
    path = (data.states[row, :length] // VIEWS).tolist()
    names = {number: name for (_, name), number in world.index.items()}
    scan = world.houses[int(world.house_of[path[0]])].name
    heading = (int(data.states[row, 0]) % 12) * torch.pi / 6
    ids = [names[place] for place in path]
    file = tmp_path / "path.json"
    file.write_text(json.dumps({"scan": scan, "heading": heading, "path": ids}))
    goal = trained.ground.split.tasks.goals[row]
    code, out, _ = call(capsys, "score", runs / "base", "--goal", goal, "--path", file, "--json")
    assert code == 0
    found = json.loads(out)
    assert [step["from"] for step in found["steps"]] == ids
    assert [step["to"] for step in found["steps"]] == [*ids[1:], "stop"]
    walk = Walk(data.states[row, :length], data.actions[row, :length])
    for kind in ("f", "g", "bc"):
        wanted = Reward.of(trained, kind)(world, goal, walk)
        values = [step[kind] for step in found["steps"]]
        assert values == pytest.approx(wanted.tolist(), abs=1e-5)
        assert found["mean"][kind] == pytest.approx(wanted.mean().item(), abs=1e-5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "must be {"),
        ({"scan": "house_0000", "heading": 0, "path": []}, "must be {"),
        ({"scan": "house_0000", "heading": "north", "path": ["x"]}, "must be {"),
        ({"scan": "house_9", "heading": 0, "path": ["x"]}, "'house_9' is not in this world"),
        ({"scan": "house_0000", "heading": 0, "path": ["house_0000_0"]}, "has no viewpoint"),
        (
            {"scan": "house_0000", "heading": 0, "path": ["house_0000_00"] * 2},
            "is no path (row 0: no edge leads on from step 0)",
        ),
        (
            {"scan": "house_0000", "heading": 0, "path": ["house_0000_00"] * 11},
            "10 viewpoints at most",
        ),
    ],
)
def test_what_is_wrong_with_a_path_is_one_sentence(
    content: Any, message: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "path.json"
    file.write_text(json.dumps(content))
    code, out, err = call(capsys, "score", runs / "base", "--goal", "Go.", "--path", file)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_evaluating_the_reward_and_the_policy(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = (runs / "base", "--split", "val_unseen", "--json")
    code, out, _ = call(capsys, "evaluate", *place, "--reward")
    assert code == 0
    checks = [f"{c}_{k}" for c in ("route", "sides", "landmark", "path") for k in ("f", "g", "bc")]
    assert {f"reward_auc_{check}" for check in checks} <= json.loads(out).keys()
    code, out, _ = call(capsys, "evaluate", *place, "--results", tmp_path, "--variant", "few")
    assert code == 0
    file = tmp_path / "langgoalirl_base+few-train-val_unseen-s0.json"
    result = json.loads(file.read_text())
    assert result["metrics"] == json.loads(out)
    assert result["interactions"] >= RECIPE.interactions
    assert (runs / "base" / "predictions" / "val_unseen-policy.json").exists()


def test_a_run_that_was_only_pretrained_has_no_reward(tmp_path: Path, runs: Path) -> None:
    (tmp_path / "stages").symlink_to(runs / "stages")
    pretraining.pretrain(replace(pretraining_recipe(), seed=RECIPE.seed), tmp_path, "only", ["bc"])
    with pytest.raises(UserError, match="was only pretrained"):
        Reward.open(tmp_path / "only")


def pretraining_recipe() -> Any:
    """The part of the recipe that pretraining has."""
    from langgoalirl.recipe import Pretraining

    names = Pretraining.__dataclass_fields__
    return Pretraining(**{name: getattr(RECIPE, name) for name in names})
