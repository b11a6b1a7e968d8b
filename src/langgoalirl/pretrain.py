"""Everything that is trained before the adversarial loop, as stages with a folder each:
base model → behaviour cloning on its frozen state; goal-agnostic policy; goal generator."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from langgoalirl.config import as_dict
from langgoalirl.demonstrations import BatchOrder, DemonstrationSet, mix
from langgoalirl.errors import UserError
from langgoalirl.evaluate import validation
from langgoalirl.language.vocabulary import Vocabulary, read_glove
from langgoalirl.models.base_model import BaseModel
from langgoalirl.models.goal_generator import GoalGenerator
from langgoalirl.models.policy import FrozenEncoder, GoalAgnosticPolicy, Policy, PolicyHead
from langgoalirl.objectives import cloning, frozen_cloning, lower_bound
from langgoalirl.recipe import Pretraining, open_world
from langgoalirl.run_folder import RunFolder, Tensors, digest
from langgoalirl.stages import stage
from langgoalirl.training import Objective, Training, fit
from langgoalirl.worlds.navgraph import NavGraph
from langgoalirl.worlds.types import Split


@dataclass
class Ground:
    """What all stages of a recipe stand on: world, words, demonstrations."""

    recipe: Pretraining
    runs: Path

    @cached_property
    def world(self) -> NavGraph:
        """The world that the recipe names."""
        return open_world(self.recipe.world, self.recipe.device)

    @cached_property
    def split(self) -> Split:
        """What is learned from."""
        return self.world.split(self.recipe.train_split)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The words of the instructions that are learned from."""
        return Vocabulary.build(self.split.tasks.goals, self.recipe.min_count)

    @cached_property
    def data(self) -> DemonstrationSet:
        """The demonstrations that are learned from."""
        return DemonstrationSet(self.world, self.split, self.vocabulary, self.recipe.word_limit)

    @cached_property
    def selection(self) -> Split | None:
        """The split by which the best weights are chosen."""
        name = self.recipe.select_split
        return self.world.split(name) if name else None

    def on(self, data: DemonstrationSet) -> Ground:
        """The same ground with other demonstrations."""
        other = Ground(self.recipe, self.runs)
        other.__dict__.update(self.__dict__, data=data)  # in place of the cached property
        return other

    def words(self, split: Split) -> Tensor:
        """A split's instructions in numbers."""
        return self.vocabulary.encode(split.tasks.goals, self.recipe.word_limit)

    def config(self, settings: Training, **inputs: str) -> dict[str, Any]:
        """All that a stage depends on."""
        chosen = self.selection
        return {
            **{k: v for k, v in as_dict(self.recipe).items() if k in _SHARED},
            "world": {"name": self.world.name, "digest": self.world.digest},
            "data": digest({k: v for k, v in vars(self.data).items() if isinstance(v, Tensor)}),
            "selection": digest({"words": self.words(chosen)}) if chosen else "",
            "training": as_dict(settings),
            "inputs": inputs,
        }

    def embeddings(self, embed: nn.Embedding) -> None:
        """GloVe vectors for the words that have one, where the world comes with them."""
        folder = getattr(self.world, "directory", Path()) / "glove"
        if not self.recipe.glove or not (folder / "train_glove.npy").exists():
            return
        with torch.no_grad():
            for word, vector in read_glove(folder, self.vocabulary).items():
                if len(vector) == embed.embedding_dim:
                    embed.weight[word] = vector

    def fit_follower(
        self, run: RunFolder, model: nn.Module, objective: Objective, settings: Training
    ) -> Tensors:
        """Train something that acts, with its success on the selection split in view."""
        order = BatchOrder(self.data, settings.batch, self.recipe.seed, settings.mirror)
        look = None
        if self.selection is not None:
            look = validation(self.world, self.selection, self.words(self.selection), torch.float32)
        return fit(run, model, objective, order, settings, self.recipe.seed, look, "sr")


_SHARED = ("sizes", "seed", "train_split", "select_split", "min_count", "word_limit", "glove")


def initialised(seed: int, build: type, *arguments: Any) -> Any:
    """A network whose first weights depend on the seed alone; torch's own state is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build(*arguments)


def base_model(ground: Ground) -> RunFolder:
    """The sequence-to-sequence model whose decoder becomes the frozen state encoder."""
    settings = ground.recipe.base_model

    def train(run: RunFolder) -> Tensors:
        model = new_base_model(ground)
        ground.vocabulary.save(run.path / "vocabulary.json")
        return ground.fit_follower(run, model, cloning(ground.world, model, settings), settings)

    return stage(ground.runs, "base_model", ground.config(settings), __name__, train)


def new_base_model(ground: Ground) -> BaseModel:
    """An untrained base model of the recipe's sizes."""
    recipe = ground.recipe
    model = initialised(
        mix(recipe.seed, 10),
        BaseModel,
        ground.world.feature_width,
        len(ground.vocabulary),
        recipe.sizes,
    )
    ground.embeddings(model.goal.embed)
    return model.to(ground.world.device)


