"""Where a neighbour is seen from a viewpoint: the original simulator's conventions, in one place.

A panorama has 36 views: 12 headings, 30 degrees apart, at three elevations (0–11 look down by 30
degrees, 12–23 are level, 24–35 look up). Heading 0 looks along +y and grows clockwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

VIEWS = 36
HEADINGS = 12
STEP = math.pi / 6  # between neighbouring headings, and between the three elevations
HALF_WIDTH = math.radians(40.0)  # half of a view's horizontal field: 80 degrees

Floats = NDArray[np.float64]

VIEW_HEADINGS: Floats = (np.arange(VIEWS) % HEADINGS).astype(np.float64) * STEP
VIEW_ELEVATIONS: Floats = (np.arange(VIEWS) // HEADINGS - 1).astype(np.float64) * STEP


def wrap(angle: Floats) -> Floats:
    """Angles brought into [-π, π)."""
    return (angle + np.pi) % (2 * np.pi) - np.pi


def bearings(origin: Floats, target: Floats) -> tuple[Floats, Floats, Floats]:
    """Heading in [0, 2π), elevation and distance from `origin` to `target` (both [..., 3])."""
    dx, dy, dz = np.moveaxis(target - origin, -1, 0)
    level = np.hypot(dx, dy)
    heading = np.arctan2(dx, dy) % (2 * np.pi)
    return heading, np.arctan2(dz, level), np.sqrt(dx * dx + dy * dy + dz * dz)


def start_view(heading: float) -> int:
    """The level view nearest to a start heading, as the original discretises it."""
    return HEADINGS + round((heading % (2 * np.pi)) / STEP) % HEADINGS


@dataclass(frozen=True)
class Candidates:
    """The neighbours of one viewpoint in the simulator's order, one row each."""

    target: NDArray[np.int64]  # index of the neighbour in its house
    view: NDArray[np.int64]  # the view nearest to it, 0..35
    heading: Floats  # absolute: the view's heading and what is left, so slightly below 0 too
    elevation: Floats
    metres: Floats
    offset: Floats  # angle between the view's centre and the neighbour


def candidates(positions: Floats, origin: int, neighbours: NDArray[np.int64]) -> Candidates:
    """The neighbours of `origin`, each in the view that it is nearest to the centre of.

    The simulator turns through the views 0 to 35 and lists the neighbours within a view's
    horizontal field by their angle from its centre; whoever is listed first comes first.
    """
    heading, elevation, metres = bearings(positions[origin], positions[neighbours])
    aside = wrap(heading[None] - VIEW_HEADINGS[:, None])  # [36, k]
    above = elevation[None] - VIEW_ELEVATIONS[:, None]
    offset = np.hypot(aside, above)
    offset[np.abs(aside) > HALF_WIDTH] = np.inf

    view = offset.argmin(axis=0)
    first_seen = np.isfinite(offset).argmax(axis=0)
    column = np.arange(len(neighbours))
    order = np.lexsort((neighbours, offset[first_seen, column], first_seen))
    nearest = offset[view, column]
    return Candidates(
        target=neighbours[order],
        view=view[order],
        heading=(VIEW_HEADINGS[view] + aside[view, column])[order],
        elevation=elevation[order],
        metres=metres[order],
        offset=nearest[order],
    )
