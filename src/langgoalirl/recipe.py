"""What a recipe for pretraining holds, and the world that it names."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from langgoalirl.config import option
from langgoalirl.errors import UserError
from langgoalirl.models.sizes import Sizes
from langgoalirl.models.speaking import Sampling
from langgoalirl.training import GeneratorTraining, Training
from langgoalirl.worlds.navgraph import NavGraph


@dataclass(frozen=True)
class WorldChoice:
    """Where the agent lives."""

    name: str = option("houses", "the world", ("houses", "r2r"))
    data: str = option("", "r2r: its folder; empty takes the variable LANGGOALIRL_R2R")
    features: str = option("objects", "r2r: objects, or a prepared cache; any world: none")
    seed: int = option(0, "houses: the seed that everything follows from")
    houses: int = option(48, "houses: how many to train in")
    unseen: int = option(12, "houses: how many are kept for val_unseen")


@dataclass(frozen=True)
class Pretraining:
    """Base model, behaviour cloning, goal-agnostic policy and goal generator."""

    world: WorldChoice = option(WorldChoice, "the world")
    sizes: Sizes = option(Sizes, "network sizes")
    seed: int = option(0, "seed of every weight and every batch")
    device: str = option("cpu", "torch device, cpu or cuda")
    train_split: str = option("train", "split whose demonstrations are learned from")
    select_split: str = option(
        "", "split by whose success the best weights are kept; empty keeps the last"
    )
    min_count: int = option(5, "words seen less often in training are unknown")
    word_limit: int = option(80, "words of an instruction that are read")
    glove: bool = option(True, "start word embeddings from GloVe where the world has it")
    base_model: Training = option(Training, "the base model")
    bc: Training = option(Training, "behaviour cloning on the frozen state")
    goal_agnostic: Training = option(Training, "the goal-agnostic policy")
    goal_generator: GeneratorTraining = option(GeneratorTraining, "the goal generator")
    speaking: Sampling = option(Sampling, "how the goal generator's sentences are drawn")

    def __post_init__(self) -> None:
        for name in ("min_count", "word_limit"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")


def open_world(choice: WorldChoice, device: str) -> NavGraph:
    """The world that a recipe names."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):  # no such name, no driver, or a build without it
        raise UserError(
            f"device: '{device}' is not to be had here; 'cpu' always is, 'cuda' with a GPU."
        ) from None
    if choice.name == "houses":
        from langgoalirl.worlds.houses.world import Houses

        return Houses(
            choice.seed, choice.houses, choice.unseen, features=choice.features, device=device
        )
    from langgoalirl.worlds.r2r import R2R

    place = choice.data or os.environ.get("LANGGOALIRL_R2R", "")
    if not place:
        raise UserError(
            "world.data: Room-to-Room's folder is not known; set world.data=DIR or the variable "
            "LANGGOALIRL_R2R, or get the data with 'langgoalirl data fetch r2r DIR'."
        )
    return R2R(Path(place), choice.features, device)
