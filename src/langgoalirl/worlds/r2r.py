"""Room-to-Room in its upstream file layout: connectivity graphs and annotated paths.

DIR/annotations/R2R_<split>.json     instructions and paths
DIR/connectivity/<scan>_connectivity.json
DIR/objects/<scan>_<viewpoint>.json  boxes, for object panoramas
DIR/features/…                       image features, where there are any
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from langgoalirl.errors import UserError, nearest
from langgoalirl.files import read_json
from langgoalirl.worlds.geometry import VIEWS, start_view
from langgoalirl.worlds.navgraph import House, NavGraph
from langgoalirl.worlds.r2r_features import feature_table
from langgoalirl.worlds.types import Demonstrations, References, Split, Tasks

GRAPH_SUFFIX = "_connectivity.json"
LONGEST_INSTRUCTION = 300
"""Words. The longest human instruction has about a hundred; more is a broken file, not language."""

LARGEST = 1e6
"""Metres or radians. Beyond it is a broken file, and sums that overflow."""


def read_connectivity(directory: Path) -> list[House]:
    """Every house whose graph lies in the folder, by name."""
    files = sorted(directory.glob(f"*{GRAPH_SUFFIX}"))
    if not files:
        raise UserError(
            f"{directory}: holds no *{GRAPH_SUFFIX}; get them with 'langgoalirl data fetch r2r'."
        )
    return [_read_house(file) for file in files]


def _read_house(file: Path) -> House:
    entries = read_json(file)
    if not isinstance(entries, list) or not entries:
        raise UserError(f"{file}: a list of viewpoints is expected; fetch the file again.")
    size = len(entries)
    for i, entry in enumerate(entries):
        _check_viewpoint(file, i, entry, size)
    included = np.array([entry["included"] for entry in entries], dtype=bool)
    names = [entry["image_id"] for entry in entries if entry["included"]]
    if len(set(names)) < len(names):
        raise UserError(f"{file}: field 'image_id' names a viewpoint twice; fetch the file again.")

    def square(key: str) -> np.ndarray:
        matrix = np.array([entry[key] for entry in entries], dtype=bool)
        matrix = matrix[included][:, included]
        np.fill_diagonal(matrix, False)
        return matrix

    pose = np.array([entry["pose"] for entry in entries], dtype=np.float64)
    height = np.array([entry["height"] for entry in entries], dtype=np.float64)
    return House(
        name=file.name.removesuffix(GRAPH_SUFFIX),
        viewpoints=names,
        positions=pose[included][:, [3, 7, 11]],  # the translation of a row-major 4 x 4 matrix
        edges=square("unobstructed"),
        visible=square("visible"),
        heights=height[included],
    )


def _check_viewpoint(file: Path, i: int, entry: Any, size: int) -> None:
    def fail(field: str, wanted: str) -> UserError:
        return UserError(
            f"{file}: viewpoint {i}, field '{field}' must be {wanted}; fetch it again."
        )

    if not isinstance(entry, dict):
        raise UserError(f"{file}: viewpoint {i} is not an object; fetch the file again.")
    name = entry.get("image_id")
    if not isinstance(name, str) or not name or not name.isprintable():
        raise fail("image_id", "a name")
    if not isinstance(entry.get("included"), bool):
        raise fail("included", "true or false")
    for field in ("unobstructed", "visible"):
        row = entry.get(field)
        if not isinstance(row, list) or len(row) != size or not set(map(type, row)) <= {bool}:
            raise fail(field, f"a list of {size} truth values")
    pose = entry.get("pose")
    if not isinstance(pose, list) or len(pose) != 16 or not all(map(_is_number, pose)):
        raise fail("pose", "16 finite numbers")
    if not _is_number(entry.get("height")):
        raise fail("height", "a finite number")


def _is_number(value: Any) -> bool:
    # Not isinstance: to Python, true and false are integers too. Comparing refuses NaN.
    return type(value) in (int, float) and -LARGEST < value < LARGEST


def read_split(world: NavGraph, file: Path) -> Split:
    """The annotated paths of one file, one row per instruction."""
    entries = read_json(file)
    if not isinstance(entries, list) or not entries:
        raise UserError(f"{file}: a list of annotated paths is expected; fetch the file again.")
    name = file.stem.removeprefix("R2R_")
    seen: set[int] = set()
    paths: list[list[int]] = []
    starts: list[int] = []
    ids: list[str] = []
    goals: list[str] = []
    route: list[int] = []
    for i, entry in enumerate(entries):
        paths.append(_read_path(world, file, i, entry, seen))
        starts.append(paths[-1][0] * VIEWS + start_view(entry["heading"]))
        for j, instruction in enumerate(entry["instructions"]):
            ids.append(f"{entry['path_id']}_{j}")
            goals.append(instruction)
            route.append(i)
    rows = torch.tensor(route)
    tasks = Tasks(ids, goals, torch.tensor(starts)[rows], rows)
    if all(len(path) == 1 for path in paths):  # the test split says where to start, nothing more
        return Split(name, tasks, None, None)
    return annotated_split(name, world, tasks, paths)


def annotated_split(
    name: str, world: NavGraph, tasks: Tasks, paths: Sequence[Sequence[int]]
) -> Split:
    """A split with the path of each *route*: padded, and turned into actions."""
    length = torch.tensor([len(path) for path in paths])
    padded = torch.tensor(
        [[*path, *[path[-1]] * (int(length.max()) - len(path))] for path in paths]
    )
    rows = tasks.route
    actions = world.actions_along(padded.to(world.device), length.to(world.device)).cpu()
    return Split(name, tasks, Demonstrations(actions[rows]), References(padded[rows], length[rows]))


def _read_path(world: NavGraph, file: Path, i: int, entry: Any, seen: set[int]) -> list[int]:
    """Check one annotated path and give its viewpoints' indices."""

    def fail(field: str, wrong: str) -> UserError:
        return UserError(f"{file}: path {i}, field '{field}' {wrong}.")

    if not isinstance(entry, dict):
        raise UserError(f"{file}: path {i} is not an object; fetch the file again.")
    number = entry.get("path_id")
    if not isinstance(number, int) or isinstance(number, bool):
        raise fail("path_id", "must be a whole number")
    if number in seen:
        raise fail("path_id", f"repeats {number}; every path needs a number of its own")
    seen.add(number)
    if not _is_number(entry.get("heading")):
        raise fail("heading", "must be a finite number of radians")
    texts = entry.get("instructions")
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        raise fail("instructions", "must be a list of at least one text")
    for j, text in enumerate(texts):
        words = len(text.split())
        if not words:
            raise fail("instructions", f"is empty at {j}; write one or remove it")
        if text.encode(errors="ignore").decode() != text:  # half of a surrogate pair, say
            raise fail("instructions", f"has characters at {j} that are no Unicode; mend them")
        if words > LONGEST_INSTRUCTION:
            limit = f"at most {LONGEST_INSTRUCTION} make an instruction"
            raise fail("instructions", f"has {words} words at {j}; {limit}")
    scan, names = entry.get("scan"), entry.get("path")
    if not isinstance(scan, str):
        raise fail("scan", "must be a house's name")
    if scan not in world.house_index:
        raise fail("scan", f"names {scan!r}, whose graph is missing; fetch the connectivity files")
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise fail("path", "must be a list of viewpoints' names")
    path = []
    for name in names:
        index = world.index.get((scan, name))
        if index is None:
            raise fail("path", f"goes through {name!r}, which is no viewpoint of {scan}")
        path.append(index)
    house = world.house(scan)
    first = int(world.first[world.house_index[scan]])
    for name, (a, b) in zip(names, itertools.pairwise(path), strict=False):
        if not house.edges[a - first, b - first]:
            raise fail("path", f"steps from {name!r} to a viewpoint no edge leads to")
    return path


class R2R(NavGraph):
    """Room-to-Room: the houses of a folder, and its annotations by file name."""

    def __init__(
        self, directory: Path, features: str = "objects", device: torch.device | str = "cpu"
    ) -> None:
        self.directory = directory
        houses = read_connectivity(directory / "connectivity")
        table = feature_table(directory, houses, features)
        try:
            rows = table.rows(houses)
        except UserError as error:
            raise UserError(f"world.features: '{features}': {error}") from None
        super().__init__(
            houses,
            table.values,
            rows,
            name="r2r",
            digest=table.digest,
            device=device,
        )

    def split(self, name: str) -> Split:
        """Annotations by name: `val_seen` reads annotations/R2R_val_seen.json."""
        folder = self.directory / "annotations"
        files = {file.stem.removeprefix("R2R_"): file for file in folder.glob("R2R_*.json")}
        if not files:
            raise UserError(
                f"{folder}: holds no R2R_*.json; get them with 'langgoalirl data fetch r2r'."
            )
        if name not in files:
            raise UserError(f"{folder}: no split '{name}'.{nearest(name, sorted(files))}")
        return read_split(self, files[name])
