"""What is true of a route: turns, rooms, doors, stairs and things on the way. Voices only say it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from langgoalirl.worlds.geometry import Floats, bearings, wrap
from langgoalirl.worlds.houses.layout import Door, Placed, Plan
from langgoalirl.worlds.houses.sight import Survey, room_at

STRAIGHT, SLIGHT, AROUND = np.deg2rad([30.0, 60.0, 140.0])
NEAR = 2.3  # metres at which one stands "next to" a thing
BESIDE = 1.8  # metres at which one walks "past" a thing


@dataclass(frozen=True)
class Entry:
    """Going from one room into the next."""

    origin: int
    room: int
    door: Door | None  # no door where the way leads over more than one
    nth: int = 0  # the nth door on that side of a hallway, or 0 where counting makes no sense
    side: str = ""


@dataclass
class Leg:
    """A straight stretch of the way, told from its first step."""

    turn: str  # "straight", "left", "slight left", …, "around": relative to the way one faced
    climb: int  # 1 up the stairs, -1 down, 0 level
    room: int  # in which it begins
    at: Placed | None  # a thing next to which it begins
    entries: list[Entry] = field(default_factory=list)
    passed: list[tuple[Placed, str]] = field(default_factory=list)  # and on which side
    towards: Placed | None = None  # a thing that it leads up to


@dataclass(frozen=True)
class Facts:
    """A route in words yet to be chosen."""

    start: int  # room
    legs: list[Leg]
    final: int  # room in which the last step is made
    beyond: int | None  # the other room where the route ends in a doorway
    beside: list[Placed]  # things next to the end, nearest first


def turn_word(angle: float) -> str:
    """A turn to the right is positive."""
    size = abs(angle)
    if size < STRAIGHT:
        return "straight"
    if size > AROUND:
        return "around"
    side = "right" if angle > 0 else "left"
    return f"slight {side}" if size < SLIGHT else side


def facts(plan: Plan, seen: Survey, path: list[int], facing: float) -> Facts:
    """All that may be said about a walk along `path`, begun with the heading `facing`."""
    points = plan.positions[path]
    headings, _, _ = bearings(points[:-1], points[1:])
    turns = wrap(np.diff(headings, prepend=facing))
    climbs = np.sign(np.round(np.diff(points[:, 2]))).astype(int)
    rooms = _rooms_along(plan, path)
    fresh = (np.abs(turns) >= STRAIGHT) | (np.diff(climbs, prepend=climbs[0]) != 0)
    fresh[0] = True
    ends = np.append(fresh[1:], True)
    legs: list[Leg] = []
    first = 0
    came_in = points[0]
    here = rooms[0][0]
    for move in range(len(path) - 1):
        if fresh[move]:
            first = move
            at = _nearest(plan, seen, path[move], 1.6)
            turn = turn_word(float(turns[move]))
            legs.append(Leg(turn, int(climbs[move]), here, at[0] if at else None))
        for room in rooms[move]:
            if room != here:
                entry, came_in = _entry(plan, here, room, came_in, points[move])
                legs[-1].entries.append(entry)
                here = room
        if ends[move]:
            _things_along(plan, seen, path[first], points[first], points[move + 1], legs[-1])
    door = plan.door_of[path[-1]]
    others = set(plan.doors[door].rooms) - {here} if door >= 0 else set()
    beside = _nearest(plan, seen, path[-1], NEAR)
    return Facts(rooms[0][0], legs, here, min(others) if others else None, beside)


def _rooms_along(plan: Plan, path: list[int]) -> list[list[int]]:
    """The rooms that each move leads through, in order; corners that are only grazed are left out."""
    points, floors = plan.positions[path], plan.floor_of[path]
    share = (np.arange(12) + 0.5)[:, None] / 12
    stairs = next((i for i, room in enumerate(plan.rooms) if room.kind == "stairs"), -1)
    rooms = []
    for move, (one, two) in enumerate(zip(points[:-1], points[1:], strict=True)):
        if one[2] != two[2]:  # both storeys' cells of the stairs count as one
            rooms.append([stairs])
            continue
        line = one[:2] + share * (two - one)[:2]
        ids = room_at(plan, line, int(floors[move])).tolist()
        kept = [room for room in dict.fromkeys(ids) if ids.count(room) > 1]
        rooms.append(kept or ids[:1])
    return rooms


def _entry(
    plan: Plan, origin: int, room: int, came_in: Floats, start: Floats
) -> tuple[Entry, Floats]:
    """How one gets from room to room, and where one comes in."""
    door = next((door for door in plan.doors if set(door.rooms) == {origin, room}), None)
    if door is None:
        return Entry(origin, room, None), start
    gate = np.array([door.x, door.y, start[2]])
    hall = plan.rooms[origin]
    axis = hall.long_axis
    way = gate[axis] - came_in[axis]
    if hall.kind != "hallway" or door.axis != axis or abs(way) < 1.0:
        return Entry(origin, room, door), gate
    # Doors on the same wall of the hallway between where one came in and this one.
    along = [(d.x, d.y)[axis] - came_in[axis] for d in plan.doors
             if origin in d.rooms and d.axis == axis and (d.x, d.y)[1 - axis] == gate[1 - axis]]  # fmt: skip
    nth = sum(1 for a in along if 0.3 < a * np.sign(way) <= abs(way) + 1e-9)
    middle = (hall.y0 + hall.y1) / 2 if axis == 0 else (hall.x0 + hall.x1) / 2
    leftwards = (gate[1 - axis] > middle) == (way > 0)  # walking along +x, +y is on the left …
    if axis == 1:
        leftwards = not leftwards  # … and along +y, +x is on the right
    return Entry(origin, room, door, nth, "left" if leftwards else "right"), gate


def _nearest(plan: Plan, seen: Survey, viewpoint: int, reach: float) -> list[Placed]:
    """The things that are seen within reach of a viewpoint, nearest first."""
    x, y, _ = plan.positions[viewpoint]
    near = [
        (float(np.hypot(thing.x - x, thing.y - y)), i)
        for i, thing in enumerate(plan.things)
        if seen.things[viewpoint, i]
    ]
    return [plan.things[i] for metres, i in sorted(near) if metres <= reach]


def _things_along(
    plan: Plan, seen: Survey, viewpoint: int, start: Floats, end: Floats, leg: Leg
) -> None:
    """Fill in what a leg passes by and what it leads up to, as seen from where it begins."""
    way = (end - start)[:2]
    length = float(np.linalg.norm(way))
    forward = way / length
    ends = []
    for i in np.flatnonzero(seen.things[viewpoint]):
        thing = plan.things[i]
        offset = np.array([thing.x, thing.y]) - start[:2]
        along = float(offset @ forward)
        aside = float(offset[0] * forward[1] - offset[1] * forward[0])  # positive: on the right
        if 0.6 < along < length - 0.3 and 0.2 < abs(aside) < BESIDE:
            leg.passed.append((thing, "right" if aside > 0 else "left"))
        rest = float(np.hypot(along - length, aside))
        if rest < 2.0 and along > 1.0 and abs(aside) < 0.45 * along:
            ends.append((rest, i))
    leg.towards = plan.things[min(ends)[1]] if ends else None
