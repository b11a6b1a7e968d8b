"""Look at a Room-to-Room folder: what is there, what is damaged, what is missing, what to do."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from langgoalirl.data.sources import SOURCES, STANDARD, FileSource, FolderSource, Source, stand_in
from langgoalirl.errors import UserError
from langgoalirl.files import read_json, sha256
from langgoalirl.worlds.feature_files import read_hdf5, read_tsv
from langgoalirl.worlds.features import open_cache
from langgoalirl.worlds.geometry import VIEWS
from langgoalirl.worlds.navgraph import DIRECTION, House, NavGraph
from langgoalirl.worlds.r2r import read_connectivity, read_split

Status = Literal["ok", "missing", "damaged", "unknown"]
Finding = tuple[Status, str]

READERS = {".tsv": read_tsv, ".hdf5": read_hdf5, ".h5": read_hdf5}


@dataclass(frozen=True)
class Row:
    """One part of the data set."""

    what: str
    status: Status
    detail: str
    remedy: str = ""


@dataclass(frozen=True)
class Report:
    """All that `check` found, in the order of the table of sources."""

    directory: Path
    rows: list[Row]

    @property
    def sound(self) -> bool:
        """Nothing that is there is damaged; parts may be missing."""
        return all(row.status != "damaged" for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        """Plain lists and dictionaries."""
        return {
            "directory": str(self.directory),
            "sound": self.sound,
            "rows": [asdict(row) for row in self.rows],
        }


@dataclass(frozen=True)
class _Graphs:
    """The houses that everything else refers to; none if they are missing or cannot be read."""

    houses: list[House]
    world: NavGraph | None
    fault: str


def check(directory: Path, sources: Sequence[Source] = SOURCES) -> Report:
    """Verify counts, checksums and that every annotated path is a walk in its graph."""
    command = f"langgoalirl data fetch r2r {directory}"
    if not directory.is_dir():
        raise UserError(f"{directory}: no such folder; '{command}' makes and fills it.")
    graphs = _read_graphs(directory, sources)
    rows = []
    for source in sources:
        status, detail = _look_at(source, directory / source.path, graphs)
        rows.append(Row(source.path, status, detail, _remedy(source, status, command)))
    ours = {source.path for source in sources}
    for file in sorted((directory / "annotations").glob("R2R_*.json")):
        what = str(file.relative_to(directory))
        if what not in ours:
            status, detail = _look_at_foreign(file, graphs)
            remedy = "" if status == "ok" else "put the file right, or move it elsewhere"
            rows.append(Row(what, status, detail, remedy))
    return Report(directory, rows)


def _remedy(source: Source, status: Status, command: str) -> str:
    if status == "ok" or (source.group == "features" and status == "unknown"):
        return ""
    if source.group not in STANDARD:
        command += f" --with {source.group}"
    if isinstance(source, FolderSource) and status != "missing":
        return f"move the folder '{source.path}' away, then {command}"
    return command


def _look_at(source: Source, place: Path, graphs: _Graphs) -> Finding:
    if isinstance(source, FileSource):
        if not place.is_file():
            return "missing", "no such file"
        if source.group == "annotations":
            return _look_at_split(source, place, graphs)
        fault = source.fault(place)
        return ("damaged", fault) if fault else ("ok", f"{place.stat().st_size:,} bytes")
    if source.group == "features":
        return _look_at_features(place, graphs)
    if not source.members(place):
        return "missing", f"none of {source.files:,} files"
    if source.group == "connectivity":
        return _look_at_graphs(source, place, graphs)
    return _look_at_objects(source, place, graphs)


# Graphs


def _read_graphs(directory: Path, sources: Sequence[Source]) -> _Graphs:
    folders = [directory / source.path for source in sources if source.group == "connectivity"]
    try:
        houses = [house for folder in folders for house in read_connectivity(folder)]
    except UserError as error:
        return _Graphs([], None, str(error))
    # Walks need no features: every viewpoint shares one blank row.
    rows = torch.zeros(sum(map(len, houses)), dtype=torch.long)
    return _Graphs(houses, NavGraph(houses, torch.zeros(2, VIEWS, DIRECTION), rows), "")


def _look_at_graphs(source: FolderSource, folder: Path, graphs: _Graphs) -> Finding:
    if graphs.fault:
        return "damaged", graphs.fault
    found = {"graphs": len(graphs.houses), "viewpoints": sum(map(len, graphs.houses))}
    return _compare(source, folder, found)


def _compare(source: FolderSource, folder: Path, found: Mapping[str, int]) -> Finding:
    """What a folder was found to hold beside what the release holds."""
    members = source.members(folder)
    if len(members) < source.files:
        return "missing", f"{source.files - len(members):,} of {source.files:,} files"
    if found != dict(source.counts):
        return "damaged", f"{_listed(found)}; the release has {_listed(source.counts)}"
    if source.digest and _digest(members) != source.digest:
        return "unknown", f"{_listed(found)}, but some file differs from the release"
    return "ok", _listed(found)


def _digest(files: Iterable[Path]) -> str:
    lines = (f"{file.name} {sha256(file)}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


# Boxes


def _look_at_objects(source: FolderSource, folder: Path, graphs: _Graphs) -> Finding:
    members = source.members(folder)
    empty = 0
    for file in members:
        try:
            content = read_json(file)
        except UserError as error:
            return "damaged", str(error)
        viewpoint = file.stem.partition("_")[2]
        objects = content.get(viewpoint) if isinstance(content, dict) else None
        if not isinstance(objects, dict) or not all(map(_is_box, objects.values())):
            return "damaged", f"{file}: boxes of the objects at {viewpoint} are expected."
        empty += not objects
    names = {file.name for file in members}
    wanted = (f"{house.name}_{name}.json" for house in graphs.houses for name in house.viewpoints)
    lacking = [name for name in wanted if name not in names]
    if lacking:
        return "missing", f"{len(lacking):,} viewpoints have no file, {lacking[0]} is the first"
    return _compare(source, folder, {"files": len(members), "empty": empty})


def _is_box(value: Any) -> bool:
    """A name, the views in which the object is seen, and four numbers for each of them."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return False
    views, boxes = value.get("visible_pos"), value.get("bbox2d")
    if not isinstance(views, list) or not isinstance(boxes, list) or len(views) != len(boxes):
        return False
    return all(isinstance(view, int) and 0 <= view < VIEWS for view in views) and all(
        isinstance(box, list) and len(box) == 4 and all(isinstance(x, int | float) for x in box)
        for box in boxes
    )


