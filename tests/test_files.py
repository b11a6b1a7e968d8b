"""Files that others wrote are read or refused in one sentence; ours are whole or not there."""

from __future__ import annotations

import json
import math
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from langgoalirl.errors import UserError, nearest
from langgoalirl.files import atomic_write, read_json, read_text, sha256, write_json

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One name that every example of a property writes anew."""
    return tmp_path_factory.mktemp("files") / "file.json"


# Reading


def test_text_is_read_as_utf8(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("Grüße, θ\n".encode())
    assert read_text(tmp_path / "a.txt") == "Grüße, θ\n"


def test_what_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"na\xefve")
    expected = {
        "none": "no such file.",
        "latin": "not UTF-8 text (byte 2); convert it or fetch it again.",
        "": "is a folder, a file is expected.",
        "latin/below": "cannot be read (Not a directory).",
        "x" * 300: "cannot be read (File name too long).",
    }
    for name, reason in expected.items():
        with pytest.raises(UserError) as caught:
            read_text(tmp_path / name)
        assert str(caught.value) == f"{tmp_path / name}: {reason}"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[1,\n2,", "not valid JSON at line 2, column 3"),
        ("", "not valid JSON at line 1, column 1"),
        ("{'a': 1}", "not valid JSON at line 1, column 2"),
        ("[" * 100_000, "JSON that is no data of ours"),
        ('{"a":' * 100_000, "JSON that is no data of ours"),
        ("1" * 5000, "JSON that is no data of ours"),
    ],
    ids=lambda value: value[:20],
)
def test_broken_json_is_one_sentence(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(UserError) as caught:
        read_json(tmp_path / "a.json")
    assert str(caught.value).startswith(f"{tmp_path / 'a.json'}: {reason}")
    assert "\n" not in str(caught.value)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40) | ANY_JSON.map(lambda value: json.dumps(value).encode()[:-1]))
@example(b"\xef\xbb\xbf{}")
@example(b"\x00")
def test_any_bytes_are_json_or_refused(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    try:
        value = read_json(file)
    except UserError as error:
        said = str(error)
    else:
        assert json.dumps(value) == json.dumps(json.loads(content))
        return
    with pytest.raises((ValueError, RecursionError)):
        json.loads(content.decode("utf-8"))
    assert said.startswith(f"{file}: ")
    assert "\n" not in said


def test_sha256(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256(tmp_path / "a") == known


# Writing


@settings(max_examples=100, deadline=None)
@given(ANY_JSON)
def test_what_is_written_is_read_again(file: Path, value: Any) -> None:
    write_json(file, value)
    assert read_json(file) == value
    assert file.read_bytes().endswith(b"\n")
    write_json(file, value, indent=None)
    assert read_json(file) == value
    assert [other.name for other in file.parent.iterdir()] == [file.name]


def test_text_stays_legible(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"θ": ["Grüße"]}, indent=None)
    assert (tmp_path / "a.json").read_bytes() == '{"θ": ["Grüße"]}\n'.encode()


def test_folders_are_made_and_others_may_read(tmp_path: Path) -> None:
    file = tmp_path / "a/b/c.bin"
    with atomic_write(file) as opened:
        opened.write(b"\x00\xff")
        assert not file.exists()
    assert file.read_bytes() == b"\x00\xff"
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_what_breaks_off_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("old")

    def break_off() -> None:
        with atomic_write(file, "w") as opened:
            opened.write("half of the n")
            opened.flush()
            raise error

    with pytest.raises(error):
        break_off()
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("value", [{"a": {1, 2}}, [object()], ["\ud800"]], ids=repr)
def test_what_is_no_json_leaves_the_old_file(tmp_path: Path, value: Any) -> None:
    file = tmp_path / "a.json"
    write_json(file, "old")
    with pytest.raises((TypeError, UnicodeEncodeError)):
        write_json(file, value)
    assert read_json(file) == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_name_that_is_a_folder_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError), atomic_write(tmp_path / "a") as opened:
        opened.write(b"new")
    assert list(tmp_path.rglob("*")) == [tmp_path / "a"]


def test_numbers_survive_exactly(tmp_path: Path) -> None:
    numbers = [0.1, 1e-308, math.pi, 2**60 + 1, -0.0]
    write_json(tmp_path / "a.json", numbers)
    again = read_json(tmp_path / "a.json")
    assert list(map(repr, again)) == list(map(repr, numbers))


# Help with names


def test_the_nearest_name() -> None:
    assert nearest("vall_seen", ["train", "val_seen"]) == " Did you mean 'val_seen'?"
    assert nearest("zzz", ["train", "val_seen"]) == " Known: train, val_seen."
