"""Demonstrations as tensors, and batches of them: a function of (seed, update), so nothing needs
to be remembered to go on where a run was cut off."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from langgoalirl.language.vocabulary import PAD, Vocabulary
from langgoalirl.rollout import cast
from langgoalirl.worlds.types import NO_ACTION, STOP, Observation, Split, World

SIN_HEADING = -3  # its column among the directions, the last four columns

MIRRORED = {"left": "right", "leftmost": "rightmost", "lefthand": "righthand"}
MIRRORED |= {right: left for left, right in MIRRORED.items()}


@dataclass(frozen=True)
class Batch:
    """B demonstrations: what was said, where the expert was, what it did."""

    rows: Tensor  # [B] their numbers in the set
    words: Tensor  # [B, N]
    states: Tensor  # [B, T] state keys before each action
    actions: Tensor  # [B, T], NO_ACTION behind the end
    mirrored: Tensor  # [B] bool: left and right are exchanged

    @property
    def lengths(self) -> Tensor:
        """[B] actions, *stop* included."""
        return (self.actions != NO_ACTION).sum(1)


class DemonstrationSet:
    """The demonstrations of a split with their words encoded and their states worked out once."""

    def __init__(self, world: World, split: Split, vocabulary: Vocabulary, word_limit: int) -> None:
        if split.demonstrations is None:
            raise ValueError(f"split '{split.name}' has no demonstrations")
        self.words = vocabulary.encode(split.tasks.goals, word_limit)
        self.actions = split.demonstrations.actions.cpu()
        self.states = trace(world, world.reset(split.tasks), self.actions.to(world.device)).cpu()
        self.route = split.tasks.route.cpu()
        self.mirror_word = torch.arange(len(vocabulary))
        for word, other in MIRRORED.items():
            if word in vocabulary.index and other in vocabulary.index:
                self.mirror_word[vocabulary.index[word]] = vocabulary.index[other]

    def __len__(self) -> int:
        return len(self.words)

    def rows(self, rows: Tensor, mirrored: Tensor | None = None) -> Batch:
        """These demonstrations, trimmed to the longest of them."""
        words, actions = self.words[rows], self.actions[rows]
        if mirrored is None:
            mirrored = torch.zeros(len(rows), dtype=torch.bool)
        words = torch.where(mirrored[:, None], self.mirror_word[words], words)
        length = int((words != PAD).sum(1).max())
        steps = int((actions != NO_ACTION).sum(1).max())
        states = self.states[rows, :steps]
        return Batch(rows, words[:, :length], states, actions[:, :steps], mirrored)


def trace(world: World, start: Tensor, actions: Tensor) -> Tensor:
    """[n, T] the states in which the actions [n, T] were taken, from the start keys on."""
    states = [start]
    for action in actions.T[:-1]:
        states.append(world.step(states[-1], action.clamp_min(STOP)))
    return torch.stack(states, dim=1)


class BatchOrder:
    """Which demonstrations update number u learns from: every one once per epoch, in batches of
    similar length, so that little is computed for padding."""

    def __init__(
        self, data: DemonstrationSet, batch: int, seed: int, mirror: bool, buckets: int = 12
    ) -> None:
        self.data, self.batch, self.seed, self.mirror = data, batch, seed, mirror
        self.pool = batch * buckets
        self.lengths = (data.words != PAD).sum(1)
        self.per_epoch = max(1, len(data) // batch)
        self._epoch = -1
        self._rows = torch.empty(0)

    def __call__(self, update: int) -> Batch:
        """The batch of an update; the same for the same (seed, update)."""
        epoch, place = divmod(update, self.per_epoch)
        if epoch != self._epoch:
            self._epoch, self._rows = epoch, self._shuffle(epoch)
        rows = self._rows[place]
        chance = torch.Generator().manual_seed(mix(self.seed, update, 1))
        flips = torch.rand(len(rows), generator=chance) < (0.5 if self.mirror else 0.0)
        return self.data.rows(rows, flips)

    def _shuffle(self, epoch: int) -> Tensor:
        generator = torch.Generator().manual_seed(mix(self.seed, epoch, 2))
        order = torch.randperm(len(self.data), generator=generator)
        pools = [pool[self.lengths[pool].argsort()] for pool in order.split(self.pool)]
        size = min(self.batch, len(self.data))
        batches = torch.cat(pools)[: self.per_epoch * size].view(self.per_epoch, size)
        return batches[torch.randperm(self.per_epoch, generator=generator)]


def mix(*numbers: int) -> int:
    """One seed out of several numbers: distinct for distinct inputs, for all we will ever draw."""
    state = 0x9E3779B97F4A7C15
    for number in numbers:
        state = ((state ^ number) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 31
    return state >> 1


def observe_along(world: World, batch: Batch, dtype: torch.dtype) -> Observation:
    """What was seen in every state of a batch, [B, T, …]; mirrored rows see a mirrored world.

    Reflection needs no images: what lay at heading φ lies at -φ, the features stay what they are.
    """
    b, t = batch.states.shape
    # Time first in memory, so that what is seen at one step lies in one piece.
    seen = cast(world.observe(batch.states.T.flatten().to(world.device)), dtype)
    seen = Observation(*(part.view(t, b, *part.shape[1:]).transpose(0, 1) for part in seen))
    if bool(batch.mirrored.any()):
        sign = torch.where(batch.mirrored, -1.0, 1.0).to(world.device, dtype)
        seen.views[..., SIN_HEADING] *= sign[:, None, None]
        seen.actions[..., SIN_HEADING] *= sign[:, None, None]
        seen.facing[..., 1] *= sign[:, None]
    return seen
