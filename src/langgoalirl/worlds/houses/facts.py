"""What is true of a route: turns, rooms, doors, stairs, things on the way. Voices only say it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from langgoalirl.worlds.geometry import Floats, bearings, wrap
from langgoalirl.worlds.houses.layout import Door, Placed, Plan
from langgoalirl.worlds.houses.sight import Survey, room_at

STRAIGHT, SLIGHT, AROUND = np.deg2rad([35.0, 60.0, 140.0])
NEAR = 2.3  # metres at which one stands "next to" a thing
AT = 1.6  # and at which a turn is made "at" it
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


class Guide:
    """Someone who knows a house and can state the facts of any route through it."""

    def __init__(self, plan: Plan, seen: Survey) -> None:
        self.plan, self.seen = plan, seen
        self.floors = plan.floor_of
        self.things = np.array([(thing.x, thing.y) for thing in plan.things])
        self.stairs = next((i for i, r in enumerate(plan.rooms) if r.kind == "stairs"), -1)
        gap = np.linalg.norm(plan.positions[:, None, :2] - self.things[None], axis=-1)
        self.metres = np.where(seen.things, gap, np.inf)  # [n, things]
        self.nearest = self.metres.argsort(axis=1)
        self._rooms: dict[tuple[int, int], list[int]] = {}

    def facts(self, path: list[int], facing: float) -> Facts:
        """All that may be said about a walk along `path`, begun with the heading `facing`."""
        plan, points = self.plan, self.plan.positions[path]
        headings, _, _ = bearings(points[:-1], points[1:])
        turns = wrap(np.diff(headings, prepend=facing))
        climbs = np.sign(np.round(np.diff(points[:, 2]))).astype(int)
        rooms = [self.rooms_between(i, j) for i, j in pairwise(path)]
        fresh = (np.abs(turns) >= STRAIGHT) | (np.diff(climbs, prepend=climbs[0]) != 0)
        fresh[0] = True
        ends = np.append(fresh[1:], True)
        legs: list[Leg] = []
        first, came_in, here = 0, points[0], rooms[0][0]
        for move in range(len(path) - 1):
            if fresh[move]:
                first = move
                at = self.beside(path[move], AT)
                turn = turn_word(float(turns[move]))
                legs.append(Leg(turn, int(climbs[move]), here, at[0] if at else None))
            for room in rooms[move]:
                if room != here:
                    entry, came_in = _entry(plan, here, room, came_in, points[move])
                    legs[-1].entries.append(entry)
                    here = room
            if ends[move]:
                self._look_along(path[first], points[move + 1], legs[-1])
        door = plan.door_of[path[-1]]
        others = set(plan.doors[door].rooms) - {here} if door >= 0 else set()
        beyond = min(others) if others else None
        return Facts(rooms[0][0], legs, here, beyond, self.beside(path[-1], NEAR))

    def rooms_between(self, i: int, j: int) -> list[int]:
        """The rooms that a move leads through, in order; corners only grazed are left out."""
        if (i, j) not in self._rooms:
            self._rooms[i, j] = self._rooms_on_line(i, j)
        return self._rooms[i, j]

    def _rooms_on_line(self, i: int, j: int) -> list[int]:
        one, two = self.plan.positions[[i, j]]
        if one[2] != two[2]:  # both storeys' cells of the stairs count as one
            return [self.stairs]
        share = (np.arange(12) + 0.5)[:, None] / 12
        line = one[:2] + share * (two - one)[:2]
        ids = room_at(self.plan, line, int(self.floors[i])).tolist()
        return [room for room in dict.fromkeys(ids) if ids.count(room) > 1] or ids[:1]

    def beside(self, viewpoint: int, reach: float) -> list[Placed]:
        """The things that are seen within reach of a viewpoint, nearest first."""
        near = int((self.metres[viewpoint] <= reach).sum())
        return [self.plan.things[i] for i in self.nearest[viewpoint, :near]]

    def _look_along(self, viewpoint: int, end: Floats, leg: Leg) -> None:
        """Fill in what a leg passes by and what it leads up to, as seen from where it begins."""
        start = self.plan.positions[viewpoint, :2]
        length = float(np.linalg.norm(end[:2] - start))
        forward = (end[:2] - start) / length
        offset = self.things - start
        along = offset @ forward
        aside = offset[:, 0] * forward[1] - offset[:, 1] * forward[0]  # positive: on the right
        seen = self.seen.things[viewpoint]
        gap = np.abs(aside)
        passed = seen & (along > 0.6) & (along < length - 0.3) & (gap > 0.2) & (gap < BESIDE)
        for i in np.flatnonzero(passed):
            leg.passed.append((self.plan.things[i], "right" if aside[i] > 0 else "left"))
        rest = np.hypot(along - length, aside)
        ahead = seen & (rest < 2.0) & (along > 1.0) & (gap < 0.45 * along)
        if ahead.any():
            leg.towards = self.plan.things[int(np.where(ahead, rest, np.inf).argmin())]


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
    same_wall = [
        (d.x, d.y)[axis] - came_in[axis]
        for d in plan.doors
        if origin in d.rooms and d.axis == axis and (d.x, d.y)[1 - axis] == gate[1 - axis]
    ]
    nth = sum(1 for a in same_wall if 0.3 < a * np.sign(way) <= abs(way) + 1e-9)
    middle = (hall.y0 + hall.y1) / 2 if axis == 0 else (hall.x0 + hall.x1) / 2
    leftwards = (gate[1 - axis] > middle) == (way > 0)  # walking along +x, +y is on the left …
    if axis == 1:
        leftwards = not leftwards  # … and along +y, +x is on the right
    return Entry(origin, room, door, nth, "left" if leftwards else "right"), gate
