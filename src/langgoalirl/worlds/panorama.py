"""What an image would show in each of the 36 views of a viewpoint: things, rooms, free space.

Three parts, side by side, all of them between 0 and about 2:
- the words of the objects that are seen in the view;
- the kinds of room one is in, would step into through the view, and sees through it;
- free space: whether and how far one can go and see, up or down, and what shape the place has
  that one would step into (a doorway, a corridor, stairs, a dead end).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from langgoalirl.worlds.geometry import VIEW_ELEVATIONS, VIEW_HEADINGS, VIEWS, Floats
from langgoalirl.worlds.navgraph import House
from langgoalirl.worlds.object_words import ROOMS, multi_hot, room_evidence

WORDS = 126
SHAPE, NEXT, SPACE = 7, 5, 9  # columns: of a place, of the step there, of what a view opens to
PANORAMA_WIDTH = WORDS + 3 * len(ROOMS) + 2 * SHAPE + NEXT + SPACE

# Widths of the bell curves by which things fade towards a view's border: neighbouring views are
# 30 degrees apart. A way out of the room is told to more views than what stands in it.
THING_ANGLE, SIGHT_ANGLE, WAY_ANGLE = (math.radians(degrees) for degrees in (20, 17, 31))
SIGHT_METRES = 10.0  # an object farther away is not seen
FADE_METRES = 4.0  # over which a thing becomes less visible
ROOM_METRES = 3.0  # around a viewpoint that its kind of room is judged by
ROOM_FADE_METRES = 8.0
SHAPE_METRES = 6.0
STEP_METRES = 0.3  # a neighbour that much higher or lower is up or down the stairs

Single = NDArray[np.float32]

CENTRES: Single = np.stack(
    [
        np.sin(VIEW_HEADINGS) * np.cos(VIEW_ELEVATIONS),
        np.cos(VIEW_HEADINGS) * np.cos(VIEW_ELEVATIONS),
        np.sin(VIEW_ELEVATIONS),
    ]
).astype(np.float32)  # [3, 36] unit vectors


@dataclass(frozen=True)
class Objects:
    """The objects of one house."""

    names: list[str]
    positions: Floats  # [o, 3] metres, in the house's coordinates
    spreads: Floats  # [o] metres by which the position may be wrong
    seen: NDArray[np.bool_]  # [n, o] which viewpoint's file names which object


def draw(house: House, objects: Objects, vocabulary: list[str]) -> Single:
    """[n, 36, PANORAMA_WIDTH] the panoramas of a house."""
    paths = house.edges | house.edges.T
    sees = house.visible | house.visible.T | paths
    np.fill_diagonal(sees, False)
    offset = (house.positions[None] - house.positions[:, None]).astype(np.float32)  # row to column
    metres = np.linalg.norm(offset, axis=-1)
    angle = _angles(offset)  # [n, n, 36]
    sight = _bell(angle, SIGHT_ANGLE) * sees[..., None]
    way = _bell(angle, WAY_ANGLE) * paths[..., None]
    step = way.argmax(axis=1)  # [n, 36] the neighbour to which each view leads
    weight = np.take_along_axis(way, step[:, None], axis=1)[:, 0]

    words, rooms = _things(house, objects, vocabulary, sees)
    shape = _shape(paths, sees, offset, metres)
    parts = [
        words,
        _everywhere(rooms),
        rooms[step] * weight[..., None],
        _rooms_in_sight(rooms, sees, sight, metres),
        _everywhere(shape),
        shape[step] * weight[..., None],
        _next_step(step, sees, offset[..., 2], metres) * weight[..., None],
        _free_space(sight, paths, offset[..., 2], metres),
    ]
    return np.concatenate(parts, axis=-1, dtype=np.float32)


def _angles(vectors: NDArray) -> Single:
    """[..., 36] the angle between each vector and each view's centre."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit = (vectors / np.maximum(length, 1e-6)).astype(np.float32)
    cosine = unit.reshape(-1, 3) @ CENTRES  # one product: many small ones are slower
    return np.arccos(np.clip(cosine, -1, 1)).reshape(*vectors.shape[:-1], VIEWS)


def _bell(angle: Single, width: float | Single) -> Single:
    return np.exp(-0.5 * (angle / width) ** 2)


def _saturate(amount: NDArray) -> Single:
    """One of a thing is much, two are hardly more."""
    return (1 - np.exp(-amount)).astype(np.float32)


def _everywhere(here: Single) -> Single:
    """What is true of a viewpoint, told to all of its views."""
    return np.repeat(here[:, None], VIEWS, axis=1)


