"""Pretrained runs, opened again: their networks, and results about them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from langgoalirl.config import from_dict
from langgoalirl.errors import UserError, nearest
from langgoalirl.models.base_model import BaseModel
from langgoalirl.models.goal_generator import GoalGenerator
from langgoalirl.pretrain import (
    Ground,
    load_base_model,
    load_goal_agnostic,
    load_goal_generator,
    load_policy,
)
from langgoalirl.recipe import Pretraining
from langgoalirl.results import write_result
from langgoalirl.rollout import Follower
from langgoalirl.run_folder import RunFolder
from langgoalirl.stages import json_digest


@dataclass
class Trained:
    """A pretrained run, opened again: its ground, and its stages' networks by name."""

    ground: Ground
    stages: dict[str, str]

    @classmethod
    def open(cls, path: Path, device: str | None = None) -> Trained:
        """A folder that `pretrain` wrote."""
        run = RunFolder(path)
        if "stages" not in run.status:
            raise UserError(f"{path}: is no pretrained run; make one with 'langgoalirl pretrain'.")
        recipe = from_dict(Pretraining, run.config, str(path / "config.json"))
        if device:
            recipe = replace(recipe, device=device)
        return cls(Ground(recipe, path.parent), run.status["stages"])

    def folder(self, name: str) -> RunFolder:
        """A stage's folder."""
        if name not in self.stages:
            raise UserError(
                f"stage '{name}' was not trained in this run.{nearest(name, self.stages)}"
            )
        return RunFolder(self.ground.runs / self.stages[name])

    def base_model(self) -> BaseModel:
        """The trained base model."""
        return load_base_model(self.ground, self.folder("base_model"))

    def goal_generator(self) -> GoalGenerator:
        """The trained goal generator."""
        return load_goal_generator(self.ground, self.folder("goal_generator"))

    def follower(self, name: str) -> Follower:
        """One of the run's networks that act."""
        if name == "base_model":
            return self.base_model()
        if name == "goal_agnostic":
            return load_goal_agnostic(self.ground, self.folder(name))
        base = self.folder("base_model")
        return load_policy(self.ground, base, self.folder(name), attention=name == "bc")


def write_stage_result(
    table: Path,
    stage: RunFolder,
    recipe: Pretraining,
    *,
    method: str,
    variant: str,
    split: str,
    metrics: dict[str, Any],
) -> Path:
    """A result file about one of a run's stages, with what the stage's status says of it."""
    return write_result(
        table,
        method=method,
        variant=variant,
        train_split=recipe.train_split,
        split=split,
        seed=recipe.seed,
        config=stage.config,
        metrics=metrics,
        world=recipe.world.name,
        config_digest=json_digest(stage.config),
        minutes=stage.status["minutes"],
        digest=stage.status["digest"],
    )
