"""What a world says and what a learner may know: batches of tensors, never objects per episode.

Letters for the axes: B episodes, V views, K candidate actions (0 is *stop*), D feature width,
T time steps, N viewpoints, n rows of a split.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

STOP = 0
"""The action that ends an episode. Its embedding is all zeros (paper, Action Space)."""

NO_ACTION = -1
"""Padding behind the last action of a demonstration."""


class Observation(NamedTuple):
    """What the agent perceives: everything relative to its own heading, but `facing`."""

    views: Tensor  # [B, V, D] each view's features and its direction (the last 4 columns)
    actions: Tensor  # [B, K, D] the view of each candidate and the candidate's direction
    mask: Tensor  # [B, K] bool: which candidates exist; *stop* always does
    facing: Tensor  # [B, 4] cos and sin of the agent's own heading and elevation


class Choices(NamedTuple):
    """The candidates of B states one behind the other: P rows instead of B · K.

    A state's candidates fill its first columns, so that action i is row `first` + i. Rows that
    stand for nothing may follow, so that P takes few values; their slot is B · K.
    """

    embedding: Tensor  # [P, D] as in `Observation.actions`
    row: Tensor  # [P] whose candidate it is, 0 … B - 1
    slot: Tensor  # [P] where it stands in [B · K]
    first: Tensor  # [B] the row of each state's *stop*
    mask: Tensor  # [B, K]

    @classmethod
    def of(cls, actions: Tensor, mask: Tensor) -> Choices:
        """The same from the padded form, [B, K, D] and [B, K]."""
        slot = mask.flatten().nonzero()[:, 0]
        row, count = slot // mask.shape[1], mask.sum(1)
        return cls(actions.flatten(0, 1)[slot], row, slot, count.cumsum(0) - count, mask)

    def unpacked(self, packed: Tensor) -> Tensor:
        """[heads, B, K] from [heads, P], zero where there is no candidate."""
        heads, slots = len(packed), self.mask.numel()
        full = packed.new_zeros(heads, slots + 1).index_copy(1, self.slot, packed)
        return full[:, :slots].unflatten(1, self.mask.shape)


@dataclass(frozen=True)
class Tasks:
    """All that a learner may know of a task: where it starts and what it is told."""

    ids: list[str]  # "<path_id>_<i>" as the official evaluators spell it
    goals: list[str]  # instructions, as written
    start: Tensor  # [n] state keys
    route: Tensor  # [n] rows that describe the same path share a number

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, rows: Tensor) -> Tasks:
        """Some of the tasks."""
        chosen = rows.tolist()
        return Tasks(
            [self.ids[i] for i in chosen],
            [self.goals[i] for i in chosen],
            self.start[rows],
            self.route[rows],
        )


@dataclass(frozen=True)
class Demonstrations:
    """The expert's actions for each task, *stop* included, then NO_ACTION."""

    actions: Tensor  # [n, T]


@dataclass(frozen=True)
class References:
    """What only the metrics and the privileged upper bound may see: the annotated paths."""

    paths: Tensor  # [n, L] viewpoint indices; the last one is repeated as padding
    lengths: Tensor  # [n] viewpoints in each path

    @property
    def goals(self) -> Tensor:
        """[n] the viewpoint at which the path ends."""
        return self.paths[:, -1]


@dataclass(frozen=True)
class Split:
    """One named part of a data set. Without annotated paths, only `tasks` is there."""

    name: str
    tasks: Tasks
    demonstrations: Demonstrations | None
    references: References | None

    def __len__(self) -> int:
        return len(self.tasks)


class World(Protocol):
    """Static tensors and integer state keys; every method takes and gives whole batches."""

    name: str
    device: torch.device
    view_count: int  # V
    action_limit: int  # K
    feature_width: int  # D, the four direction numbers included

    @property
    def digest(self) -> str:
        """SHA-256 of what there is to see."""
        ...

    def reset(self, tasks: Tasks) -> Tensor:
        """The state keys [n] at which the tasks start."""
        ...

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        """The state keys [B] after one action each; *stop* changes nothing."""
        ...

    def observe(self, state: Tensor) -> Observation:
        """What is perceived in each state."""
        ...

    def choices(self, state: Tensor, dtype: torch.dtype) -> Choices:
        """The part of `observe` that networks on a frozen state need, in their precision."""
        ...

    def split(self, name: str) -> Split:
        """A part of the world's data by name."""
        ...