def load_base_model(ground: Ground, run: RunFolder) -> BaseModel:
    """A trained base model."""
    model = new_base_model(ground)
    model.load_state_dict(run.need("final"))
    return model.eval()


def goal_agnostic(ground: Ground) -> RunFolder:
    """π_p: how experts move when nobody tells them where."""
    settings = ground.recipe.goal_agnostic

    def train(run: RunFolder) -> Tensors:
        model = new_goal_agnostic(ground)
        return ground.fit_follower(run, model, cloning(ground.world, model, settings), settings)

    return stage(ground.runs, "goal_agnostic", ground.config(settings), __name__, train)


def new_goal_agnostic(ground: Ground) -> GoalAgnosticPolicy:
    """An untrained π_p of the recipe's sizes."""
    recipe = ground.recipe
    model = initialised(
        mix(recipe.seed, 11), GoalAgnosticPolicy, ground.world.feature_width, recipe.sizes
    )
    return model.to(ground.world.device)


def load_goal_agnostic(ground: Ground, run: RunFolder) -> GoalAgnosticPolicy:
    """A trained π_p."""
    model = new_goal_agnostic(ground)
    model.load_state_dict(run.need("final"))
    return model.eval()


def behaviour_cloning(ground: Ground, base: RunFolder, attention: bool = True) -> RunFolder:
    """The policy network of LangGoalIRL, trained by cross entropy on the frozen state.

    The frozen encodings are worked out once, mirrored ones too, and only the policy head learns.
    """
    settings = ground.recipe.bc
    config = ground.config(settings, base=base.status["digest"], attention=str(attention))

    def train(run: RunFolder) -> Tensors:
        policy = new_policy(ground, base, attention)
        objective = frozen_cloning(ground.world, policy, ground.data, settings)
        return ground.fit_follower(run, policy, objective, settings)

    return stage(ground.runs, "bc", config, __name__, train)


def new_policy(ground: Ground, base: RunFolder, attention: bool = True) -> Policy:
    """A policy with an untrained head on a trained base model."""
    recipe = ground.recipe
    encoder = FrozenEncoder(load_base_model(ground, base), attention)
    head = initialised(mix(recipe.seed, 12), PolicyHead, ground.world.feature_width, recipe.sizes)
    return Policy(encoder, head).to(ground.world.device)


def load_policy(ground: Ground, base: RunFolder, run: RunFolder, attention: bool = True) -> Policy:
    """A trained policy."""
    policy = new_policy(ground, base, attention)
    policy.load_state_dict(run.need("final"))
    return policy.eval()


def goal_generator(ground: Ground) -> RunFolder:
    """The variational goal generator, by its lower bound with λ on the KL term."""
    recipe, settings = ground.recipe, ground.recipe.goal_generator

    def train(run: RunFolder) -> Tensors:
        model = new_goal_generator(ground)
        order = BatchOrder(ground.data, settings.batch, recipe.seed, settings.mirror)
        objective = lower_bound(ground.world, model, settings)
        return fit(run, model, objective, order, settings, recipe.seed)

    return stage(ground.runs, "goal_generator", ground.config(settings), __name__, train)


def new_goal_generator(ground: Ground) -> GoalGenerator:
    """An untrained goal generator of the recipe's sizes."""
    recipe, own = ground.recipe, ground.recipe.goal_generator
    model = initialised(
        mix(recipe.seed, 13),
        GoalGenerator,
        ground.world.feature_width,
        len(ground.vocabulary),
        replace(recipe.sizes, dropout=own.dropout, feature_dropout=own.feature_dropout),
    )
    ground.embeddings(model.embed)
    return model.to(ground.world.device)


def load_goal_generator(ground: Ground, run: RunFolder) -> GoalGenerator:
    """A trained goal generator."""
    model = new_goal_generator(ground)
    model.load_state_dict(run.need("final"))
    return model.eval()


def pretrain(
    recipe: Pretraining, runs: Path, name: str, wanted: Iterable[str]
) -> tuple[RunFolder, dict[str, RunFolder]]:
    """Train the wanted stages and what they need; gives the run's folder and the stages'."""
    if Path(name).name != name:
        raise UserError(f"--name: '{name}' must be a plain folder name; --runs says where it goes.")
    ground = Ground(recipe, runs)
    ground.data  # noqa: B018  # what is wrong with the world is said before anything is written
    run = RunFolder(runs / name)
    run.begin(as_dict(recipe))
    stages: dict[str, RunFolder] = {}
    for kind in wanted:
        if kind in ("base_model", "bc", "bc_concat") and "base_model" not in stages:
            stages["base_model"] = base_model(ground)
        if kind in ("bc", "bc_concat"):
            stages[kind] = behaviour_cloning(ground, stages["base_model"], kind == "bc")
        elif kind == "goal_agnostic":
            stages[kind] = goal_agnostic(ground)
        elif kind == "goal_generator":
            stages[kind] = goal_generator(ground)
        known = run.status.get("stages", {})
        found = {k: str(stage.path.relative_to(runs)) for k, stage in stages.items()}
        run.finish(stages=known | found)
    return run, stages
