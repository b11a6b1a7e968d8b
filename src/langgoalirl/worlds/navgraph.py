"""A world of houses as tensors: viewpoints joined by edges, 36 views at each.

A state is one integer, `viewpoint * 36 + view`. Everything that an agent sees is gathered from one
feature table [N, 36, D] and a few padded neighbour tables [N, K]; nothing loops over the batch.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from langgoalirl.errors import UserError, nearest
from langgoalirl.worlds.geometry import (
    HEADINGS,
    VIEW_ELEVATIONS,
    VIEW_HEADINGS,
    VIEWS,
    Candidates,
    Floats,
    candidates,
)
from langgoalirl.worlds.types import STOP, Choices, Observation, Split, Tasks

DIRECTION = 4  # cos and sin of a heading, cos and sin of an elevation


@dataclass(frozen=True)
class House:
    """One building: where its viewpoints are, which are joined, which see each other."""

    name: str
    viewpoints: list[str]
    positions: Floats  # [n, 3] metres
    edges: NDArray[np.bool_]  # [n, n]
    visible: NDArray[np.bool_]  # [n, n]
    heights: Floats  # [n] of the camera above the floor

    def __len__(self) -> int:
        return len(self.viewpoints)

    @cached_property
    def candidates(self) -> list[Candidates]:
        """The neighbours of each viewpoint, in the simulator's order."""
        # The simulator keeps positions in single precision; order and angles follow from it.
        rounded = self.positions.astype(np.float32).astype(np.float64)
        return [candidates(rounded, i, np.flatnonzero(self.edges[i])) for i in range(len(self))]

    @cached_property
    def distances(self) -> Floats:
        """[n, n] metres along the edges, infinite where there is no way (Floyd and Warshall)."""
        difference = self.positions[:, None] - self.positions[None]
        length = np.sqrt((difference * difference).sum(-1))
        distance = np.where(self.edges, length, np.inf)
        np.fill_diagonal(distance, 0.0)
        for k in range(len(self)):
            np.minimum(distance, distance[:, k, None] + distance[None, k], out=distance)
        return distance


def direction(heading: Floats, elevation: Floats) -> Floats:
    """[..., 4]: the paper's four orientation numbers."""
    return np.stack(
        [np.cos(heading), np.sin(heading), np.cos(elevation), np.sin(elevation)], axis=-1
    )


def _rows(table: Tensor, rows: Tensor) -> Tensor:
    """Some rows of a table [n, d].

    index_select copies whole rows: several times as fast as indexing on the CPU, and in words of
    eight bytes, where a row consists of them, a fifth faster than in words of two.
    """
    if table.shape[1] * table.element_size() % 8:
        return table.index_select(0, rows)
    return table.view(torch.int64).index_select(0, rows).view(table.dtype)


ROUND = 64
"""The number of candidates in a batch is rounded up to a multiple of this on a CPU."""


