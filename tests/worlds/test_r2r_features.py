"""Panoramas of objects are computed once, kept, and computed again when they were damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from langgoalirl.errors import UserError
from langgoalirl.worlds.r2r import R2R

POSE = [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]


@pytest.fixture
def hut(tmp_path: Path) -> Path:
    """Room-to-Room's layout with one viewpoint, from which one sees a bed."""
    one = {"image_id": "a", "pose": POSE, "included": True, "height": 1.5}
    bed = {"name": "bed", "visible_pos": [12], "bbox2d": [[300, 200, 40, 40]]}
    contents = {
        "connectivity/hut_connectivity.json": [one | {"visible": [False], "unobstructed": [False]}],
        "objects/hut_a.json": {"a": {"7": bed}},
    }
    for name, content in contents.items():
        file = tmp_path / "r2r" / name
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(content))
    return tmp_path / "r2r"


@pytest.mark.parametrize("damaged", ["index.json", "features.f16"])
def test_a_damaged_table_is_made_anew(
    hut: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: str
) -> None:
    monkeypatch.setenv("LANGGOALIRL_CACHE", str(tmp_path / "cache"))
    first = R2R(hut).digest
    (kept,) = (tmp_path / "cache").iterdir()
    whole = (kept / damaged).read_bytes()
    for content in (whole[:-9], b""):
        (kept / damaged).write_bytes(content)
        assert R2R(hut).digest == first
        assert (kept / damaged).read_bytes() == whole
    (kept / damaged).unlink()
    assert R2R(hut).digest == first


def test_a_place_that_cannot_be_written_is_one_sentence(
    hut: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = hut / "objects/hut_a.json"
    monkeypatch.setenv("LANGGOALIRL_CACHE", str(place))
    with pytest.raises(UserError, match=f"^{place}: cannot be made .* set LANGGOALIRL_CACHE"):
        R2R(hut)
