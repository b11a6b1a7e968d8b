"""How a house is built: a footprint cut into rooms, doors between them, things and viewpoints.

Every room is a rectangle, hence convex: from a doorway one sees all of both rooms, so that a
viewpoint in each doorway and one in each room make the whole house walkable.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from langgoalirl.worlds.geometry import Floats
from langgoalirl.worlds.houses.vocabulary import CENTRAL, COLOURS, LOOKS, ROOMS, THINGS

STOREY = 2.9  # metres from floor to floor
EYE = 1.5  # height of the camera
CORRIDOR = 1.5  # width
STAIRWELL = 2.2  # width
SPACING = 1.6  # least distance between two viewpoints of a room
LOOPS = 0.3  # how many of the walls between rooms that are joined already get a door as well
INSET = 0.6  # viewpoints keep this far from walls

Rectangle = tuple[float, float, float, float]  # x0, y0, x1, y1


@dataclass(frozen=True)
class Room:
    """A rectangle of floor with a purpose."""

    kind: str
    floor: int
    x0: float
    y0: float
    x1: float
    y1: float

    @property
    def area(self) -> float:
        return (self.x1 - self.x0) * (self.y1 - self.y0)

    @property
    def long_axis(self) -> int:
        """0 where the room is wider than deep, else 1."""
        return int(self.y1 - self.y0 > self.x1 - self.x0)


@dataclass(frozen=True)
class Door:
    """A gap in the wall between two rooms; `axis` 0 is a wall along x, 1 along y."""

    rooms: tuple[int, int]
    floor: int
    x: float
    y: float
    axis: int
    width: float


@dataclass(frozen=True)
class Placed:
    """One object: its kind in THINGS, what it looks like, and where its middle is."""

    kind: str
    look: str
    room: int
    x: float
    y: float
    z: float  # above the ground floor


@dataclass(frozen=True)
class Plan:
    """Everything that a drawing of the house from above needs."""

    name: str
    rooms: list[Room]
    doors: list[Door]
    things: list[Placed]
    positions: Floats  # [n, 3] viewpoints
    room_of: NDArray[np.int64]  # [n] a doorway counts to the first of its rooms
    door_of: NDArray[np.int64]  # [n] the doorway that a viewpoint stands in, or -1

    @property
    def floor_of(self) -> NDArray[np.int64]:
        """[n] the storey of each viewpoint; the landing of the stairs counts to the lower one."""
        return np.array([self.rooms[room].floor for room in self.room_of])


def build(name: str, rng: np.random.Generator) -> Plan:
    """A house of one or two storeys, drawn from `rng` alone."""
    rooms = _rooms(rng)
    doors = _doors(rng, rooms)
    positions, room_of, door_of = _viewpoints(rng, rooms, doors)
    things = _things(rng, rooms, doors)
    return Plan(name, rooms, doors, things, positions, room_of, door_of)


def _split(rng: np.random.Generator, box: Rectangle) -> list[Rectangle]:
    """Cut a rectangle across its longer side, again and again, until the pieces are rooms."""
    x0, y0, x1, y1 = box
    wide, deep = x1 - x0, y1 - y0
    longer = max(wide, deep)
    if longer < 4.6 or wide * deep < rng.uniform(12, 24):
        return [box]
    cut = np.clip(rng.uniform(0.35, 0.65) * longer, 2.2, longer - 2.2)
    if wide >= deep:
        parts = (x0, y0, x0 + cut, y1), (x0 + cut, y0, x1, y1)
    else:
        parts = (x0, y0, x1, y0 + cut), (x0, y0 + cut, x1, y1)
    return [piece for part in parts for piece in _split(rng, part)]


def _rooms(rng: np.random.Generator) -> list[Room]:
    storeys = 1 + int(rng.random() < 0.45)
    wide, deep = rng.uniform(12, 15), rng.uniform(9.5, 11)
    if storeys == 2:
        wide, deep = rng.uniform(9.5, 11.5), rng.uniform(8, 9)
    low = rng.uniform(0.42, 0.58) * (deep - CORRIDOR)
    high = low + CORRIDOR
    turned = rng.random() < 0.5
    open_plan = storeys == 1 and rng.random() < 0.2
    rooms: list[Room] = []
    count: dict[str, int] = {}

    def add(kind: str, floor: int, box: Rectangle) -> None:
        x0, y0, x1, y1 = (box[1], box[0], box[3], box[2]) if turned else box
        rooms.append(Room(kind, floor, x0, y0, x1, y1))

    for floor in range(storeys):
        if open_plan:
            boxes = _split(rng, (0.0, 0.0, wide, deep))
        else:
            add("hallway", floor, (0.0, low, wide, high))
            left = STAIRWELL if storeys == 2 else 0.0
            if storeys == 2:
                add("stairs", floor, (0.0, high, left, deep))
            boxes = _split(rng, (0.0, 0.0, wide, low)) + _split(rng, (left, high, wide, deep))
        for box in boxes:
            kind = _kind(rng, (box[2] - box[0]) * (box[3] - box[1]), floor, count)
            count[kind] = count.get(kind, 0) + 1
            add(kind, floor, box)
    return rooms


def _kind(rng: np.random.Generator, area: float, floor: int, count: dict[str, int]) -> str:
    """What a room of this size may be, rather something that the house does not have yet."""
    weights = {}
    for kind, room in ROOMS.items():
        fits = room.area[0] <= area <= room.area[1] and not (kind == "garage" and floor)
        if fits and count.get(kind, 0) < room.most:
            weights[kind] = room.weight / (1 + 2 * count.get(kind, 0))
    if not weights:
        return "bedroom"
    share = np.array(list(weights.values()))
    return list(weights)[rng.choice(len(share), p=share / share.sum())]


def _shared_wall(one: Room, two: Room) -> tuple[int, float, float, float] | None:
    """Axis of the wall between two rooms, where it is, and from where to where it runs."""
    if one.floor != two.floor:
        return None
    low_x, high_x = max(one.x0, two.x0), min(one.x1, two.x1)
    low_y, high_y = max(one.y0, two.y0), min(one.y1, two.y1)
    if high_x == low_x and high_y > low_y:
        return 1, low_x, low_y, high_y
    if high_y == low_y and high_x > low_x:
        return 0, low_y, low_x, high_x
    return None


def _doors(rng: np.random.Generator, rooms: list[Room]) -> list[Door]:
    """A random spanning tree over neighbouring rooms, hallways first, and a few more."""
    walls: list[tuple[float, int, int, tuple[int, float, float, float]]] = []
    for i, j in combinations(range(len(rooms)), 2):
        wall = _shared_wall(rooms[i], rooms[j])
        if wall is not None and wall[3] - wall[2] >= 1.3:
            hall = "hallway" in (rooms[i].kind, rooms[j].kind)
            stairs = "stairs" in (rooms[i].kind, rooms[j].kind)
            if hall or not stairs:  # stairs open onto the hallway alone
                walls.append((rng.random() - 0.6 * hall - stairs, i, j, wall))
    group = list(range(len(rooms)))
    doors: list[Door] = []
    for _, i, j, (axis, at, low, high) in sorted(walls):
        small = min(rooms[i].area, rooms[j].area) < 8
        joins = group[i] != group[j]
        if not joins and (small or rng.random() > LOOPS):
            continue
        group = [group[i] if g == group[j] else g for g in group]
        width = 1.6 if not small and high - low > 2.4 and rng.random() < 0.25 else 0.9
        spots = [rng.uniform(low + width / 2 + 0.15, high - width / 2 - 0.15) for _ in range(8)]
        here = [(spot, at) if axis == 0 else (at, spot) for spot in spots]
        taken = [(door.x, door.y) for door in doors if door.floor == rooms[i].floor]
        x, y = max(
            here, key=lambda p: min([1.2, *(np.hypot(p[0] - u, p[1] - v) for u, v in taken)])
        )
        doors.append(Door((i, j), rooms[i].floor, float(x), float(y), axis, width))
    return doors


def _viewpoints(
    rng: np.random.Generator, rooms: list[Room], doors: list[Door]
) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """One viewpoint in each doorway, then as many in each room as its size asks for."""
    points = [(door.x, door.y, door.floor * STOREY + EYE) for door in doors]
    room_of = [door.rooms[0] for door in doors]
    door_of = list(range(len(doors)))
    for i, room in enumerate(rooms):
        own = [(door.x, door.y) for door in doors if i in door.rooms]
        level = room.floor * STOREY + EYE
        if room.kind == "stairs":
            if room.floor == 0:  # one landing, half-way up, at the far end from the hallway
                x, y = (room.x0 + room.x1) / 2, (room.y0 + room.y1) / 2
                spots, level = [(x, y)], EYE + STOREY / 2
            else:
                spots = []
        else:
            spots = _spread(rng, room, own)
        points += [(x, y, level) for x, y in spots]
        room_of += [i] * len(spots)
        door_of += [-1] * len(spots)
    order = rng.permutation(len(points))
    return np.array(points)[order], np.array(room_of)[order], np.array(door_of)[order]


def _spread(
    rng: np.random.Generator, room: Room, taken: list[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Spots far from each other and from the doors; always at least one."""
    low = np.array([room.x0 + INSET, room.y0 + INSET])
    high = np.array([room.x1 - INSET, room.y1 - INSET])
    trial = rng.uniform(low, high, (48, 2))
    chosen: list[tuple[float, float]] = []
    while len(chosen) < 4:
        others = np.array([*taken, *chosen]) if taken or chosen else np.full((1, 2), 1e3)
        gap = np.linalg.norm(trial[:, None] - others[None], axis=-1).min(axis=1)
        if chosen and gap.max() < SPACING:
            break
        x, y = trial[gap.argmax()]
        chosen.append((float(x), float(y)))
    return chosen


