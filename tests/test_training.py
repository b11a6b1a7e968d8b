"""The training loop: what it does depends on seed and update alone, cut off or not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from langgoalirl.demonstrations import Batch, BatchOrder, DemonstrationSet, observe_along
from langgoalirl.errors import UserError
from langgoalirl.language.vocabulary import Vocabulary
from langgoalirl.models.base_model import BaseModel
from langgoalirl.models.sizes import Sizes
from langgoalirl.objectives import imitation_loss
from langgoalirl.pretrain import initialised
from langgoalirl.run_folder import RunFolder, Tensors, digest
from langgoalirl.training import Average, Numbers, Objective, Training, fit, precision
from langgoalirl.training import step_size_factor as factor
from langgoalirl.worlds.houses.world import Houses

torch.set_num_threads(1)

SETTINGS = Training(
    updates=60,
    batch=6,
    learning_rate=1e-3,
    decay=True,
    average=0.9,
    mirror=True,
    validate_every=20,
    precision="bf16",
)
SIZES = Sizes(hidden=8, word=4, angle=2)  # with the paper's dropout

WORLD = Houses(seed=0, houses=1, unseen=1, routes=8)
VOCABULARY = Vocabulary.build(WORLD.split("train").tasks.goals, 2)
DATA = DemonstrationSet(WORLD, WORLD.split("train"), VOCABULARY, 20)


def new_model(seed: int) -> BaseModel:
    return initialised(seed, BaseModel, WORLD.feature_width, len(VOCABULARY), SIZES)


def imitating(model: BaseModel, cut_at: int = -1) -> Objective:
    """Teacher forcing; the power fails in the update `cut_at`."""

    def objective(
        batch: Batch, update: int, generator: torch.Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        if update == cut_at:
            raise KeyboardInterrupt
        seen = observe_along(WORLD, batch, torch.bfloat16)
        loss, agreement = imitation_loss(model(batch.words, seen), seen.mask, batch.actions)
        return loss, {"agreement": agreement}

    return objective


def agreement_of(model: BaseModel) -> Numbers:
    batch = DATA.rows(torch.arange(len(DATA)))
    seen = observe_along(WORLD, batch, torch.float32)
    with torch.no_grad():
        loss, _ = imitation_loss(model(batch.words, seen), seen.mask, batch.actions)
    return {"sr": -loss.item()}


def train(
    path: Path,
    *,
    cut_at: int = -1,
    settings: Training = SETTINGS,
    seed: int = 0,
    validate: Callable[[Any], Numbers] | None = agreement_of,
) -> Tensors:
    """A fresh process would do just this: a new model, and `fit` on the folder."""
    model = new_model(seed)
    order = BatchOrder(DATA, settings.batch, seed, settings.mirror)
    objective = imitating(model, cut_at)
    return fit(RunFolder(path), model, objective, order, settings, seed, validate, "sr")


def logged(path: Path) -> list[Numbers]:
    """The lines of metrics.jsonl without their times."""
    return [{k: v for k, v in line.items() if k != "seconds"} for line in RunFolder(path).metrics()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run that nobody interrupted, and the digest of its end."""
    path = tmp_path_factory.mktemp("whole")
    return path, digest(train(path))


def test_a_run_learns_and_writes_down_how(whole: tuple[Path, str]) -> None:
    lines = logged(whole[0])
    assert [(line["update"], *sorted(line)[:-1]) for line in lines] == [
        (20, "sr"),
        (40, "sr"),
        (50, "agreement", "loss"),
        (60, "agreement", "loss"),
        (60, "sr"),
    ]
    assert lines[0]["sr"] < lines[1]["sr"] < lines[-1]["sr"]


@pytest.mark.parametrize(
    "cuts",
    [
        (3,),  # before the first checkpoint
        (20,),  # right behind one
        (55,),  # with a logged update behind the last one, which is logged once more
        (10, 30, 45, 59),
    ],
)
def test_a_run_that_was_cut_off_ends_with_the_same_bytes(
    cuts: tuple[int, ...], whole: tuple[Path, str], tmp_path: Path
) -> None:
    for cut in cuts:
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path, cut_at=cut)
    assert digest(train(tmp_path)) == whole[1]
    assert logged(tmp_path) == logged(whole[0])


@pytest.mark.parametrize("look", [1, 2])
def test_so_does_one_that_was_cut_off_while_validated(
    look: int, whole: tuple[Path, str], tmp_path: Path
) -> None:
    looks = 0

    def failing(model: BaseModel) -> Numbers:
        nonlocal looks
        looks += 1
        if looks == look:
            raise RuntimeError("out of memory")
        return agreement_of(model)

    with pytest.raises(RuntimeError, match="out of memory"):
        train(tmp_path, validate=failing)
    assert digest(train(tmp_path)) == whole[1]
    assert logged(tmp_path) == logged(whole[0])


def test_a_finished_run_is_not_trained_again(whole: tuple[Path, str]) -> None:
    assert digest(train(whole[0], cut_at=59)) == whole[1]


SHORT = replace(SETTINGS, updates=6, validate_every=3)


