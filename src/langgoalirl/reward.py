"""The learned reward as a thing of its own: what each step of a trajectory is worth under a goal.

reward = Reward.open(Path("runs/r2r-langgoalirl-s0"), "f")
reward(world, "Walk past the couch and stop.", Walk(states, actions))  # [T]
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from langgoalirl.demonstrations import Batch, observe_along
from langgoalirl.errors import UserError, nearest
from langgoalirl.irl.learner import GoalState, Learner
from langgoalirl.irl.transitions import Situation, Steps
from langgoalirl.language.vocabulary import Vocabulary
from langgoalirl.models.policy import FrozenEncoder
from langgoalirl.rollout import STEP_LIMIT
from langgoalirl.trained import Trained
from langgoalirl.worlds.types import NO_ACTION, STOP, World

KINDS = {
    "f": "the reward with shaping, g + γ h′ - h",
    "g": "the reward without shaping (AGILE: D(s, G) where it stops)",
    "bc": "log π of behaviour cloning, the reference",
}


class Walk(NamedTuple):
    """A trajectory [T], or several [B, T]: the state before each action, and the action; from the
    start on, because what a state is depends on all that was seen before it."""

    states: Tensor
    actions: Tensor  # then NO_ACTION


@dataclass
class Reward:
    """One of a finished run's functions of (s, a, s′, G)."""

    kind: str
    learner: Learner
    encoder: FrozenEncoder
    vocabulary: Vocabulary
    word_limit: int

    @classmethod
    def open(cls, run: Path, kind: str = "f") -> Reward:
        """The reward of a run that `train` finished."""
        return cls.of(Trained.open(run), kind)

    @classmethod
    def of(cls, trained: Trained, kind: str = "f") -> Reward:
        """The same, from a run that is open already."""
        if kind not in kinds(trained):
            raise UserError(f"this run has no reward '{kind}'.{nearest(kind, kinds(trained))}")
        encoder, learner = trained.learner()
        ground = trained.ground
        return cls(kind, learner, encoder, ground.vocabulary, ground.recipe.word_limit)

    def __call__(self, world: World, goal: str, transitions: Walk) -> Tensor:
        """[T] what each step of a trajectory is worth under an instruction."""
        words = self.vocabulary.encode([goal], self.word_limit)
        return self.of_words(world, words, Walk(*(part[None] for part in transitions)))[0]

    @torch.no_grad()
    def of_words(self, world: World, words: Tensor, walks: Walk) -> Tensor:
        """[B, T] for B trajectories under instructions in numbers [B, N]; 0 behind their ends."""
        states, actions = walks
        b, t = actions.shape
        if t > STEP_LIMIT:
            raise UserError(f"A trajectory takes {STEP_LIMIT} actions at most, not {t}.")
        device, self.learner.world = world.device, world
        still = torch.zeros(b, dtype=torch.bool)
        seen = observe_along(
            world, Batch(torch.arange(b), words, states, actions, still), torch.float32
        )
        state = self.encoder.base.state.sequence(seen.views, seen.facing)
        goal = self.encoder.goal(state, words.to(device))
        taken = (actions != NO_ACTION).to(device)
        time = torch.arange(t, device=device).expand(b, t)
        last = time == taken.sum(1, keepdim=True) - 1
        behind = torch.where(last | ~taken, time, time + 1)
        row = torch.arange(b, device=device)[:, None]

        prior = self.learner.log_prior(states[:, :t].to(device), state, goal)

        def at(when: Tensor) -> Situation:
            columns = (states.to(device), time, torch.cat([state, goal], dim=-1), prior)
            return Situation(*(column[row, when].flatten(0, 1) for column in columns))

        action = actions.to(device).clamp_min(STOP).flatten()
        values = self._values(Steps(at(time), action, at(behind), last.flatten()))
        return torch.where(taken, values.view(b, t), 0.0)

    def _values(self, steps: Steps) -> Tensor:
        learner = self.learner
        if self.kind == "bc":
            return steps.now.prior.gather(1, steps.action[:, None])[:, 0]
        if isinstance(learner.reward, GoalState):
            goal = torch.sigmoid(learner.reward.score(steps.now))
            return torch.where(steps.action == STOP, goal, 0.0)
        f, g = learner.f(steps, learner.choices(steps.now.key))
        return f if self.kind == "f" else g


def kinds(trained: Trained) -> list[str]:
    """The rewards that a run has."""
    recipe = trained.learning
    found = {"bc_egr": [], "agile": ["g"]}.get(recipe.method, ["f", "g"])
    return [*found, *(["bc"] if recipe.start == "bc" or recipe.method == "bc_egr" else [])]


def mean_per_step(values: Tensor, actions: Tensor) -> Tensor:
    """[B] the mean over the steps that were taken."""
    return values.sum(1) / (actions != NO_ACTION).sum(1).to(values.device)