# Annotations


def _look_at_split(source: FileSource, file: Path, graphs: _Graphs) -> Finding:
    fault = source.fault(file)
    if graphs.world is None:
        unread = "no graphs to check its paths against"
        return ("damaged", fault) if fault else ("ok", f"as released, but {unread}")
    try:
        found = _count(graphs.world, file)
    except UserError as error:
        # In a file that is as released, only the graphs can be at fault.
        return "damaged" if fault else "unknown", str(error)
    if fault:
        return "damaged", f"{fault}; {_listed(found)}, the release has {_listed(source.counts)}"
    return "ok", _listed(found)


def _look_at_foreign(file: Path, graphs: _Graphs) -> Finding:
    if graphs.world is None:
        return "unknown", "no graphs to check its paths against"
    try:
        return "ok", f"{_listed(_count(graphs.world, file))} (not an upstream split)"
    except UserError as error:
        return "damaged", str(error)


def _count(world: NavGraph, file: Path) -> dict[str, int]:
    split = read_split(world, file)  # refuses whatever is wrong with it
    return {"paths": len(torch.unique(split.tasks.route)), "instructions": len(split)}


# Image features


def _look_at_features(folder: Path, graphs: _Graphs) -> Finding:
    """Nobody published checksums of these: how each file begins, and that a cache is complete."""
    found = []
    for file in sorted(folder.glob("[!.]*")):
        if file.suffix == ".part" or (file.is_dir() and not (file / "index.json").is_file()):
            continue
        if file.is_file() and (fault := stand_in(file)):
            return "damaged", f"{file.name}: {fault}"
        try:
            found.append(f"{file.name} ({_begins(file, graphs)})")
        except UserError as error:
            return "damaged", str(error)
    if not found:
        return "missing", "no files"
    return "unknown", f"{', '.join(found)}: no checksum is known"


def _begins(file: Path, graphs: _Graphs) -> str:
    """How large a prepared cache or a file of features is; raises if it cannot be used."""
    if file.is_dir():
        table = open_cache(file)
        try:
            table.rows(graphs.houses)  # refuses a table that lacks some of their viewpoints
        except UserError as error:
            raise UserError(f"{file}: {error}") from None
        return f"{len(table.keys):,} panoramas, {table.values.shape[2] - DIRECTION} wide"
    size = f"{file.stat().st_size:,} bytes"
    if file.suffix not in READERS:
        return size
    with closing(READERS[file.suffix](file, None)) as panoramas:
        return f"{size}, {next(panoramas)[1].shape[1]} wide"
