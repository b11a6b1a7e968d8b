"""What stands where in a house, from the boxes in which its viewpoints see each object.

One file per viewpoint, `SCAN_VIEWPOINT.json`, names the objects within about two metres and gives
their boxes in the 36 views. The same id recurs in the files of one scan, so the rays through the
boxes' centres meet where the object is.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langgoalirl.errors import UserError
from langgoalirl.files import read_json
from langgoalirl.worlds.geometry import VIEW_ELEVATIONS, VIEW_HEADINGS, VIEWS, Floats
from langgoalirl.worlds.navgraph import House

WIDTH, HEIGHT = 640, 480  # pixels of a view
FOCAL = HEIGHT / 2 / math.tan(math.pi / 6)  # of a pinhole camera with a vertical field of 60°
CUT_WEIGHT = 0.05  # of a box that the image's border cuts: its centre is not the object's
USUAL_METRES = 2.0  # how far the objects in boxes are, nearly all of them
FARTHEST_METRES = 4.0
REACH = 2.0  # within which a viewpoint's file names the objects, in boxes or hidden
CROSSED_SPREAD, SINGLE_SPREAD = 0.2, 0.5  # of positions from several rays and from one
HIDDEN_SIZE = 1.3  # metres: large things are without a box, their middle hides behind their front
PRIOR_WEIGHT = 0.005  # of the usual distance against a ray; alone it places what one viewpoint sees

_ring_angles, _ring_radii = np.meshgrid(np.arange(24) * math.pi / 12, [0.4, 0.9, 1.3, 1.7, 2.0])
RING_AREA: Floats = _ring_radii.ravel()
RING: Floats = np.stack(
    [
        RING_AREA * np.sin(_ring_angles.ravel()),
        RING_AREA * np.cos(_ring_angles.ravel()),
        np.full(RING_AREA.size, -0.6),  # furniture is lower than the camera
    ],
    axis=-1,
)


@dataclass(frozen=True)
class Sighting:
    """One object as one viewpoint's file gives it: the views that see it, a box in each."""

    object: str
    name: str
    views: NDArray[np.int64]  # [b]
    boxes: Floats  # [b, 4] left, top, width, height


@dataclass(frozen=True)
class Objects:
    """The objects of one house."""

    names: list[str]
    positions: Floats  # [o, 3] metres, in the house's coordinates
    sizes: Floats  # [o] metres across
    spreads: Floats  # [o] metres by which the position may be wrong
    seen: NDArray[np.bool_]  # [n, o] which viewpoint's file names which object


def read_sightings(file: Path) -> list[Sighting]:
    """All objects of one viewpoint's file; often none, and some without a box."""
    viewpoint = file.stem.partition("_")[2]
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
    if views is None or not np.isin(views, np.arange(VIEWS)).all():
        raise fail("visible_pos", f"a list of views 0 to {VIEWS - 1}")
    boxes = _numbers(entry["bbox2d"], (count, 4))
    if boxes is None:
        raise fail("bbox2d", "a list of boxes of four numbers")
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


def guess(house: House, listed: NDArray[np.bool_]) -> tuple[Floats, float]:
    """Where an object without any box may be, and by how many metres that may be wrong.

    `listed` [n] says which viewpoints' files name it. They are within REACH of it and the others
    that they see are not: the mean of the places around them that agree with that.
    """
    others = (house.visible | house.edges)[listed].any(axis=0) & ~listed
    middle = house.positions[listed].mean(axis=0)
    places = middle + RING
    away = np.linalg.norm(places[:, None] - house.positions[None], axis=-1)
    outside = np.logaddexp(0, (away[:, listed] - REACH) / 0.15).sum(axis=1)
    inside = np.logaddexp(0, (REACH - away[:, others]) / 0.3).sum(axis=1)
    likely = RING_AREA * np.exp(-outside - 0.7 * inside + outside.min())
    likely /= likely.sum()
    mean = likely @ places
    return mean, float(np.sqrt(likely @ ((places - mean) ** 2).sum(axis=-1)))


def place_objects(house: House, sightings: list[list[Sighting]]) -> Objects:
    """The objects of a house in space, from the sightings of each of its viewpoints."""
    names = {s.object: s.name for per_viewpoint in sightings for s in per_viewpoint}
    number = {key: i for i, key in enumerate(names)}
    count = len(number)
    seen = np.zeros((len(house), count), dtype=bool)
    every = [(i, number[s.object], s) for i, row in enumerate(sightings) for s in row]
    for viewpoint, owner, _ in every:
        seen[viewpoint, owner] = True
    positions = np.zeros((count, 3))
    sizes = np.full(count, HIDDEN_SIZE)
    spreads = np.zeros(count)

    boxed = [entry for entry in every if len(entry[2].views)]
    if boxed:
        pair = np.array([viewpoint * count + owner for viewpoint, owner, _ in boxed])
        views = np.concatenate([s.views for _, _, s in boxed])
        boxes = np.concatenate([s.boxes for _, _, s in boxed])
        of = np.repeat(np.arange(len(boxed)), [len(s.views) for _, _, s in boxed])
        rays, extent = _towards(views, boxes, of)
        viewpoint, owner = np.divmod(pair, count)
        have, owner, rays_of = np.unique(owner, return_inverse=True, return_counts=True)
        origins = house.positions[viewpoint]
        positions[have] = locate(origins, rays, owner, len(have))
        spreads[have] = np.where(rays_of > 1, CROSSED_SPREAD, SINGLE_SPREAD)
        away = np.linalg.norm(positions[have][owner] - origins, axis=-1)
        sizes[have] = 0
        np.maximum.at(sizes, have[owner], extent * away)
    for i in np.flatnonzero(spreads == 0):
        positions[i], spreads[i] = guess(house, seen[:, i])
    return Objects(list(names.values()), positions, sizes, spreads, seen)