class NavGraph:
    """Batched reset, step and observe over any number of houses.

    `features` is [R + 1, 36, D]. Its last four columns are room for the directions relative to the
    agent, so that one gather makes a whole observation; its last row is nowhere, all zeros: what
    *stop* and absent candidates look like. `rows` [N] says which row each viewpoint has, for a
    table that is not in the houses' order.
    """

    view_count = VIEWS

    def __init__(
        self,
        houses: list[House],
        features: Tensor,
        rows: Tensor | None = None,
        *,
        name: str = "navgraph",
        digest: str = "",
        device: torch.device | str = "cpu",
    ) -> None:
        self.name = name
        self._digest = digest
        self.device = torch.device(device)
        self.houses = houses
        self.house_index = {house.name: i for i, house in enumerate(houses)}
        self.first = np.concatenate([[0], np.cumsum([len(house) for house in houses])])
        self.index = {
            (house.name, viewpoint): int(self.first[i]) + j
            for i, house in enumerate(houses)
            for j, viewpoint in enumerate(house.viewpoints)
        }
        total = int(self.first[-1])
        rows = torch.arange(total) if rows is None else rows
        if features.ndim != 3 or features.shape[1] != VIEWS or len(rows) != total:
            raise ValueError(
                f"{total} viewpoints, {len(rows)} rows, features {tuple(features.shape)}"
            )
        self.feature_width = features.shape[2]
        self._panoramas = features.to(self.device).view(len(features), -1)  # [R + 1, 36 D]
        self._views = self._panoramas.view(-1, self.feature_width)  # [(R + 1) 36, D]
        self._row = rows.to(self.device)
        self._fill_tables(total)

    def _fill_tables(self, total: int) -> None:
        """Neighbour tables: column 0 is *stop*, unused columns lead nowhere."""
        every = [row for house in self.houses for row in house.candidates]
        self.action_limit = 1 + max((len(row.target) for row in every), default=0)
        shape = (total, self.action_limit)
        neighbour = np.repeat(np.arange(total)[:, None], self.action_limit, axis=1)
        through = np.zeros(shape, dtype=np.int64)
        heading = np.zeros(shape)
        elevation = np.zeros(shape)
        metres = np.zeros(shape)
        mask = np.zeros(shape, dtype=bool)
        mask[:, STOP] = True
        house_of = np.repeat(np.arange(len(self.houses)), np.diff(self.first))
        for i, row in enumerate(every):
            columns = slice(1, 1 + len(row.target))
            neighbour[i, columns] = row.target + self.first[house_of[i]]
            through[i, columns] = row.view
            heading[i, columns] = row.heading
            elevation[i, columns] = row.elevation
            metres[i, columns] = row.metres
            mask[i, columns] = True

        def table(values: NDArray, dtype: torch.dtype) -> Tensor:
            return torch.as_tensor(values, dtype=dtype, device=self.device)

        self.house_of = table(house_of, torch.long)
        self.neighbour = table(neighbour, torch.long)  # [N, K]
        self.through = table(through, torch.long)  # [N, K] the view one leaves through
        self.mask = table(mask, torch.bool)  # [N, K]
        self.metres = table(metres, torch.float64)  # [N, K]
        # Facing a way changes the heading of all that is seen, but not its elevation.
        facing = VIEW_HEADINGS[:HEADINGS, None]
        dtype = self._views.dtype
        self._facing = table(direction(VIEW_HEADINGS, VIEW_ELEVATIONS), torch.float32)  # [36, 4]
        views = direction(VIEW_HEADINGS[None] - facing, np.tile(VIEW_ELEVATIONS, (HEADINGS, 1)))
        self._view_direction = table(views, dtype)  # [12, 36, 4]
        relative = heading[None] - facing[..., None]  # [12, N, K]
        towards = direction(relative, np.broadcast_to(elevation, relative.shape))
        # Absent candidates and *stop* are all zeros, their directions included.
        self._action_direction = table(towards * mask[None, ..., None], dtype)
        self._action_direction[:, :, STOP] = 0
        self._leads_away = self.mask.clone()
        self._leads_away[:, STOP] = False
        nowhere = len(self._views) - 1
        seen_in = self._row[:, None] * VIEWS + self.through
        self._action_row = torch.where(self._leads_away, seen_in, nowhere)  # [N, K]
        self._packed_in: dict[torch.dtype, tuple[Tensor, Tensor, Tensor, Tensor]] = {}

    @cached_property
    def digest(self) -> str:
        """What tells this world from others: its features (or their digest, as given), its edges
        and where these lead."""
        seen = self._digest.encode() or self._panoramas.cpu().numpy().tobytes()
        total = hashlib.sha256(seen)
        for table in (self.neighbour, self.through, self.metres):
            total.update(table.cpu().numpy().tobytes())
        return total.hexdigest()

    def reset(self, tasks: Tasks) -> Tensor:
        """The state keys at which the tasks start."""
        return tasks.start.to(self.device)

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        """Go to the chosen neighbour, facing the view one left through; *stop* changes nothing."""
        viewpoint = state // VIEWS
        moved = self.neighbour[viewpoint, action] * VIEWS + self.through[viewpoint, action]
        return torch.where(action == STOP, state, moved)

    def observe(self, state: Tensor) -> Observation:
        """Views, candidates and their directions relative to the agent's heading."""
        viewpoint, view = state // VIEWS, state % VIEWS
        heading = view % HEADINGS
        views = _rows(self._panoramas, self._row[viewpoint])
        views = views.view(-1, VIEWS, self.feature_width)
        views[..., -DIRECTION:] = self._view_direction[heading]
        actions = _rows(self._views, self._action_row[viewpoint].flatten())
        actions = actions.view(-1, self.action_limit, self.feature_width)
        actions[..., -DIRECTION:] = self._action_direction[heading, viewpoint]
        return Observation(views, actions, self.mask[viewpoint], self._facing[view])

    def choices(self, state: Tensor, dtype: torch.dtype) -> Choices:
        """The candidates that exist, out of a table that holds them alone."""
        embedding, towards, first_of, count_of = self._packed(dtype)
        viewpoint, heading = state // VIEWS, state % HEADINGS
        count, b = count_of[viewpoint], len(state)
        row = torch.arange(b, device=self.device)
        limit = self.action_limit
        if self.device.type == "cpu":
            row, first = row.repeat_interleave(count), count.cumsum(0) - count
            column = torch.arange(len(row)) - first[row]
            # Sizes that differ from batch to batch would leave no freed block for the next one.
            empty = torch.full((-len(row) % ROUND,), b)
            row, column = torch.cat([row, empty - 1]), torch.cat([column, empty.fill_(limit)])
        else:  # how many there are is not known without waiting for the device: take them all
            row = row.repeat_interleave(limit, output_size=b * limit)
            column = torch.arange(limit, device=self.device).repeat(b)
            first = torch.arange(b, device=self.device) * limit
        # What is absent looks like *stop*; the mask tells it apart.
        entry = first_of[viewpoint][row] + torch.where(column < count[row], column, STOP)
        actions = _rows(embedding, entry)
        actions[:, -DIRECTION:] = towards[heading[row], entry]
        return Choices(actions, row, row * limit + column, first, self.mask[viewpoint])

    def _packed(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All M candidates of all viewpoints [M, D], their directions under each heading
        [12, M, 4], and each viewpoint's first one and number; converted once."""
        if dtype not in self._packed_in:
            exist = self.mask.flatten().nonzero()[:, 0]
            embedding = self._views.index_select(0, self._action_row.flatten()[exist])
            towards = self._action_direction.flatten(1, 2)[:, exist]
            count = self.mask.sum(1)
            # By way of float32: from float16 to bfloat16 directly is ten times slower on a CPU.
            self._packed_in[dtype] = (
                embedding.float().to(dtype),
                towards.float().to(dtype),
                count.cumsum(0) - count,
                count,
            )
        return self._packed_in[dtype]

    def split(self, name: str) -> Split:
        """A bare graph has no data; the worlds built on it do."""
        raise UserError(f"The world '{self.name}' has no split '{name}'.")

    # What follows knows goals and distances: for metrics and the privileged upper bound alone.

    @cached_property
    def _distances(self) -> tuple[Tensor, Tensor]:
        """All houses' distance matrices in one row, and where each house begins in it."""
        sizes = torch.tensor([len(house) for house in self.houses])
        begin = torch.cumsum(sizes * sizes, 0) - sizes * sizes
        flat = np.concatenate([house.distances.ravel() for house in self.houses])
        return torch.as_tensor(flat, device=self.device), begin.to(self.device)

    def distance(self, origin: Tensor, target: Tensor) -> Tensor:
        """Metres along the graph between viewpoints of the same house, any (broadcast) shape."""
        flat, begin = self._distances
        house = self.house_of[origin]
        first = torch.as_tensor(self.first, device=self.device)
        size = first[house + 1] - first[house]
        return flat[begin[house] + (origin - first[house]) * size + (target - first[house])]

    def towards(self, viewpoint: Tensor, goal: Tensor) -> Tensor:
        """The first action of a shortest path from each viewpoint to its goal; *stop* if there."""
        way = self.metres[viewpoint] + self.distance(self.neighbour[viewpoint], goal[:, None])
        way[~self._leads_away[viewpoint]] = torch.inf
        return torch.where(viewpoint == goal, STOP, way.argmin(dim=1))

    def actions_along(self, paths: Tensor, lengths: Tensor) -> Tensor:
        """[n, L] the actions that walk each path [n, L] and stop; raises where it is no walk."""
        following = torch.roll(paths, -1, dims=1)
        matches = (self.neighbour[paths] == following[..., None]) & self._leads_away[paths]
        step = torch.arange(paths.shape[1], device=paths.device)
        inside = step < (lengths - 1)[:, None]
        if not bool((matches.any(-1) | ~inside).all()):
            row, column = (inside & ~matches.any(-1)).nonzero()[0].tolist()
            raise ValueError(f"row {row}: no edge leads on from step {column}")
        actions = torch.where(inside, matches.int().argmax(-1), STOP)
        actions[step > (lengths - 1)[:, None]] = -1
        return actions

    def house(self, name: str) -> House:
        """A house by its name."""
        if name not in self.house_index:
            raise UserError(
                f"House '{name}' is not in this world.{nearest(name, self.house_index)}"
            )
        return self.houses[self.house_index[name]]
