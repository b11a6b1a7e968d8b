"""What stands where in a house, from the boxes in which its viewpoints see each object.

One file per viewpoint, `SCAN_VIEWPOINT.json`, names the objects within about two metres and gives
their boxes in the 36 views. The same id recurs in the files of one scan, so the rays through the
boxes' centres meet where the object is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langgoalirl.errors import UserError
from langgoalirl.files import read_json
from langgoalirl.worlds.geometry import VIEW_ELEVATIONS, VIEW_HEADINGS, VIEWS, Floats
from langgoalirl.worlds.navgraph import House
from langgoalirl.worlds.object_words import common_words
from langgoalirl.worlds.panorama import PANORAMA_WIDTH, WORDS, Objects, draw

OBJECT_WIDTH = PANORAMA_WIDTH

WIDTH, HEIGHT = 640, 480  # pixels of a view
FOCAL = HEIGHT / 2 / math.tan(math.pi / 6)  # of a pinhole camera with a vertical field of 60°
CUT_WEIGHT = 0.05  # of a box that the image's border cuts: its centre is not the object's
USUAL_METRES = 2.0  # how far the objects in boxes are, nearly all of them
FARTHEST_METRES = 4.0
REACH = 2.0  # within which a viewpoint's file names the objects, in boxes or hidden
CROSSED_SPREAD, SINGLE_SPREAD = 0.2, 0.5  # of positions from several rays and from one
PRIOR_WEIGHT = 0.005  # of the usual distance against a ray; alone it places what one viewpoint sees


@dataclass(frozen=True)
class Sighting:
    """One object as one viewpoint's file gives it: the views that see it, a box in each."""

    object: str
    name: str
    views: NDArray[np.int64]  # [b]
    boxes: Floats  # [b, 4] left, top, width, height


def read_sightings(file: Path) -> list[Sighting]:
    """All objects of one viewpoint's file; often none, and some without a box."""
    viewpoint = file.stem.rpartition("_")[2]
    content = read_json(file)
    objects = content.get(viewpoint) if isinstance(content, dict) else None
    if not isinstance(objects, dict):
        raise UserError(f"{file}: field '{viewpoint}' must hold the objects; fetch it again.")
    return [_sighting(file, key, entry) for key, entry in objects.items()]


def _sighting(file: Path, key: str, entry: Any) -> Sighting:
    def fail(field: str, wanted: str) -> UserError:
        return UserError(
            f"{file}: object '{key}', field '{field}' must be {wanted}; fetch the file again."
        )

    if not isinstance(entry, dict):
        raise UserError(f"{file}: object '{key}' must be a JSON object; fetch the file again.")
    if not isinstance(entry.get("name"), str):
        raise fail("name", "a text")
    for field in ("visible_pos", "bbox2d"):
        if not isinstance(entry.get(field), list):
            raise fail(field, "a list")
    count = len(entry["visible_pos"])
    if len(entry["bbox2d"]) != count:
        raise fail("bbox2d", f"as long as 'visible_pos' ({count})")
    views = _numbers(entry["visible_pos"], (count,))
    if views is None or ((views % 1 != 0) | (views < 0) | (views >= VIEWS)).any():
        raise fail("visible_pos", f"a list of views 0 to {VIEWS - 1}")
    boxes = _numbers(entry["bbox2d"], (count, 4))
    if boxes is None or not _inside_view(boxes):
        raise fail("bbox2d", f"a list of boxes of four numbers, inside {WIDTH} x {HEIGHT} pixels")
    return Sighting(key, entry["name"], views.astype(np.int64), boxes)


def _numbers(values: list[Any], shape: tuple[int, ...]) -> Floats | None:
    """The values as an array of finite numbers, if that is what they are."""
    if not values:
        return np.zeros(shape)
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):  # rows of unequal length
        return None
    if array.dtype.kind not in "if" or array.shape != shape or not np.isfinite(array).all():
        return None
    return array.astype(np.float64)


def _inside_view(boxes: Floats) -> bool:
    return bool((boxes >= 0).all() and (boxes[:, :2] + boxes[:, 2:] <= (WIDTH, HEIGHT)).all())


def pixel_rays(views: NDArray[np.int64], x: Floats, y: Floats) -> Floats:
    """[..., 3] unit vectors from the camera through pixels of the given views."""
    heading, elevation = VIEW_HEADINGS[views], VIEW_ELEVATIONS[views]
    right, down = (x - WIDTH / 2) / FOCAL, (y - HEIGHT / 2) / FOCAL
    level = np.cos(elevation) + down * np.sin(elevation)
    rise = np.sin(elevation) - down * np.cos(elevation)
    ray = np.stack(
        [
            level * np.sin(heading) + right * np.cos(heading),
            level * np.cos(heading) - right * np.sin(heading),
            rise,
        ],
        axis=-1,
    )
    return ray / np.linalg.norm(ray, axis=-1, keepdims=True)


def towards(views: NDArray[np.int64], boxes: Floats, of: NDArray[np.int64]) -> Floats:
    """[max(of) + 1, 3] one ray for each group of boxes: what one viewpoint has of one object."""
    left, top, width, height = boxes.T
    cut = (left <= 1) | (top <= 1) | (left + width >= WIDTH - 1) | (top + height >= HEIGHT - 1)
    weight = np.where(cut, CUT_WEIGHT, 1.0) * np.sqrt(np.maximum(width * height, 1))
    rays = np.zeros((of[-1] + 1, 3))
    np.add.at(rays, of, weight[:, None] * pixel_rays(views, left + width / 2, top + height / 2))
    return rays / np.maximum(np.linalg.norm(rays, axis=-1, keepdims=True), 1e-9)