def _things(rng: np.random.Generator, rooms: list[Room], doors: list[Door]) -> list[Placed]:
    """Furniture along the walls, rugs and tables in the middle, each look from the palette."""
    palette = [COLOURS[i] for i in rng.permutation(len(COLOURS))[:5]]
    taste = {
        name: [words[i] for i in rng.permutation(len(words))[:3]] for name, words in LOOKS.items()
    }
    edge = (
        min(r.x0 for r in rooms), min(r.y0 for r in rooms),
        max(r.x1 for r in rooms), max(r.y1 for r in rooms),
    )  # fmt: skip
    placed: list[Placed] = []
    for i, room in enumerate(rooms):
        kinds = ROOMS[room.kind].things
        wanted = int(np.clip(round(room.area / 3.2) + rng.integers(0, 2), 2, 6))
        # What a room is for comes first in its list and is rarely missing.
        rank = np.arange(len(kinds)) * 0.6 + rng.normal(0, 2.0, len(kinds))
        chosen = [kinds[k] for k in np.argsort(rank)[: 1 if room.kind == "stairs" else wanted]]
        if rng.random() < 0.25:  # and now and then there is what nobody expects there
            chosen.append(list(THINGS)[rng.integers(len(THINGS) - 3)])
        gates = [(door.x, door.y) for door in doors if i in door.rooms]
        taken: list[tuple[float, float]] = []
        if room.kind == "stairs":
            middle = (room.x0 + room.x1) / 2, (room.y0 + room.y1) / 2
            way = "stairs down" if room.floor else "stairs"
            look = LOOKS["hard"][rng.integers(len(LOOKS["hard"]))]
            placed.append(Placed(way, look, i, *middle, STOREY / 2))
            taken.append(middle)
        for kind in dict.fromkeys(chosen):
            spot = _spot(rng, room, kind, gates, taken, edge)
            if spot is None:
                continue
            taken.append(spot)
            words = palette + taste["plain"] + taste[THINGS[kind].looks]
            look = words[rng.integers(len(words))]
            height = room.floor * STOREY + THINGS[kind].height
            placed.append(Placed(kind, look, i, spot[0], spot[1], height))
    return placed


