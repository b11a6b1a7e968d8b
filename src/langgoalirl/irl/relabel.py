"""Goals made after the fact: what the goal generator says of trajectories, and the pool 𝒢."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from langgoalirl.irl.transitions import Episodes
from langgoalirl.language.vocabulary import PAD
from langgoalirl.models.base_model import BaseModel
from langgoalirl.models.goal_generator import GoalGenerator, Walk
from langgoalirl.models.speaking import Sampling, path_log_likelihood, sample_goals
from langgoalirl.rollout import cast
from langgoalirl.worlds.types import NO_ACTION, Observation, World


@dataclass
class Relabeller:
    """G′ ~ GoalGenerator(τ′), or of several sentences the one that the base model follows best."""

    world: World
    generator: GoalGenerator
    base: BaseModel
    how: Sampling

    @torch.no_grad()
    def __call__(self, episodes: Episodes, chance: torch.Generator) -> Tensor:
        """Words [B, limit + 1] of one goal per episode."""
        b, t = episodes.keys.shape
        seen = cast(self.world.observe(episodes.keys.T.flatten()), torch.float32)
        seen = Observation(*(part.view(t, b, *part.shape[1:]).transpose(0, 1) for part in seen))
        lengths = (episodes.actions != NO_ACTION).sum(1)
        encoded = self.generator.encode(Walk(seen, episodes.actions, lengths))
        said = sample_goals(self.generator, encoded, self.how, chance)
        words = said[:, 0]
        if self.how.samples > 1:
            state = episodes.state.float()
            fit = path_log_likelihood(self.base, state, seen, episodes.actions, said)
            best = fit.argmax(1)
            words = said[torch.arange(b, device=best.device), best]
        padded = torch.full((b, self.how.limit + 1), PAD, device=words.device)
        padded[:, : words.shape[1]] = words
        return padded


class Goals:
    """(E, G): where to start and what to do. A full pool forgets its oldest goals."""

    def __init__(self, capacity: int, word_limit: int, device: torch.device) -> None:
        self.words = torch.full((capacity, word_limit), PAD, dtype=torch.int32, device=device)
        self.start = torch.zeros(capacity, dtype=torch.int32, device=device)
        self.size = self.head = 0

    def add(self, start: Tensor, words: Tensor) -> None:
        """Goals behind the newest ones."""
        rows = (self.head + torch.arange(len(start), device=start.device)) % len(self.start)
        self.words[rows] = PAD
        self.words[rows, : words.shape[1]] = words.int()
        self.start[rows] = start.int()
        self.head = (self.head + len(start)) % len(self.start)
        self.size = min(self.size + len(start), len(self.start))

    def sample(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Start keys [count] and words [count, N], drawn uniformly."""
        device = self.start.device
        rows = torch.randint(self.size, (count,), generator=generator, device=device)
        return self.start[rows].long(), self.words[rows].long()

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps."""
        return {"words": self.words[: self.size], "start": self.start[: self.size]}

    def restore(self, tensors: dict[str, Tensor], head: int) -> None:
        """Back to what `tensors` gave."""
        self.size, self.head = len(tensors["start"]), head
        self.words[: self.size] = tensors["words"].to(self.words.device)
        self.start[: self.size] = tensors["start"].to(self.start.device)
