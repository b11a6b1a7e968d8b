"""A folder with two made-up houses, and every defect that it may have."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from langgoalirl.data.check import Row, check
from langgoalirl.data.fetch import fetch
from langgoalirl.data.sources import Copy, FileSource, FolderSource, Source
from langgoalirl.errors import UserError
from langgoalirl.worlds.features import write_cache

HOUSES = {"aaaaaaaaaaa": 3, "bbbbbbbbbbb": 2}  # viewpoints in a row, each joined to the next
GRAPH_A = "connectivity/aaaaaaaaaaa_connectivity.json"
TRAIN = "annotations/R2R_train.json"
BOX = {"name": "chair", "visible_pos": [3, 4], "bbox2d": [[1, 2, 3, 4], [5, 6, 7, 8]]}


def viewpoint(scan: str, number: int) -> str:
    return f"{scan[0]}{number:031x}"


def graph(scan: str, size: int) -> list[dict[str, Any]]:
    """A row of viewpoints, and one more that is not included."""
    return [
        {
            "image_id": viewpoint(scan, i),
            "pose": [1, 0, 0, 2.0 * i, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1],
            "included": i < size,
            "visible": [i != j for j in range(size + 1)],
            "unobstructed": [abs(i - j) == 1 for j in range(size + 1)],
            "height": 1.5,
        }
        for i in range(size + 1)
    ]


def annotation(number: int, scan: str, *steps: int) -> dict[str, Any]:
    return {
        "distance": 2.0,
        "scan": scan,
        "path_id": number,
        "path": [viewpoint(scan, step) for step in steps],
        "heading": 0.5,
        "instructions": ["Go ahead.", "Walk to the next room and stop."],
    }


def write(file: Path, value: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value))


def edit(file: Path, change: Callable[[Any], Any]) -> None:
    value = json.loads(file.read_text())
    change(value)
    write(file, value)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    place = tmp_path / "r2r"
    for scan, size in HOUSES.items():
        write(place / f"connectivity/{scan}_connectivity.json", graph(scan, size))
        for i in range(size):
            name = viewpoint(scan, i)
            write(place / f"objects/{scan}_{name}.json", {name: {"7": BOX} if i else {}})
    paths = [annotation(1, "aaaaaaaaaaa", 0, 1, 2), annotation(2, "bbbbbbbbbbb", 1, 0)]
    write(place / TRAIN, paths)
    return place


@pytest.fixture
def sources(directory: Path) -> list[Source]:
    """What the made-up release is; `test` is a split that nobody has."""
    data = (directory / TRAIN).read_bytes()
    train = Copy(len(data), hashlib.sha256(data).hexdigest())
    graphs = sorted((directory / "connectivity").iterdir())
    lines = "".join(f"{g.name} {hashlib.sha256(g.read_bytes()).hexdigest()}\n" for g in graphs)
    counts = {"paths": 2, "instructions": 4}

    def folder(path: str, names: str, files: int, **more: Any) -> FolderSource:
        pattern = re.compile(names)
        return FolderSource(path, path, path, pattern, "NAME", files, (), 0, 0, **more)

    return [
        FileSource("annotations", TRAIN, (train,), (), counts),
        FileSource("annotations", "annotations/R2R_test.json", (Copy(9, "0" * 64),), (), counts),
        folder(
            "connectivity",
            r"\w{11}_connectivity\.json",
            2,
            counts={"graphs": 2, "viewpoints": 5},
            digest=hashlib.sha256(lines.encode()).hexdigest(),
        ),
        folder("objects", r"\w{11}_\w{32}\.json", 5, counts={"files": 5, "empty": 2}),
        FileSource("glove", "glove/words.txt", (Copy(3, hashlib.sha256(b"abc").hexdigest()),), ()),
        folder("features", r"table\.tsv", 1),
    ]


def rows(directory: Path, sources: list[Source]) -> dict[str, Row]:
    return {row.what: row for row in check(directory, sources).rows}


def test_a_good_folder(directory: Path, sources: list[Source]) -> None:
    command = f"langgoalirl data fetch r2r {directory}"
    assert check(directory, sources).as_json() == {
        "directory": str(directory),
        "sound": True,
        "rows": [
            {"what": what, "status": status, "detail": detail, "remedy": remedy}
            for what, status, detail, remedy in [
                (TRAIN, "ok", "2 paths, 4 instructions", ""),
                ("annotations/R2R_test.json", "missing", "no such file", command),
                ("connectivity", "ok", "2 graphs, 5 viewpoints", ""),
                ("objects", "ok", "5 files, 2 empty", ""),
                ("glove/words.txt", "missing", "no such file", f"{command} --with glove"),
                ("features", "missing", "no files", f"{command} --with features"),
            ]
        ],
    }


def test_an_empty_folder_and_none(tmp_path: Path, sources: list[Source]) -> None:
    (tmp_path / "new").mkdir()
    assert {row.status for row in check(tmp_path / "new", sources).rows} == {"missing"}
    with pytest.raises(UserError, match=r"no such folder; 'langgoalirl data fetch r2r"):
        check(tmp_path / "nowhere", sources)


# Annotations


def test_a_released_split_that_was_changed(directory: Path, sources: list[Source]) -> None:
    edit(directory / TRAIN, lambda paths: paths.pop())
    row = rows(directory, sources)[TRAIN]
    assert row.status == "damaged"
    assert row.detail.endswith("; 1 paths, 2 instructions, the release has 2 paths, 4 instructions")
    assert row.remedy == f"langgoalirl data fetch r2r {directory}"


def test_a_released_split_with_one_byte_changed(directory: Path, sources: list[Source]) -> None:
    text = (directory / TRAIN).read_text()
    (directory / TRAIN).write_text(text.replace("Go ahead.", "Go Ahead.", 1))
    report = check(directory, sources)
    assert not report.sound
    assert report.rows[0].status == "damaged"
    assert "its sha256 is not the release's; 2 paths, 4 instructions" in report.rows[0].detail


def test_a_split_of_ones_own(directory: Path, sources: list[Source]) -> None:
    write(directory / "annotations/R2R_mine.json", [annotation(5, "aaaaaaaaaaa", 2, 1)])
    row = rows(directory, sources)["annotations/R2R_mine.json"]
    assert (row.status, row.detail, row.remedy) == (
        "ok",
        "1 paths, 2 instructions (not an upstream split)",
        "",
    )


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        (lambda paths: paths[1].update(path_id=5), "field 'path_id' repeats 5"),
        (lambda paths: paths[0]["path"].pop(1), "to a viewpoint no edge leads to"),
        (lambda paths: paths[0].update(scan="ccccccccccc"), "whose graph is missing"),
        (lambda paths: paths[0]["path"].append("nowhere"), "'nowhere', which is no viewpoint"),
        (lambda paths: paths[0].update(instructions=[]), "at least one text"),
        (lambda paths: paths[0]["instructions"].append("  "), "is empty at 2"),
    ],
)
def test_defects_of_a_split(
    directory: Path, sources: list[Source], change: Callable[[Any], Any], detail: str
) -> None:
    mine = directory / "annotations/R2R_mine.json"
    write(mine, [annotation(5, "aaaaaaaaaaa", 0, 1, 2), annotation(6, "aaaaaaaaaaa", 1, 2)])
    edit(mine, change)
    row = rows(directory, sources)["annotations/R2R_mine.json"]
    assert row.status == "damaged"
    assert detail in row.detail
    assert row.remedy == "put the file right, or move it elsewhere"


def test_a_split_that_is_cut_short(directory: Path, sources: list[Source]) -> None:
    (directory / TRAIN).write_bytes((directory / TRAIN).read_bytes()[:-9])
    row = rows(directory, sources)[TRAIN]
    assert row.status == "damaged"
    assert "not valid JSON" in row.detail


# Graphs


def test_without_graphs_no_path_is_checked(directory: Path, sources: list[Source]) -> None:
    shutil.rmtree(directory / "connectivity")
    write(directory / "annotations/R2R_mine.json", [])
    found = rows(directory, sources)
    assert found["connectivity"].status == "missing"
    assert found[TRAIN].status == "ok"
    assert found[TRAIN].detail == "as released, but no graphs to check its paths against"
    assert found["annotations/R2R_mine.json"].status == "unknown"


def test_one_graph_is_missing(directory: Path, sources: list[Source]) -> None:
    (directory / GRAPH_A).unlink()
    found = rows(directory, sources)
    assert (found["connectivity"].status, found["connectivity"].detail) == (
        "missing",
        "1 of 2 files",
    )
    assert found[TRAIN].status == "unknown"  # the file itself is as released
    assert "whose graph is missing" in found[TRAIN].detail


@pytest.mark.parametrize(
    ("change", "status", "detail"),
    [
        (
            lambda nodes: nodes[2].update(included=False),
            "damaged",
            "2 graphs, 4 viewpoints; the release has 2 graphs, 5 viewpoints",
        ),
        (
            lambda nodes: nodes[0].update(height=1.6),
            "unknown",
            "2 graphs, 5 viewpoints, but some file differs from the release",
        ),
        (lambda nodes: nodes[0].pop("pose"), "damaged", "16 finite numbers"),
    ],
)
def test_a_graph_that_was_changed(
    directory: Path,
    sources: list[Source],
    change: Callable[[Any], Any],
    status: str,
    detail: str,
) -> None:
    edit(directory / GRAPH_A, change)
    row = rows(directory, sources)["connectivity"]
    assert row.status == status
    assert detail in row.detail
    assert row.remedy.startswith("move the folder 'connectivity' away, then langgoalirl data")


# Boxes


def box_file(directory: Path, number: int) -> Path:
    return directory / f"objects/aaaaaaaaaaa_{viewpoint('aaaaaaaaaaa', number)}.json"


def test_boxes_are_missing(directory: Path, sources: list[Source]) -> None:
    box_file(directory, 1).rename(directory / f"objects/ccccccccccc_{'0' * 32}.json")
    write(directory / f"objects/ccccccccccc_{'0' * 32}.json", {"0" * 32: {}})
    row = rows(directory, sources)["objects"]
    assert row.status == "missing"
    assert row.detail == f"1 viewpoints have no file, {box_file(directory, 1).name} is the first"
    shutil.rmtree(directory / "objects")
    assert rows(directory, sources)["objects"].detail == "none of 5 files"


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"another viewpoint": {}},
        {viewpoint("aaaaaaaaaaa", 1): []},
        {viewpoint("aaaaaaaaaaa", 1): {"7": {**BOX, "name": 3}}},
        {viewpoint("aaaaaaaaaaa", 1): {"7": {**BOX, "visible_pos": [3, 36]}}},
        {viewpoint("aaaaaaaaaaa", 1): {"7": {**BOX, "visible_pos": [3]}}},
        {viewpoint("aaaaaaaaaaa", 1): {"7": {**BOX, "bbox2d": [[1, 2, 3], [4, 5, 6]]}}},
    ],
)
def test_boxes_are_damaged(directory: Path, sources: list[Source], content: Any) -> None:
    write(box_file(directory, 1), content)
    row = rows(directory, sources)["objects"]
    assert row.status == "damaged"
    assert str(box_file(directory, 1)) in row.detail


def test_boxes_were_emptied(directory: Path, sources: list[Source]) -> None:
    write(box_file(directory, 1), {viewpoint("aaaaaaaaaaa", 1): {}})
    row = rows(directory, sources)["objects"]
    assert (row.status, row.detail) == (
        "damaged",
        "5 files, 3 empty; the release has 5 files, 2 empty",
    )


# The rest


def test_word_vectors(directory: Path, sources: list[Source]) -> None:
    file = directory / "glove/words.txt"
    file.parent.mkdir()
    file.write_bytes(b"abc")
    assert rows(directory, sources)["glove/words.txt"].status == "ok"
    file.write_bytes(b"abd")
    assert rows(directory, sources)["glove/words.txt"].status == "damaged"


def panorama(key: str, width: int = 3) -> str:
    """A row of a TSV file."""
    values = base64.b64encode(bytes(36 * width * 4)).decode()
    return "\t".join([*key.split("_"), "640", "480", "60", values]) + "\n"


def test_image_features(directory: Path, sources: list[Source]) -> None:
    folder = directory / "features"
    folder.mkdir()
    (folder / "table.zip.part").write_bytes(b"begun")
    (folder / "notes").mkdir()
    assert rows(directory, sources)["features"].status == "missing"
    (folder / "mine.tsv").write_text(panorama("scan_a"))
    row = rows(directory, sources)["features"]
    assert (row.status, row.detail) == (
        "unknown",
        "mine.tsv (595 bytes, 3 wide): no checksum is known",
    )
    assert row.remedy == ""
    (folder / "mine.tsv").write_text(panorama("scan_a")[:-9])
    row = rows(directory, sources)["features"]
    assert row.status == "damaged"
    assert f"{folder}/mine.tsv: line 1, field 'features'" in row.detail
    (folder / "mine.tsv").rename(folder / "mine.h5")
    row = rows(directory, sources)["features"]
    assert row.status == "damaged"
    assert "mine.h5: not an HDF5 file" in row.detail
    (folder / "table.tsv").write_bytes(b"<html>Sorry</html>")
    (folder / "mine.h5").unlink()
    row = rows(directory, sources)["features"]
    assert (row.status, row.detail) == ("damaged", "table.tsv: a web page instead of the file")


def test_prepared_features(directory: Path, sources: list[Source]) -> None:
    cache = directory / "features/mine"
    keys = [f"{scan}_{viewpoint(scan, i)}" for scan, size in HOUSES.items() for i in range(size)]

    def look(count: int) -> Row:
        write_cache(cache, 3, ((key, np.zeros((36, 3))) for key in keys[:count]), "made up")
        return rows(directory, sources)["features"]

    row = look(len(keys))
    assert (row.status, row.detail) == (
        "unknown",
        f"mine ({len(keys)} panoramas, 3 wide): no checksum is known",
    )
    row = look(len(keys) - 1)
    assert row.status == "damaged"
    assert row.detail.startswith(f"{cache}: House ")
    assert "1 of 5 viewpoints have none" in row.detail
    (cache / "features.f16").write_bytes(b"cut")
    row = rows(directory, sources)["features"]
    assert row.status == "damaged"
    assert "3 bytes where" in row.detail


def test_the_remedy_works(directory: Path, sources: list[Source], tmp_path: Path) -> None:
    """What is damaged is replaced by what a copy of the good folder holds."""
    good = shutil.copytree(directory, tmp_path / "good")
    (directory / TRAIN).write_text("[]")
    (directory / GRAPH_A).write_text("[")
    box_file(directory, 2).unlink()
    wanted = [replace(source) for source in sources if "test" not in source.path]
    assert not check(directory, wanted).sound
    fetch(directory, offline=good, sources=wanted)
    found = rows(directory, wanted)
    assert {found[what].status for what in (TRAIN, "connectivity", "objects")} == {"ok"}


def test_the_real_folder(r2r_dir: Path) -> None:
    report = check(r2r_dir)
    assert report.sound
    found = {row.what: row for row in report.rows}
    missing = {what for what, row in found.items() if row.status == "missing"}
    assert missing == {
        "annotations/R2R_val_unseen.json",
        "annotations/R2R_test.json",
        "features",
    }
    assert all(found[what].remedy for what in missing)
    assert {row.status for what, row in found.items() if what not in missing} == {"ok"}
    assert found[TRAIN].detail == "4,675 paths, 14,039 instructions"
    assert found["annotations/R2R_val_seen.json"].detail == "340 paths, 1,021 instructions"
    assert found["connectivity"].detail == "90 graphs, 10,567 viewpoints"
    assert found["objects"].detail == "10,567 files, 2,385 empty"
    assert found["annotations/R2R_devunseen.json"].detail.endswith("(not an upstream split)")
