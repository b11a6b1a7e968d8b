"""The same seed and the same files give the same bytes: in another process, with other hash seeds
and another number of threads, from folders that list their files in another order."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from langgoalirl.worlds.houses.world import Houses
from langgoalirl.worlds.navgraph import NavGraph
from langgoalirl.worlds.r2r import R2R

FEATURES = ("objects", "none")
SCANS = 2
ROUTES = 20


def build(features: str, folder: Path | None = None) -> NavGraph:
    """A small world."""
    if folder is not None:
        return R2R(folder, features)
    return Houses(3, houses=2, unseen=1, routes=6, features=features)


def fingerprint(world: NavGraph) -> dict[str, str]:
    """A checksum of every tensor that the world holds and of everything in its splits."""
    prints = {"digest": world.digest}
    splits = ["small"] if world.name == "r2r" else ["train", "val_seen", "val_unseen"]
    for name, value in sorted(vars(world).items()):
        if isinstance(value, Tensor):
            prints[name] = checksum([value])
    for name in splits:
        split = world.split(name)
        for part in ("tasks", "demonstrations", "references"):
            prints[f"{name}.{part}"] = checksum(astuple(getattr(split, part)))
    return prints


def checksum(values: Iterable[Any]) -> str:
    found = hashlib.sha256()
    for value in values:
        if isinstance(value, Tensor):
            found.update(f"{value.dtype} {tuple(value.shape)} ".encode())
            found.update(value.contiguous().numpy().tobytes())
        else:
            found.update(json.dumps(value).encode())
    return found.hexdigest()


def in_another_process(*folder: Path, cache: Path) -> dict[str, dict[str, str]]:
    """The fingerprints that a fresh interpreter finds, for each kind of features."""
    surroundings = {
        **os.environ,
        "PYTHONHASHSEED": "1",
        "OMP_NUM_THREADS": "1",
        "LANGGOALIRL_CACHE": str(cache),
    }
    command = [sys.executable, __file__, *map(str, folder)]
    done = subprocess.run(command, env=surroundings, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def small_r2r(r2r_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two folders with the same small part of Room-to-Room, filled in opposite orders."""
    routes = json.loads((r2r_dir / "annotations/R2R_train.json").read_text())
    size = {
        scan: (r2r_dir / f"connectivity/{scan}_connectivity.json").stat().st_size
        for scan in {route["scan"] for route in routes}
    }
    scans = sorted(size, key=lambda scan: size[scan])[:SCANS]
    graphs = [f"connectivity/{scan}_connectivity.json" for scan in scans]
    boxes = [
        f"objects/{scan}_{viewpoint['image_id']}.json"
        for scan, graph in zip(scans, graphs, strict=True)
        for viewpoint in json.loads((r2r_dir / graph).read_text())
        if viewpoint["included"]
    ]
    there, back = tmp_path_factory.mktemp("there"), tmp_path_factory.mktemp("back")
    for folder, names in ((there, graphs + boxes), (back, (graphs + boxes)[::-1])):
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(r2r_dir / name, folder / name)
        (folder / "annotations").mkdir()
        chosen = [route for route in routes if route["scan"] in scans][:ROUTES]
        (folder / "annotations/R2R_small.json").write_text(json.dumps(chosen))
    return there, back


def test_houses(tmp_path: Path) -> None:
    here = {features: fingerprint(build(features)) for features in FEATURES}
    assert here == in_another_process(cache=tmp_path)
    assert here == {features: fingerprint(build(features)) for features in FEATURES}
    full, bare = here["objects"], here["none"]
    seen = {"digest", "_panoramas", "_views"}  # without features all else is the same
    assert {name for name in full if full[name] != bare[name]} == seen


def test_room_to_room(
    small_r2r: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, back = small_r2r
    monkeypatch.setenv("LANGGOALIRL_CACHE", str(tmp_path / "one"))
    here = {features: fingerprint(build(features, there)) for features in FEATURES}
    assert here == in_another_process(back, cache=tmp_path / "other")

    (kept,) = (tmp_path / "one").iterdir()
    before = (kept / "features.f16").stat().st_mtime_ns
    assert here["objects"] == fingerprint(build("objects", there))  # from the cache by now
    assert (kept / "features.f16").stat().st_mtime_ns == before


def test_the_fingerprint_notices_a_single_bit() -> None:
    world = build("objects")
    before = fingerprint(world)
    world.metres[0, 1] += 1e-12
    after = fingerprint(world)
    assert {name for name in before if before[name] != after[name]} == {"metres"}


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    print(json.dumps({features: fingerprint(build(features, place)) for features in FEATURES}))