def _things(
    house: House, objects: Objects, vocabulary: list[str], sees: NDArray[np.bool_]
) -> tuple[Single, Single]:
    """The words in each view [n, 36, WORDS], and the kind of room around each viewpoint [n, R]."""
    offset = objects.positions[None] - house.positions[:, None]
    metres = np.linalg.norm(offset, axis=-1)
    # An object is seen from where its file names it, and from where one sees such a viewpoint.
    through = sees.astype(np.float32) @ objects.seen.astype(np.float32)
    seen = objects.seen | (through > 0)
    seen &= metres < SIGHT_METRES
    # A place that is not sure is smeared over the views, the more so the nearer it is.
    doubt = objects.spreads[None] / np.maximum(metres, 0.3)
    width = np.minimum(np.hypot(THING_ANGLE, doubt), 2.0)[..., None].astype(np.float32)
    strength = 1.5 * seen * np.exp(-metres / FADE_METRES)
    shown = _bell(_angles(offset), width) * (THING_ANGLE / width)
    shown *= strength[..., None].astype(np.float32)
    hot = multi_hot(objects.names, vocabulary, WORDS)
    rows = shown.transpose(0, 2, 1).reshape(len(house) * VIEWS, len(hot))
    words = (rows @ hot).reshape(len(house), VIEWS, WORDS)
    around = (seen * np.exp(-((metres / ROOM_METRES) ** 2))).astype(np.float32)
    return _saturate(words), _saturate(around @ room_evidence(objects.names))


def _rooms_in_sight(
    rooms: Single, sees: NDArray[np.bool_], sight: Single, metres: Single
) -> Single:
    """[n, 36, R] the rooms of the viewpoints that are seen in each view."""
    fading = sight * np.exp(-metres / ROOM_FADE_METRES)[..., None]
    shown = np.zeros((len(rooms), VIEWS, rooms.shape[1]), dtype=np.float32)
    for here, there in enumerate(sees):  # few of a house's viewpoints are seen from one of them
        if there.any():
            shown[here] = (fading[here, there, :, None] * rooms[there, None]).max(axis=0)
    return shown


def _shape(
    paths: NDArray[np.bool_], sees: NDArray[np.bool_], offset: Single, metres: Single
) -> Single:
    """[n, SHAPE] what kind of place each viewpoint is, by what lies around it."""
    rise = offset[..., 2]
    degree = paths.sum(axis=1)
    near = (sees & (metres < SHAPE_METRES)).astype(np.float64)
    count = near.sum(axis=1)
    # In a doorway much is seen that does not see each other.
    mutual = ((near @ sees) * near).sum(axis=1) / np.maximum(count * (count - 1), 1)
    doorway = np.where(count > 1, 1 - mutual, 0)
    # In a corridor all lies on one line: the other axis has no extent.
    level = offset[..., :2] / np.maximum(np.linalg.norm(offset[..., :2], axis=-1), 0.1)[..., None]
    extent = np.einsum("pq,pqi,pqj->pij", near / np.maximum(count, 1)[:, None], level, level)
    corridor = np.where(count > 1, 1 - 2 * np.linalg.eigvalsh(extent)[:, 0], 0)
    return np.stack(
        [
            degree / 5,
            np.log1p(sees.sum(axis=1)) / 3,
            doorway,
            corridor,
            (paths & (rise > STEP_METRES)).any(axis=1),
            (paths & (rise < -STEP_METRES)).any(axis=1),
            degree == 1,
        ],
        axis=-1,
    ).astype(np.float32)


def _next_step(
    step: NDArray[np.int64], sees: NDArray[np.bool_], rise: Single, metres: Single
) -> Single:
    """[n, 36, NEXT] the step through each view: is there one, how far, up, down, what is new."""

    def of_step(table: NDArray) -> NDArray:
        return np.take_along_axis(table, step, axis=1)

    sight = sees.astype(np.float64)
    new = (1 - sight - np.eye(len(sees))) @ sight  # viewpoints seen from there and not from here
    columns = [
        np.ones(step.shape),
        np.minimum(of_step(metres) / 3, 2),
        np.clip(of_step(rise), 0, 1.5),
        np.clip(-of_step(rise), 0, 1.5),
        np.minimum(of_step(new) / 10, 2),
    ]
    return np.stack(columns, axis=-1).astype(np.float32)


def _free_space(sight: Single, paths: NDArray[np.bool_], rise: Single, metres: Single) -> Single:
    """[n, 36, SPACE] how open each view is: ways out, wall, depth, what is higher and lower."""

    def most(amount: Single) -> Single:
        return (sight * amount[..., None]).max(axis=1)

    def number(where: NDArray[np.bool_]) -> Single:
        return _saturate((sight * where[..., None]).sum(axis=1))

    bands = [(0.0, 2.0), (2.0, 4.0), (4.0, 8.0), (8.0, math.inf)]
    columns = [
        number(paths),
        1 - sight.max(axis=1),
        most(np.minimum(metres / 10, 2)),
        *(number((metres >= low) & (metres < high)) for low, high in bands),
        most(np.clip(rise / 2, 0, 1.5)),
        most(np.clip(-rise / 2, 0, 1.5)),
    ]
    return np.stack(columns, axis=-1).astype(np.float32)