def locate(origins: Floats, rays: Floats, owner: NDArray[np.int64], count: int) -> Floats:
    """[count, 3] the points nearest to their rays, by least squares; ray i belongs to owner[i].

    A point that is USUAL_METRES along each ray has a small weight in it, so that one ray, or rays
    that hardly cross, give a place as well.
    """
    across = np.eye(3) - rays[:, :, None] * rays[:, None, :]  # takes away what is along the ray
    matrix = np.zeros((count, 3, 3))
    vector = np.zeros((count, 3))
    np.add.at(matrix, owner, across + PRIOR_WEIGHT * np.eye(3))
    usual = origins + USUAL_METRES * rays
    np.add.at(vector, owner, (across @ origins[:, :, None])[..., 0] + PRIOR_WEIGHT * usual)
    points = np.linalg.solve(matrix, vector[..., None])[..., 0]

    # Boxes that contradict each other can meet anywhere: keep the point near one that sees it.
    away = np.linalg.norm(points[owner] - origins, axis=-1)
    order = np.lexsort((away, owner))
    closest = order[np.searchsorted(owner[order], np.arange(count))]
    shrink = np.minimum(1.0, FARTHEST_METRES / np.maximum(away[closest], 1e-9))
    return origins[closest] + shrink[:, None] * (points - origins[closest])


def _ring() -> tuple[Floats, Floats]:
    """Places around an origin, as far as a hidden object may be, and the floor that each covers."""
    angle, radius = np.meshgrid(np.arange(24) * math.pi / 12, [0.4, 0.9, 1.3, 1.7, REACH])
    below = np.full(angle.shape, -0.6)  # furniture is lower than the camera
    places = np.stack([radius * np.sin(angle), radius * np.cos(angle), below], axis=-1)
    return places.reshape(-1, 3), radius.ravel()


def guess(house: House, listed: NDArray[np.bool_]) -> tuple[Floats, float]:
    """Where an object without any box may be, and by how many metres that may be wrong.

    `listed` [n] says which viewpoints' files name it. They are within REACH of it and the others
    that they see are not: the mean of the places around them that agree with that.
    """
    others = (house.visible[listed] | house.edges[listed]).any(axis=0) & ~listed
    around, area = _ring()
    places = house.positions[listed].mean(axis=0) + around

    def away(viewpoints: NDArray[np.bool_]) -> Floats:
        return np.linalg.norm(places[:, None] - house.positions[viewpoints], axis=-1)

    beyond = np.logaddexp(0, (away(listed) - REACH) / 0.15).sum(axis=1)
    within = np.logaddexp(0, (REACH - away(others)) / 0.3).sum(axis=1)
    unlikely = beyond + 0.7 * within
    share = area * np.exp(unlikely.min() - unlikely)
    share /= share.sum()
    mean = share @ places
    return mean, float(np.sqrt(share @ ((places - mean) ** 2).sum(axis=-1)))


def place_objects(house: House, sightings: list[list[Sighting]]) -> Objects:
    """The objects of a house in space, from the sightings of each of its viewpoints."""
    names = {s.object: s.name for per_viewpoint in sightings for s in per_viewpoint}
    number = {key: i for i, key in enumerate(names)}
    count = len(number)
    seen = np.zeros((len(house), count), dtype=bool)
    every = [(i, number[s.object], s) for i, row in enumerate(sightings) for s in row]
    for i, o, _ in every:
        seen[i, o] = True
    positions = np.zeros((count, 3))
    spreads = np.zeros(count)

    boxed = [(i, o, s) for i, o, s in every if len(s.views)]
    if boxed:
        views = np.concatenate([s.views for _, _, s in boxed])
        boxes = np.concatenate([s.boxes for _, _, s in boxed])
        of = np.repeat(np.arange(len(boxed)), [len(s.views) for _, _, s in boxed])
        origins = house.positions[[i for i, _, _ in boxed]]
        have, owner, rays = np.unique(
            [o for _, o, _ in boxed], return_inverse=True, return_counts=True
        )
        positions[have] = locate(origins, towards(views, boxes, of), owner, len(have))
        spreads[have] = np.where(rays > 1, CROSSED_SPREAD, SINGLE_SPREAD)
    for hidden in np.flatnonzero(spreads == 0):
        positions[hidden], spreads[hidden] = guess(house, seen[:, hidden])
    return Objects(list(names.values()), positions, spreads, seen)


def read_boxes(directory: Path) -> dict[str, list[Sighting]]:
    """The sightings of every viewpoint that has a file in the folder, by "SCAN_VIEWPOINT"."""
    return {file.stem: read_sightings(file) for file in sorted(directory.glob("*_*.json"))}


def object_panoramas(houses: list[House], directory: Path) -> Iterator[tuple[str, NDArray]]:
    """("SCAN_VIEWPOINT", [36, OBJECT_WIDTH] float32) for every viewpoint of the houses, in order.

    Which word has which column follows from all of the folder, whichever houses are asked for.
    """
    boxes = read_boxes(directory)
    wanted = [f"{house.name}_{viewpoint}" for house in houses for viewpoint in house.viewpoints]
    missing = [key for key in wanted if key not in boxes]
    if missing:
        raise UserError(
            f"{directory}: {len(missing)} of {len(wanted)} viewpoints have no file, "
            f"{missing[0]}.json for one; get them with 'langgoalirl data fetch r2r DIR'."
        )
    known = {
        (key.rpartition("_")[0], sighting.object): sighting.name
        for key, sightings in boxes.items()
        for sighting in sightings
    }
    vocabulary = common_words(known.values(), WORDS)
    for house in houses:
        keys = [f"{house.name}_{viewpoint}" for viewpoint in house.viewpoints]
        objects = place_objects(house, [boxes[key] for key in keys])
        yield from zip(keys, draw(house, objects, vocabulary), strict=True)
