"""Who sees what: walls with gaps, lines of sight, and how far one sees in every direction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from langgoalirl.worlds.geometry import Floats
from langgoalirl.worlds.houses.layout import Door, Plan, Room

REACH = 5.0  # metres that an edge may span
VIEW = 12.0  # metres at which another viewpoint is still made out
UNDERFOOT = 0.3  # metres
DETOUR = 1.07  # a way round that is this much longer makes an edge needless

Bools = NDArray[np.bool_]


def walls(plan: Plan, floor: int) -> Floats:
    """[m, 4] the pieces of wall (x0, y0, x1, y1) on a floor, gaps left where the doors are."""
    pieces = []
    for i, room in enumerate(plan.rooms):
        if room.floor == floor:
            doors = [door for door in plan.doors if i in door.rooms]
            pieces += _sides(room, doors)
    return np.array(pieces)


def _sides(room: Room, doors: list[Door]) -> list[tuple[float, float, float, float]]:
    pieces = []
    for axis, at in ((0, room.y0), (0, room.y1), (1, room.x0), (1, room.x1)):
        low, high = (room.x0, room.x1) if axis == 0 else (room.y0, room.y1)
        gaps = sorted(
            ((door.x if axis == 0 else door.y), door.width / 2)
            for door in doors
            if door.axis == axis and (door.y if axis == 0 else door.x) == at
        )
        # Walls have some thickness: reach a little past the corners, so that no ray slips through.
        ends = (
            [low - 0.05] + [end for m, half in gaps for end in (m - half, m + half)] + [high + 0.05]
        )
        for start, stop in zip(ends[::2], ends[1::2], strict=True):
            pieces.append((start, at, stop, at) if axis == 0 else (at, start, at, stop))
    return pieces


def clear(origin: Floats, target: Floats, pieces: Floats) -> Bools:
    """[a, b] whether the line from each origin [a, 2] to each target [b, 2] crosses no wall."""
    p, q = origin[:, None, None], target[None, :, None]
    one, two = pieces[:, :2], pieces[:, 2:]

    def side(a: Floats, b: Floats, c: Floats) -> Floats:
        return (b[..., 0] - a[..., 0]) * (c[..., 1] - a[..., 1]) - (b[..., 1] - a[..., 1]) * (
            c[..., 0] - a[..., 0]
        )

    across = side(one, two, p) * side(one, two, q) < 0
    within = side(p, q, one) * side(p, q, two) < 0
    return np.logical_not((across & within).any(axis=-1))


def free_distance(origin: Floats, angles: Floats, pieces: Floats) -> Floats:
    """[a, r] metres from each origin [a, 2] to the first wall along each angle."""
    dx, dy = np.sin(angles)[None, :, None], np.cos(angles)[None, :, None]
    x, y = origin[:, 0, None, None], origin[:, 1, None, None]
    level = pieces[:, 1] == pieces[:, 3]  # walls along x
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.where(level, (pieces[:, 1] - y) / dy, (pieces[:, 0] - x) / dx)
        at = np.where(level, x + far * dx, y + far * dy)
        low = np.where(level, pieces[:, 0], pieces[:, 1])
        high = np.where(level, pieces[:, 2], pieces[:, 3])
        hit = (far > 1e-6) & (at >= low) & (at <= high)
    return np.minimum(np.where(hit, far, np.inf).min(axis=-1), 20.0)


def between_viewpoints(plan: Plan) -> tuple[Bools, Bools]:
    """[n, n] which viewpoints are joined by an edge, and which see each other."""
    at = plan.positions
    visible = np.zeros((len(at), len(at)), dtype=bool)
    floors = plan.floor_of
    landing = landings(plan)
    for floor in np.unique(floors):
        here = np.flatnonzero((floors == floor) & ~landing)
        flat = at[here, :2]
        visible[np.ix_(here, here)] = clear(flat, flat, walls(plan, int(floor)))
    for i in np.flatnonzero(landing):  # stairs: the landing and the two openings that lead to it
        for j, door in enumerate(plan.door_of):
            if door >= 0 and any(
                plan.rooms[room].kind == "stairs" for room in plan.doors[door].rooms
            ):
                visible[i, j] = visible[j, i] = True
    length = np.linalg.norm(at[:, None] - at[None], axis=-1)
    visible &= visible.T & (length <= VIEW)  # rounding must not make sight one-sided
    np.fill_diagonal(visible, False)
    return _thinned(visible, length), visible


def landings(plan: Plan) -> Bools:
    """[n] which viewpoints are half-way up the stairs."""
    kinds = np.array([room.kind for room in plan.rooms])[plan.room_of]
    return (kinds == "stairs") & (plan.door_of < 0)


def _thinned(visible: Bools, length: Floats) -> Bools:
    """Edges within reach, without those that a viewpoint on the way makes needless.

    An edge is needless only if both legs of the detour are shorter than it, so that a connected
    graph stays connected: its shortest edges are all kept.
    """
    detour = length[:, :, None] + length[None]  # i, k, j
    legs = visible[:, :, None] & visible[None]
    shorter = (length[:, :, None] < length[:, None]) & (length[None] < length[:, None])
    needless = (legs & shorter & (detour <= DETOUR * length[:, None])).any(axis=1)
    edges = visible & ~needless & (length <= REACH)
    while not (reached := _reachable(edges)).all():
        # A long room may leave a gap wider than REACH: its shortest crossing is allowed.
        across = visible & reached[:, None] & ~reached[None]
        i, j = np.unravel_index(np.where(across, length, np.inf).argmin(), length.shape)
        edges[i, j] = edges[j, i] = True
    return edges


def _reachable(edges: Bools) -> Bools:
    """[n] which viewpoints one can walk to from the first."""
    reached = np.zeros(len(edges), dtype=bool)
    reached[0] = True
    for _ in range(len(edges)):
        reached |= edges[reached].any(axis=0)
    return reached


@dataclass(frozen=True)
class Survey:
    """A house's lines of sight: between viewpoints, and from them to things and doors."""

    edges: Bools  # [n, n]
    visible: Bools  # [n, n]
    things: Bools  # [n, things]
    doors: Bools  # [n, doors]


