"""Steps of episodes in one flat table: the demonstrations 𝒟̃, and the replay buffer ℛ.

    row      0    1    2    3    4    5    6    …        size       capacity
    episode  |a0   a1   a2  |b0   b1  |c0   c1  …         |  empty  |
    last                 ×         ×

The row behind a row holds the state that followed, unless it was its episode's last. A table that
is full overwrites its oldest rows. Keys are kept, never features; what the frozen encoders said of
a state is kept beside its key, in half precision, and so is log π of where the policy started: no
update works them out again.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from langgoalirl.worlds.types import NO_ACTION

GIVEN, HINDSIGHT = 0, 1
"""Under which goal a step is looked at: the one that was followed, G, or the relabelled one, G′."""


class Episodes(NamedTuple):
    """Up to T steps of B episodes."""

    keys: Tensor  # [B, T] the state in which each action was taken
    actions: Tensor  # [B, T], then NO_ACTION
    state: Tensor  # h^s, [B, T, hidden]
    goals: tuple[Tensor, ...]  # g under each goal that is known, [B, T, hidden] each
    priors: tuple[Tensor, ...]  # log π_BC under each of them, [B, T, K]

    @property
    def steps(self) -> int:
        """Interactions with the world."""
        return int((self.actions != NO_ACTION).sum())


class Situation(NamedTuple):
    """States under their goals."""

    key: Tensor  # [B]
    time: Tensor  # [B] actions taken before
    encoded: Tensor  # [h^s; g], [B, 2 hidden]
    prior: Tensor  # log π_BC, [B, K]; zero without one, and where there is no candidate

    @property
    def state(self) -> Tensor:
        """h^s, [B, hidden]."""
        return self.encoded.chunk(2, dim=-1)[0]

    @property
    def goal(self) -> Tensor:
        """g, [B, hidden]."""
        return self.encoded.chunk(2, dim=-1)[1]


class Steps(NamedTuple):
    """(s, a, s′, G), b of them."""

    now: Situation
    action: Tensor  # [b]
    then: Situation  # meaningless where `last`
    last: Tensor  # [b] bool: the agent stopped, or time was up


class Transitions:
    """A table of steps among at most `actions` candidates, under `goals` goals each, with encodings
    in `dtype`."""

    def __init__(
        self,
        capacity: int,
        hidden: int,
        actions: int,
        goals: int,
        device: torch.device,
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        def column(dtype: torch.dtype, *shape: int) -> Tensor:
            return torch.zeros((capacity, *shape), dtype=dtype, device=device)

        self.capacity, self.hidden, self.size, self.head = capacity, hidden, 0, 0
        self.columns = {
            "key": column(torch.int32),
            "action": column(torch.int8),
            "time": column(torch.int8),
            "last": column(torch.bool),
            "state": column(dtype, hidden),
            **{f"goal{i}": column(dtype, hidden) for i in range(goals)},
            **{f"prior{i}": column(torch.float32, actions) for i in range(goals)},
        }

    def add(self, episodes: Episodes) -> None:
        """Whole episodes, behind the newest ones."""
        taken = episodes.actions != NO_ACTION
        lengths = taken.sum(1, keepdim=True)
        time = torch.arange(taken.shape[1], device=taken.device).expand_as(taken)
        values = {
            "key": episodes.keys,
            "action": episodes.actions,
            "time": time,
            "last": time == lengths - 1,
            "state": episodes.state,
            **{f"goal{i}": goal for i, goal in enumerate(episodes.goals)},
            **{f"prior{i}": prior for i, prior in enumerate(episodes.priors)},
        }
        count = int(lengths.sum())
        if count > self.capacity:
            raise ValueError(f"{count} steps do not fit in a table of {self.capacity}")
        rows = (self.head + torch.arange(count, device=taken.device)) % self.capacity
        for name, column in self.columns.items():
            column[rows] = values[name][taken].to(column.dtype)
        self.head = (self.head + count) % self.capacity
        self.size = min(self.size + count, self.capacity)

    def sample(self, count: int, generator: torch.Generator, goal: int = GIVEN) -> Steps:
        """Steps drawn uniformly, under one of their goals."""
        device = self.columns["key"].device
        return self.at(torch.randint(self.size, (count,), generator=generator, device=device), goal)

    def at(self, rows: Tensor, goal: int = GIVEN) -> Steps:
        """These steps."""
        last = self.columns["last"][rows]
        behind = torch.where(last, rows, (rows + 1) % self.capacity)
        action = self.columns["action"][rows].long()
        return Steps(self._situation(rows, goal), action, self._situation(behind, goal), last)

    def _situation(self, rows: Tensor, goal: int) -> Situation:
        columns = self.columns
        parts = [columns[name].index_select(0, rows) for name in ("state", f"goal{goal}")]
        return Situation(
            columns["key"][rows].long(),
            columns["time"][rows].long(),
            torch.cat(parts, dim=-1),
            columns[f"prior{goal}"].index_select(0, rows),
        )

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps: the rows that are filled."""
        return {name: column[: self.size] for name, column in self.columns.items()}

    def restore(self, tensors: dict[str, Tensor], head: int) -> None:
        """Back to what `tensors` gave."""
        self.size, self.head = len(tensors["key"]), head
        for name, column in self.columns.items():
            column[: self.size] = tensors[name].to(column.device)


def join(parts: list[Steps]) -> Steps:
    """Several batches as one."""
    if len(parts) == 1:
        return parts[0]

    def together(column: list[Tensor]) -> Tensor:
        return torch.cat(column)

    now = Situation(*(together(list(c)) for c in zip(*(p.now for p in parts), strict=True)))
    then = Situation(*(together(list(c)) for c in zip(*(p.then for p in parts), strict=True)))
    action, last = (together([getattr(p, name) for p in parts]) for name in ("action", "last"))
    return Steps(now, action, then, last)
