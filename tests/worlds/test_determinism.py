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

SCANS = 2
ROUTES = 20


def build(name: str, features: str, folder: Path) -> tuple[NavGraph, list[str]]:
    """A small world, and the names of its splits."""
    if name == "r2r":
        return R2R(folder, features), ["small"]
    world = Houses(3, houses=2, unseen=1, routes=6, features=features)
    return world, ["train", "val_seen", "val_unseen"]


def fingerprint(world: NavGraph, splits: Iterable[str]) -> dict[str, str]:
    """A checksum of every tensor that the world holds and of everything in its splits."""
    prints = {"digest": world.digest}
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


def in_another_process(name: str, features: str, folder: Path, cache: Path) -> dict[str, str]:
    """The fingerprint that a fresh interpreter finds."""
    surroundings = {
        **os.environ,
        "PYTHONHASHSEED": "1",
        "OMP_NUM_THREADS": "1",
        "LANGGOALIRL_CACHE": str(cache),
    }
    arguments = [name, features, str(folder)]
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        env=surroundings,
        check=True,
        capture_output=True,
        text=True,
    )
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


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of this test's own."""
    monkeypatch.setenv("LANGGOALIRL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_houses(tmp_path: Path) -> None:
    here = fingerprint(*build("houses", "objects", tmp_path))
    assert here == in_another_process("houses", "objects", tmp_path, tmp_path)
    again = fingerprint(*build("houses", "objects", tmp_path))
    assert here == again


def test_houses_without_features(tmp_path: Path) -> None:
    """Nothing to see does not change what there is: only the features differ."""
    bare = fingerprint(*build("houses", "none", tmp_path))
    assert bare == fingerprint(*build("houses", "none", tmp_path))
    full = fingerprint(*build("houses", "objects", tmp_path))
    assert {name for name in full if full[name] != bare[name]} == {
        "digest",
        "_panoramas",
        "_views",
    }


@pytest.mark.parametrize("features", ["none", "objects"])
def test_room_to_room(
    small_r2r: tuple[Path, Path], cache: Path, tmp_path: Path, features: str
) -> None:
    there, back = small_r2r
    computed = fingerprint(*build("r2r", features, there))
    assert computed == in_another_process("r2r", features, back, tmp_path / "other")
    if features == "objects":
        (kept,) = cache.iterdir()
        before = (kept / "features.f16").stat().st_mtime_ns
        assert computed == fingerprint(*build("r2r", features, there))  # now from the cache
        assert (kept / "features.f16").stat().st_mtime_ns == before


def test_the_fingerprint_notices_a_single_bit(tmp_path: Path) -> None:
    world, splits = build("houses", "objects", tmp_path)
    before = fingerprint(world, splits)
    world.metres[0, 1] += 1e-12
    after = fingerprint(world, splits)
    assert {name for name in before if before[name] != after[name]} == {"metres"}


if __name__ == "__main__":
    world, splits = build(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    print(json.dumps(fingerprint(world, splits)))