def _spot(
    rng: np.random.Generator,
    room: Room,
    kind: str,
    gates: list[tuple[float, float]],
    taken: list[tuple[float, float]],
    edge: Rectangle,
) -> tuple[float, float] | None:
    """A free place for a thing: on an outer wall for windows, away from doors and other things."""
    wide, deep = room.x1 - room.x0, room.y1 - room.y0
    if kind in CENTRAL:
        spread = rng.uniform(-0.1, 0.1, (6, 2))
        trial = np.array([room.x0 + wide / 2, room.y0 + deep / 2]) + spread * [wide, deep]
    else:
        along = rng.uniform(0.12, 0.88, 16)
        side = rng.integers(0, 4, 16)
        gap = 0.05 if kind in ("window", "curtains", "painting") else 0.35
        x = np.choose(side, [room.x0 + wide * along] * 2 + [room.x0 + gap, room.x1 - gap])
        y = np.choose(side, [room.y0 + gap, room.y1 - gap] + [room.y0 + deep * along] * 2)
        trial = np.stack([x, y], axis=1)
        if kind == "window":
            outer = [room.y0 == edge[1], room.y1 == edge[3], room.x0 == edge[0], room.x1 == edge[2]]
            trial = trial[np.array(outer)[side]]
    for x, y in trial:
        clear = all(np.hypot(x - u, y - v) > 0.9 for u, v in gates)
        if clear and all(np.hypot(x - u, y - v) > 0.8 for u, v in taken):
            return float(x), float(y)
    return None