def survey(plan: Plan) -> Survey:
    """All that can be seen from the viewpoints of a house."""
    edges, visible = between_viewpoints(plan)
    floors = plan.floor_of
    things = np.zeros((len(edges), len(plan.things)), dtype=bool)
    doors = np.zeros((len(edges), len(plan.doors)), dtype=bool)
    storey = np.array([plan.rooms[thing.room].floor for thing in plan.things])
    level = np.array([door.floor for door in plan.doors])
    where = np.array([(thing.x, thing.y) for thing in plan.things])
    gates = np.array([(door.x, door.y) for door in plan.doors])
    for floor in np.unique(floors):
        pieces = walls(plan, int(floor))
        here, near, gate = (np.flatnonzero(on == floor) for on in (floors, storey, level))
        eyes = plan.positions[here, :2]
        things[np.ix_(here, near)] = clear(eyes, where[near], pieces)
        doors[np.ix_(here, gate)] = clear(eyes, gates[gate], pieces)
    # What is underfoot is in no direction: one's own doorway, the stairs on their landing.
    at = plan.positions[:, None, :2]
    things &= np.linalg.norm(at - where, axis=-1) > UNDERFOOT
    doors &= np.linalg.norm(at - gates, axis=-1) > UNDERFOOT
    return Survey(edges, visible, things, doors)


def room_at(plan: Plan, points: Floats, floor: int) -> NDArray[np.int64]:
    """[...] the room in which each point [..., 2] of a floor lies; the nearest one else."""
    box = np.array([(room.x0, room.y0, room.x1, room.y1) for room in plan.rooms])
    x, y = points[..., 0, None], points[..., 1, None]
    out = np.maximum(
        np.maximum(box[:, 0] - x, x - box[:, 2]), np.maximum(box[:, 1] - y, y - box[:, 3])
    )
    other = np.array([room.floor != floor for room in plan.rooms])
    return np.where(other, np.inf, np.maximum(out, 0.0)).argmin(axis=-1)