def _towards(
    views: NDArray[np.int64], boxes: Floats, of: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """One ray and the angular size for each group of boxes: what one viewpoint has of an object."""
    left, top, width, height = boxes.T
    cut = (left <= 1) | (top <= 1) | (left + width >= WIDTH - 1) | (top + height >= HEIGHT - 1)
    extent = np.sqrt(np.maximum(width, 1) * np.maximum(height, 1)) / FOCAL
    weight = np.where(cut, CUT_WEIGHT, 1.0) * extent
    rays = np.zeros((of[-1] + 1, 3))
    np.add.at(rays, of, weight[:, None] * pixel_rays(views, left + width / 2, top + height / 2))
    largest = np.zeros(len(rays))
    np.maximum.at(largest, of, extent)
    return rays / np.linalg.norm(rays, axis=-1, keepdims=True), largest


def read_objects(houses: list[House], directory: Path) -> list[Objects]:
    """The objects of each house, from the folder with one file per viewpoint."""
    files = [
        [directory / f"{house.name}_{viewpoint}.json" for viewpoint in house.viewpoints]
        for house in houses
    ]
    present = {file.name for file in directory.glob("*.json")}
    missing = [file for row in files for file in row if file.name not in present]
    if missing:
        raise UserError(
            f"{directory}: {len(missing)} viewpoints have no file, {missing[0].name} for one; "
            "get the objects with 'langgoalirl data fetch r2r'."
        )
    return [
        place_objects(house, [read_sightings(file) for file in row])
        for house, row in zip(houses, files, strict=True)
    ]


SYNONYMS = {
    variant: word
    for word, variants in {
        "alarm": "firealarm sprinkler detector extinguisher",
        "arch": "archway arc",
        "basket": "hamper",
        "bathtub": "bath_tub tub jacuzzi",
        "bed": "headboard bedpost comforter mattress",
        "bookshelf": "bookcase",
        "chair": "seat highchair seating",
        "clothes": "clothing clothe coat robe shirt dress hanger hat shoe bathrobe",
        "computer": "monitor laptop keyboard printer",
        "couch": "sofa sofachair chaise recliner",
        "counter": "countertop tabletop backsplash",
        "curtain": "blind drape shade valence valance",
        "door": "doorknob doorframe",
        "doorway": "entry entryway hallway",
        "dresser": "drawer chest",
        "exercise": "treadmill weight gym fitness excercise rowing bike bicycle",
        "faucet": "tap",
        "light": "lighting sconce",
        "lamp": "lampshade",
        "nightstand": "nighttable bedside",
        "ottoman": "footstool footrest pouffe",
        "pew": "altar",
        "picture": "painting photo art portrait photoframe artwork photograph frame poster mask",
        "pillar": "column post pole pedestal",
        "pillow": "cushion",
        "pipe": "duct",
        "plant": "flower flowerpot pot vase shrubbery bush hedge",
        "railing": "rail banister bannister handrail fence fencing baracade",
        "refrigerator": "fridge freezer",
        "rug": "carpet mat doormat runner",
        "sink": "washbasin basin",
        "stair": "staircase stairs step stairway stairframe",
        "statue": "sculpture bust figure showpiece scultpure",
        "stove": "oven range microwave stovetop hood cooker",
        "table": "sidetable",
        "telephone": "phone",
        "toilet": "bidet urinal commode",
        "trash": "trashcan bin garbage",
        "tv": "television projector",
        "wardrobe": "closet armoire",
        "washer": "washing laundry dryer",
        "window": "windowsill windowframe skylight",
    }.items()
    for variant in variants.split()
}
"""Other words for what people and boxes name differently."""

MEANINGLESS = frozenset(
    "a an and at behind beside for in of on or other otherroom outside room the to under unknown "
    "unkown with w item object stuff side end top bottom back set".split()
)


def words_of(name: str) -> list[str]:
    """The words in a name like 'plant#pot', each once: singular, one spelling for one thing."""
    words = (_singular(word) for word in re.findall(r"[a-z]+", name.lower()))
    known = (SYNONYMS.get(word, word) for word in words)
    return [word for word in dict.fromkeys(known) if word not in MEANINGLESS]


def _singular(word: str) -> str:
    if word.endswith("ves"):
        return word[:-3] + "f"
    if word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def common_words(names: Iterable[str], count: int) -> list[str]:
    """At most `count` words of the names: the commonest first, ties in alphabetical order."""
    tally = Counter(word for name in names for word in words_of(name))
    return sorted(tally, key=lambda word: (-tally[word], word))[:count]
