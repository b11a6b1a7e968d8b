"""Houses that do not exist: as many as wanted, with routes and instructions, from one seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from langgoalirl.errors import UserError, nearest
from langgoalirl.worlds.geometry import VIEW_HEADINGS, VIEWS, Floats, start_view
from langgoalirl.worlds.houses.appearance import Codes, render
from langgoalirl.worlds.houses.facts import Guide
from langgoalirl.worlds.houses.layout import EYE, Plan, build
from langgoalirl.worlds.houses.sight import Survey, survey
from langgoalirl.worlds.houses.telling import tell
from langgoalirl.worlds.houses.voices import VOICES
from langgoalirl.worlds.navgraph import DIRECTION, House, NavGraph
from langgoalirl.worlds.types import Demonstrations, References, Split, Tasks

FEATURES = ("objects", "none")  # what is seen, or the bare geometry
SPLITS = ("train", "val_seen", "val_unseen")
DESCRIPTIONS = 3  # per route, each by another voice
FEWEST, MOST, METRES = 4, 7, 5.0  # moves of a route, and its least length
LAYOUT, LOOKS, ROUTES = range(3)  # what a house draws random numbers for


@dataclass(frozen=True)
class Route:
    """A shortest path, the heading one starts with, and what three voices say of it."""

    path_id: int
    path: list[int]  # viewpoints of its house
    view: int
    goals: list[str]


@dataclass(frozen=True)
class Built:
    """All that one house contributes: it depends on the seed and its own number alone."""

    plan: Plan
    house: House
    features: Floats  # [n, 36, F]
    routes: list[Route]


class Houses(NavGraph):
    """Training houses, unseen houses, and `routes` of each training house that are learned from.

    One eighth as many other routes of each training house make val_seen, one half as many of each
    unseen house val_unseen.
    """

    def __init__(
        self,
        seed: int = 0,
        houses: int = 48,
        unseen: int = 12,
        routes: int = 60,
        features: str = "objects",
        device: torch.device | str = "cpu",
    ) -> None:
        sizes = {"seed": seed, "houses": houses, "unseen": unseen, "routes": routes}
        for name, size in sizes.items():
            least = int(name != "seed")
            if size < least:
                raise UserError(f"The houses world needs {name} of at least {least}, not {size}.")
        if features not in FEATURES:
            raise UserError(f"Houses have no features '{features}'.{nearest(features, FEATURES)}")
        apart = max(1, routes // 8)
        codes = Codes(seed)
        seen = [build_house(seed, i, codes, routes + apart) for i in range(houses)]
        new = [build_house(seed, i, codes, max(1, routes // 2), unseen=True) for i in range(unseen)]
        every = seen + new
        self.plans = {built.plan.name: built.plan for built in every}
        table = _table(every)
        if features == "none":
            table.zero_()
        super().__init__([built.house for built in every], table, name="houses", device=device)
        # The routes are in random order, so that the last are as good as any to be held out.
        held = [max(1, len(built.routes) * apart // (routes + apart)) for built in seen]
        parts: dict[str, list[list[Route]]] = {
            "train": [b.routes[:-n] for b, n in zip(seen, held, strict=True)] + [[] for _ in new],
            "val_seen": [b.routes[-n:] for b, n in zip(seen, held, strict=True)],
            "val_unseen": [[] for _ in seen] + [built.routes for built in new],
        }
        self._splits = {name: self._assemble(name, routes) for name, routes in parts.items()}

    def split(self, name: str) -> Split:
        """'train', 'val_seen' or 'val_unseen'."""
        if name not in self._splits:
            raise UserError(f"Houses have no split '{name}'.{nearest(name, SPLITS)}")
        return self._splits[name]

    def plan(self, name: str) -> Plan:
        """Rooms, doors and things of a house, as a drawing from above needs them."""
        self.house(name)  # its error names the houses that there are
        return self.plans[name]

    def _assemble(self, name: str, per_house: list[list[Route]]) -> Split:
        """The rows of a split: three for each route."""
        routes = [(route, int(self.first[i])) for i, own in enumerate(per_house) for route in own]
        longest = max((len(route.path) for route, _ in routes), default=1)
        paths = np.array(
            [
                [first + at for at in route.path]
                + [first + route.path[-1]] * (longest - len(route.path))
                for route, first in routes
            ]
        ).reshape(-1, longest)
        view = np.array([route.view for route, _ in routes], dtype=np.int64)
        lengths = np.array([len(route.path) for route, _ in routes], dtype=np.int64)

        def rows(values: NDArray[np.int64]) -> torch.Tensor:
            return torch.as_tensor(np.repeat(values, DESCRIPTIONS, axis=0), device=self.device)

        tasks = Tasks(
            ids=[f"{route.path_id}_{i}" for route, _ in routes for i in range(DESCRIPTIONS)],
            goals=[goal for route, _ in routes for goal in route.goals],
            start=rows(paths[:, 0] * VIEWS + view),
            route=rows(np.arange(len(routes))),
        )
        references = References(rows(paths), rows(lengths))
        actions = self.actions_along(references.paths, references.lengths)
        return Split(name, tasks, Demonstrations(actions), references)


def build_house(
    seed: int, number: int, codes: Codes, routes: int, *, unseen: bool = False
) -> Built:
    """House `number` of its kind, the same whatever else the world holds."""
    name = f"{'unseen' if unseen else 'house'}_{number:04d}"

    def draw(purpose: int) -> np.random.Generator:
        return np.random.default_rng([seed, int(unseen), number, purpose])

    plan = build(name, draw(LAYOUT))
    seen = survey(plan)
    count = len(plan.positions)
    viewpoints = [f"{name}_{i:02d}" for i in range(count)]
    heights = np.full(count, EYE)
    house = House(name, viewpoints, plan.positions, seen.edges, seen.visible, heights)
    features = render(plan, seen, codes, draw(LOOKS))
    first_id = (2 * number + unseen) * 10_000
    return Built(plan, house, features, _routes(plan, seen, house, routes, first_id, draw(ROUTES)))


def _routes(
    plan: Plan, seen: Survey, house: House, wanted: int, first_id: int, rng: np.random.Generator
) -> list[Route]:
    """Shortest paths between rooms, in random order, each described by three voices."""
    routes: list[Route] = []
    guide = Guide(plan, seen)
    for pair in rng.permutation(len(house) ** 2).tolist():
        start, goal = divmod(pair, len(house))
        if plan.room_of[start] == plan.room_of[goal] or house.distances[start, goal] <= METRES:
            continue
        path = shortest_path(house, start, goal)
        if not FEWEST <= len(path) - 1 <= MOST:
            continue
        view = start_view(rng.uniform(0, 2 * np.pi))
        known = guide.facts(path, float(VIEW_HEADINGS[view]))
        voices = rng.choice(len(VOICES), DESCRIPTIONS, replace=False)
        goals = [tell(VOICES[voice], plan, known, rng) for voice in voices]
        routes.append(Route(first_id + len(routes), path, view, goals))
        if len(routes) == wanted:
            break
    return routes


def shortest_path(house: House, start: int, goal: int) -> list[int]:
    """The viewpoints of a shortest path, both ends included."""
    path = [start]
    while path[-1] != goal:
        next_to = np.flatnonzero(house.edges[path[-1]])
        step = np.linalg.norm(house.positions[next_to] - house.positions[path[-1]], axis=-1)
        path.append(int(next_to[(step + house.distances[next_to, goal]).argmin()]))
    return path


def _table(every: list[Built]) -> torch.Tensor:
    """[N + 1, 36, F + 4] the features of all views, room for directions, and nowhere."""
    rows = sum(len(built.features) for built in every)
    width = every[0].features.shape[-1]
    table = np.zeros((rows + 1, VIEWS, width + DIRECTION), dtype=np.float32)
    np.concatenate([built.features for built in every], out=table[:rows, :, :width])
    return torch.from_numpy(table)
