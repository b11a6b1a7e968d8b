"""Runs, opened again: their networks, and results about them."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from langgoalirl.adversarial import Learning, new_learner
from langgoalirl.config import from_dict
from langgoalirl.errors import UserError, nearest
from langgoalirl.irl.collect import Actor
from langgoalirl.irl.learner import Learner
from langgoalirl.models.base_model import BaseModel
from langgoalirl.models.goal_generator import GoalGenerator
from langgoalirl.models.policy import FrozenEncoder
from langgoalirl.pretrain import (
    Ground,
    load_base_model,
    load_goal_agnostic,
    load_goal_generator,
    load_policy,
    new_policy,
)
from langgoalirl.recipe import Pretraining
from langgoalirl.results import write_result
from langgoalirl.rollout import Follower
from langgoalirl.run_folder import RunFolder
from langgoalirl.stages import json_digest


@dataclass
class Trained:
    """A run, opened again: its ground, and its stages' networks by name."""

    ground: Ground
    stages: dict[str, str]

    @classmethod
    def open(cls, path: Path, device: str | None = None) -> Trained:
        """A folder that `pretrain` or `train` wrote."""
        run = RunFolder(path)
        if "stages" not in run.status:
            raise UserError(
                f"{path}: is no finished run; make one with 'langgoalirl pretrain' or 'train'."
            )
        kind = Learning if "method" in run.config else Pretraining
        recipe = from_dict(kind, run.config, str(path / "config.json"))
        if not device and recipe.device != "cpu" and not torch.cuda.is_available():
            device = "cpu"  # trained on a GPU, looked at on a laptop
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
        if name == "policy":
            return self.policy()
        base = self.folder("base_model")
        return load_policy(self.ground, base, self.folder(name), attention=name == "bc")

    @property
    def learning(self) -> Learning:
        """The recipe of a run of `train`."""
        if not isinstance(self.ground.recipe, Learning):
            raise UserError("this run was only pretrained; train one with 'langgoalirl train'.")
        return self.ground.recipe

    def learner(self) -> tuple[FrozenEncoder, Learner]:
        """What `train` was for, as it was when Algorithm 1 ended: the encoder that everything
        stands on, the averaged policy (`kept`), its prior and the reward."""
        recipe, ground = self.learning, copy.copy(self.ground)
        ground.recipe = replace(recipe, rates=replace(recipe.rates, precision="fp32"))
        run, attention = self.folder("policy"), recipe.method != "lc_rl"
        policy = new_policy(ground, self.folder("base_model"), attention)
        final = run.need("final")
        if recipe.method == "bc_egr":  # its own log π is all that it has
            policy.load_state_dict(final)
        learner = new_learner(ground, policy)
        if recipe.method != "bc_egr":
            learner.load_results(final)
        return policy.encoder, learner

    def policy(self) -> Follower:
        """The averaged policy at the end of Algorithm 1 (or of bc_egr)."""
        if self.learning.method == "bc_egr":
            return load_policy(self.ground, self.folder("base_model"), self.folder("policy"))
        encoder, learner = self.learner()
        return Actor(encoder, learner.kept, learner.prior).eval()


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
    """A result file about one of a run's stages, with what the stage's status says of it.

    A method's stage may have been run several times on one pretraining: each counts as a seed.
    """
    own = recipe.run_seed if isinstance(recipe, Learning) else 0
    lines = [line for line in stage.metrics() if "interactions" in line]
    curve = [{k: v for k, v in line.items() if k in _CURVE or k[:3] == "sr_"} for line in lines]
    return write_result(
        table,
        method=method,
        variant=variant,
        train_split=recipe.train_split,
        split=split,
        seed=recipe.seed + own,
        interactions=max((line["interactions"] for line in lines), default=0),
        config=stage.config,
        metrics=metrics,
        world=recipe.world.name,
        config_digest=json_digest(stage.config),
        minutes=stage.status["minutes"],
        digest=stage.status["digest"],
        **({"curve": curve} if curve else {}),
    )


_CURVE = ("interactions", "seconds", "d_loss", "entropy", "peak_gb")
