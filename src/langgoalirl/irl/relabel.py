"""Goals made after the fact: what the goal generator says of trajectories, and the pool 𝒢."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from langgoalirl.irl.transitions import Episodes
from langgoalirl.language.vocabulary import PAD
from langgoalirl.models.base_model import BaseModel
from langgoalirl.models.goal_generator import GoalGenerator, Walk
from langgoalirl.models.layers import masked_log_softmax
from langgoalirl.rollout import cast
from langgoalirl.worlds.types import NO_ACTION, STOP, Observation, World


@dataclass
class Relabeller:
    """G′ ~ GoalGenerator(τ′), or the one of `samples` that the base model follows best."""

    world: World
    generator: GoalGenerator
    base: BaseModel
    samples: int
    word_limit: int

    @torch.no_grad()
    def __call__(self, episodes: Episodes, chance: torch.Generator) -> Tensor:
        """Words [B, word_limit] of one goal per episode."""
        b, t = episodes.keys.shape
        seen = cast(self.world.observe(episodes.keys.T.flatten()), torch.float32)
        seen = Observation(*(part.view(t, b, *part.shape[1:]).transpose(0, 1) for part in seen))
        taken = episodes.actions != NO_ACTION
        encoded = self.generator.encode(Walk(seen, episodes.actions, taken.sum(1)))
        encoded = encoded.repeat(self.samples)
        z = self.generator.prior_of(encoded).sample(chance)
        words = self.generator.generate(encoded, z, self.word_limit - 1)
        if self.samples > 1:
            words = words.view(b, self.samples, -1)
            fit = path_log_likelihood(
                self.base, episodes.state.float(), seen, episodes.actions, words
            )
            words = words[torch.arange(b), fit.argmax(1)]
        padded = torch.full((b, self.word_limit), PAD, device=words.device)
        padded[:, : words.shape[1]] = words
        return padded


@torch.no_grad()
def path_log_likelihood(
    base: BaseModel, state: Tensor, seen: Observation, actions: Tensor, words: Tensor
) -> Tensor:
    """[B, S] log p(path | sentence) for S sentences [B, S, N] per path: how well the base model
    would be led along it. The states h^s [B, T, hidden] are the same for all sentences."""
    b, s, n = words.shape

    def each(x: Tensor) -> Tensor:
        return x.repeat_interleave(s, 0)

    logits = base.scores(each(state), base.read(words.view(b * s, n)), each(seen.actions))
    log_p = masked_log_softmax(logits, each(seen.mask))
    done = each(actions)
    chosen = log_p.gather(-1, done.clamp_min(STOP)[..., None])[..., 0]
    return torch.where(done != NO_ACTION, chosen, 0.0).sum(-1).view(b, s)


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