def test_runs_agree_when_all_is_the_same_and_only_then(tmp_path: Path) -> None:
    variants = {
        "first": train(tmp_path / "a", settings=SHORT),
        "again": train(tmp_path / "b", settings=SHORT),
        "seed": train(tmp_path / "c", settings=SHORT, seed=1),
        "unmirrored": train(tmp_path / "d", settings=replace(SHORT, mirror=False)),
        "last": train(tmp_path / "e", settings=replace(SHORT, average=0.0)),
    }
    digests = {name: digest(tensors) for name, tensors in variants.items()}
    assert digests.pop("again") == digests["first"]
    assert len(set(digests.values())) == 4


@pytest.mark.parametrize("average", [0.0, 0.9])
@pytest.mark.parametrize(
    ("success", "chosen"), [((0.1, 0.7, 0.3), 1), ((0.5, 0.5, 0.2), 0), ((0.0, -1.0, 0.2), 2)]
)
def test_the_best_validation_is_kept(
    success: tuple[float, ...], chosen: int, average: float, tmp_path: Path
) -> None:
    seen: list[str] = []

    def look(model: BaseModel) -> Numbers:
        assert not model.training
        seen.append(digest(model.state_dict()))
        return {"sr": success[len(seen) - 1], "ne": 5.0}

    settings = replace(SHORT, updates=6, validate_every=2, average=average)
    kept = train(tmp_path, settings=settings, validate=look)
    assert len(set(seen)) == 3
    assert seen.index(digest(kept)) == chosen
    loaded = RunFolder(tmp_path).load("best")
    assert loaded is not None
    assert loaded[1] == {"update": 2 * (chosen + 1)}


def test_without_validation_the_last_weights_are_kept(tmp_path: Path) -> None:
    kept = train(tmp_path, settings=replace(SHORT, average=0.0), validate=None)
    last = RunFolder(tmp_path).need("last")
    assert digest(kept) == digest(
        {k.removeprefix("model."): v for k, v in last.items() if k.startswith("model.")}
    )
    assert RunFolder(tmp_path).load("best") is None


def test_a_damaged_checkpoint_is_one_sentence(tmp_path: Path) -> None:
    train(tmp_path, settings=SHORT)
    file = tmp_path / "checkpoints" / "last.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"last\.safetensors: damaged checkpoint .* remove it"):
        train(tmp_path, settings=SHORT)


# The pieces


def walked(settings: Training, path: Path) -> list[float]:
    """How far a constant gradient moves two weights; one of them is not to be trained."""
    model = nn.Linear(2, 1)
    nn.init.zeros_(model.weight)
    model.bias.requires_grad_(False)
    before = model.bias.clone()

    def downhill(
        batch: Batch, update: int, generator: torch.Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return 3 * model.weight.sum(), {}

    order = BatchOrder(DATA, 2, 0, False)
    tensors = fit(RunFolder(path), model, downhill, order, settings, 0)
    assert torch.equal(tensors["bias"], before)
    return tensors["weight"].flatten().tolist()


def test_the_step_size(tmp_path: Path) -> None:
    """Adam's step under a constant gradient is the learning rate itself."""
    plain = Training(updates=4, learning_rate=0.01, precision="fp32")
    assert walked(plain, tmp_path / "a") == pytest.approx([-0.04] * 2, rel=1e-5)
    falling = replace(plain, decay=True)
    cosines = 1 + (1 + math.cos(math.pi / 4)) / 2 + 1 / 2 + (1 + math.cos(3 * math.pi / 4)) / 2
    assert walked(falling, tmp_path / "b") == pytest.approx([-0.01 * cosines] * 2, rel=1e-5)


def test_half_a_cosine() -> None:
    falling = Training(updates=100, decay=True)
    assert [factor(falling, u) for u in (0, 50, 100)] == pytest.approx([1, 0.5, 0], abs=1e-7)
    assert factor(Training(updates=100), 77) == 1


def test_averages_by_hand() -> None:
    """Young ones keep u / (u + 10) of themselves: 1/11, then 2/12; old ones the decay."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    averaged = Average(model, 0.9)
    found = []
    for value in (11.0, 22.0):
        nn.init.constant_(model.weight, value)
        averaged.follow(model)
        found.append(averaged.state(model)["weight"].item())
    assert found == pytest.approx([10, 20])
    averaged.updates = 1000
    nn.init.constant_(model.weight, 40)
    averaged.follow(model)
    assert averaged.state(model)["weight"].item() == pytest.approx(22)

    with averaged.applied(model):
        assert model.weight.item() == pytest.approx(22)
    assert model.weight.item() == 40


def test_without_a_decay_there_is_no_average() -> None:
    model = nn.Linear(1, 1, bias=False)
    averaged = Average(model, 0.0)
    nn.init.constant_(model.weight, 5)
    averaged.follow(model)
    with averaged.applied(model):
        assert model.weight.item() == 5
    assert averaged.state(model)["weight"].item() == 5


@pytest.mark.parametrize(("kind", "wanted"), [("bf16", torch.bfloat16), ("fp32", torch.float32)])
def test_precision_of_observations_and_products(kind: str, wanted: torch.dtype) -> None:
    dtype, products = precision(kind, torch.device("cpu"))
    assert dtype == wanted
    with products:
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == wanted
