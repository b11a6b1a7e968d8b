"""Where Room-to-Room's features come from: one table, several sources."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import torch

from langgoalirl.errors import UserError
from langgoalirl.files import sha256
from langgoalirl.provenance import source_digest
from langgoalirl.worlds.features import FeatureTable, open_cache, write_cache
from langgoalirl.worlds.geometry import VIEWS
from langgoalirl.worlds.navgraph import DIRECTION, House


def cache_folder() -> Path:
    """Where computed tables are kept between runs."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "langgoalirl"
    folder = Path(os.environ.get("LANGGOALIRL_CACHE") or default)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{folder}: cannot be made ({error.strerror}); set LANGGOALIRL_CACHE to a folder for "
            "computed features."
        ) from None
    return folder


def feature_table(directory: Path, houses: list[House], features: str) -> FeatureTable:
    """`none` (directions alone), `objects` (panoramas from boxes), or a prepared cache."""
    if features == "none":
        return blank_table(houses)
    if features == "objects":
        return object_table(directory, houses)
    for folder in (Path(features), directory / "features" / features):
        if os.path.isfile(folder / "index.json"):  # false, not an error, for impossible names
            return open_cache(folder)
    raise UserError(
        f"world.features: '{features}' is neither 'objects', 'none' nor a prepared cache; make one "
        "with 'langgoalirl data prepare FILE CACHE'."
    )


def blank_table(houses: list[House]) -> FeatureTable:
    """Nothing to see but directions: what geometry alone can do."""
    keys = [f"{house.name}_{viewpoint}" for house in houses for viewpoint in house.viewpoints]
    values = torch.zeros(len(keys) + 1, VIEWS, DIRECTION, dtype=torch.float16)
    return FeatureTable(values, keys, "none")


def object_table(directory: Path, houses: list[House]) -> FeatureTable:
    """Object panoramas, computed once and kept in the cache folder."""
    from langgoalirl.worlds.objects import OBJECT_WIDTH, object_panoramas

    boxes = directory / "objects"
    known = _listing(boxes) if boxes.is_dir() else []
    if not known:
        raise UserError(
            f"{boxes}: holds no object boxes; get them with 'langgoalirl data fetch r2r DIR'."
        )
    graphs = sorted(sha256(f) for f in (directory / "connectivity").glob("*_connectivity.json"))
    source = source_digest("langgoalirl.worlds.objects")
    identity = hashlib.sha256(repr((known, graphs, source)).encode()).hexdigest()[:16]
    folder = cache_folder() / f"objects-{identity}"
    try:
        return open_cache(folder)
    except UserError:  # not there yet, or damaged
        return write_cache(folder, OBJECT_WIDTH, object_panoramas(houses, boxes), str(boxes))


def _listing(folder: Path) -> list[tuple[str, int, int]]:
    """Names, sizes and times: what tells a changed folder from the one that was read before."""
    found = ((entry.name, entry.stat()) for entry in os.scandir(folder))
    return sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in found)
