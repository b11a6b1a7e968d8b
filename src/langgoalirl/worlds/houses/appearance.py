"""What the 36 views of a viewpoint look like: a vector made of the things that are seen in it.

Three blocks stand side by side: things (a code for the kind and one for the look, stronger the
larger and nearer), surfaces (the walls of the rooms that the eye reaches), and depth. Every house
bends the codes its own way, so that what was learned in one house is only half true in the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from langgoalirl.worlds.geometry import VIEW_ELEVATIONS, VIEW_HEADINGS, Floats, bearings, wrap
from langgoalirl.worlds.houses.layout import EYE, STOREY, Door, Plan
from langgoalirl.worlds.houses.sight import Survey, free_distance, room_at, walls
from langgoalirl.worlds.houses.vocabulary import ADJECTIVES, ROOMS, THINGS

THING_WIDTH, SURFACE_WIDTH, DEPTH_WIDTH = 52, 32, 8
WIDTH = THING_WIDTH + SURFACE_WIDTH + DEPTH_WIDTH  # 92: with the four directions, 96
RAYS = 72
CODES = 2  # beside 0 and 1, the training and the unseen houses, in the generators' keys
SHARP, BROAD = np.deg2rad(16.0), np.deg2rad(30.0)  # how quickly things fade beside a view's centre

# Fixed: calibrated once with behaviour cloning (docs/houses.md), before any adversarial run.
STYLE = 0.25  # share of a kind's code that is the house's own
PIECE = 0.15  # and of the single piece's
LOOK = 0.5  # weight of colour and material beside the kind
NOISE = 0.15  # of each number in each view
BRIGHT = 4.0  # strength of things
WALLS = 3.0  # and of surfaces
BEYOND = 1.0  # weight of the room that shows through an open door


@dataclass(frozen=True)
class Codes:
    """The vectors that stand for kinds of things, looks and rooms, before any house bends them."""

    seed: int

    def _draw(self, purpose: int, count: int, width: int) -> Floats:
        return _unit(np.random.default_rng([self.seed, CODES, purpose]).normal(size=(count, width)))

    @cached_property
    def things(self) -> Floats:
        return self._draw(1, len(THINGS), THING_WIDTH)

    @cached_property
    def looks(self) -> Floats:
        return self._draw(2, len(ADJECTIVES), THING_WIDTH)

    @cached_property
    def rooms(self) -> Floats:
        return self._draw(3, len(ROOMS), SURFACE_WIDTH)

    @cached_property
    def depth(self) -> Floats:
        return self._draw(4, 4, DEPTH_WIDTH)


def _unit(vectors: Floats) -> Floats:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def _bent(codes: Floats, share: float, rng: np.random.Generator) -> Floats:
    """Unit codes mixed with as many random ones; `share` is how much of the mixture is random."""
    return np.sqrt(1 - share) * codes + np.sqrt(share) * _unit(rng.normal(size=codes.shape))


def _fading(aside: Floats, width: float = SHARP) -> Floats:
    """How much of a thing remains so far beside the centre of a view."""
    return np.exp(-0.5 * (aside / width) ** 2)


def render(plan: Plan, seen: Survey, codes: Codes, rng: np.random.Generator) -> Floats:
    """[n, 36, WIDTH] the features of every view in a house."""
    things = _things(plan, seen, codes, rng)
    surfaces, depth = _surroundings(plan, seen, codes, rng)
    views = np.concatenate([things, surfaces, depth], axis=-1)
    return (views + NOISE * rng.normal(size=views.shape)).astype(np.float32)


def _things(plan: Plan, seen: Survey, codes: Codes, rng: np.random.Generator) -> Floats:
    """The codes of things and doors, weighted by apparent size and distance from the centre."""
    kinds, looks = list(THINGS), {word: i for i, word in enumerate(ADJECTIVES)}
    house = _bent(codes.things, STYLE, rng)
    kind = [kinds.index(thing.kind) for thing in plan.things]
    look = [looks[thing.look] for thing in plan.things]
    pieces = _bent(house[kind], PIECE, rng) + LOOK * codes.looks[look]
    doors = np.repeat(house[[kinds.index("door")]], len(plan.doors), axis=0)
    where = [(thing.x, thing.y, thing.z) for thing in plan.things]
    where += [(door.x, door.y, door.floor * STOREY + EYE) for door in plan.doors]
    size = [THINGS[thing.kind].size for thing in plan.things] + [door.width for door in plan.doors]
    visible = np.concatenate([seen.things, seen.doors], axis=1)

    heading, elevation, metres = bearings(plan.positions[:, None], np.array(where)[None])
    aside = wrap(heading[:, None] - VIEW_HEADINGS[:, None])  # [n, 36, things]
    above = elevation[:, None] - VIEW_ELEVATIONS[:, None]
    strength = np.minimum(np.array(size) / np.maximum(metres, 0.8), 1.2) * visible
    weight = _fading(aside) * _fading(above, BROAD) * strength[:, None]
    return BRIGHT * weight @ np.concatenate([pieces, doors])


def _surroundings(
    plan: Plan, seen: Survey, codes: Codes, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """The walls that the eye meets in each view, and how far it goes before it does."""
    angles = np.arange(RAYS) * 2 * np.pi / RAYS
    aside = wrap(angles - VIEW_HEADINGS[:, None])
    weight = _fading(aside)
    weight /= weight.sum(axis=1, keepdims=True)  # [36, RAYS]
    narrow = _fading(aside, SHARP / 2)
    narrow /= narrow.sum(axis=1, keepdims=True)
    kinds = list(ROOMS)
    house = _bent(codes.rooms, STYLE, rng)[[kinds.index(room.kind) for room in plan.rooms]]
    rooms = _bent(house, PIECE, rng)
    paint = 0.5 * _unit(rng.normal(size=SURFACE_WIDTH))  # what all walls of the house share
    floors = plan.floor_of
    surfaces = np.zeros((len(floors), len(VIEW_HEADINGS), SURFACE_WIDTH))
    depth = np.zeros((len(floors), len(VIEW_HEADINGS), len(codes.depth)))
    for floor in np.unique(floors):
        here = np.flatnonzero(floors == floor)
        at = plan.positions[here, :2]
        far = free_distance(at, angles, walls(plan, int(floor)))
        towards = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
        met = at[:, None] + (far - 0.2)[..., None] * towards
        surfaces[here] = weight @ (rooms[room_at(plan, met, int(floor))] + paint)
        log = np.log(np.maximum(far, 0.3))
        depth[here] = np.stack(
            [log @ weight.T, log @ narrow.T, (far > 3.0) @ narrow.T, (far > 6.0) @ weight.T],
            axis=-1,
        )
    surfaces += BEYOND * _through_doors(plan, seen) @ rooms
    # Looking up or down one sees one's own floor and ceiling, nearer than the walls.
    level = (np.abs(VIEW_ELEVATIONS) < 0.1)[:, None]
    own = rooms[plan.room_of][:, None] + paint
    surfaces = np.where(level, surfaces, 0.5 * surfaces + 0.5 * own)
    return surfaces * WALLS, (depth * np.where(level, 1.0, 0.5)) @ codes.depth


def _through_doors(plan: Plan, seen: Survey) -> Floats:
    """[n, 36, rooms] how much of each room shows through the doors that open into it."""
    where = np.array([(door.x, door.y, door.floor * STOREY + EYE) for door in plan.doors])
    heading, _, metres = bearings(plan.positions[:, None], where[None])
    aside = wrap(heading[:, None] - VIEW_HEADINGS[:, None])  # [n, 36, doors]
    width = np.array([door.width for door in plan.doors])
    strength = np.minimum(width / np.maximum(metres, 0.8), 1.0) * seen.doors
    # From where one stands a door shows the room on its other side.
    shown = np.zeros((len(plan.positions), len(plan.doors), len(plan.rooms)))
    for d, door in enumerate(plan.doors):
        for near, far in (door.rooms, door.rooms[::-1]):
            shown[_side(plan, near, door), d, far] = 1.0
    return (_fading(aside) * strength[:, None]) @ shown


def _side(plan: Plan, room: int, door: Door) -> NDArray[np.bool_]:
    """[n] the viewpoints on the side of a door's wall on which a room lies."""
    across = 1 - door.axis
    at = (door.x, door.y)[across]
    middle = (plan.rooms[room].x0 + plan.rooms[room].x1, plan.rooms[room].y0 + plan.rooms[room].y1)
    return (plan.positions[:, across] - at) * (middle[across] / 2 - at) > 1e-6
