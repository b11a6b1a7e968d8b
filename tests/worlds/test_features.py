"""Feature files and the cache: exact values, damage of every kind, and files that mean harm."""

from __future__ import annotations

import base64
import itertools
import json
import os
import tempfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from langgoalirl.errors import UserError
from langgoalirl.worlds import feature_files
from langgoalirl.worlds.feature_files import FIELDS, LINE_LIMIT, read_hdf5, read_tsv
from langgoalirl.worlds.features import FeatureTable, open_cache, prepare, write_cache
from langgoalirl.worlds.navgraph import House, NavGraph

WIDTH = 3
Rows = list[tuple[str, str, NDArray]]

# The largest float32 that rounds to a finite float16.
FITS = float(np.nextafter(np.float32(65520), np.float32(0)))
names = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=5)
arrays = hnp.arrays(np.float32, (36, WIDTH), elements=st.floats(-FITS, FITS, width=32))
panoramas = st.dictionaries(st.tuples(names, names), arrays, min_size=1, max_size=3)


def line(scan: str, viewpoint: str, values: NDArray, end: str = "\r\n") -> bytes:
    """One row as Python's csv writers end it."""
    text = base64.b64encode(values.astype("<f4").tobytes()).decode()
    return ("\t".join([scan, viewpoint, "640", "480", "60", text]) + end).encode()


def write_tsv(file: Path, rows: Rows) -> Path:
    file.write_bytes(b"".join(line(*row) for row in rows))
    return file


def write_hdf5(file: Path, rows: Rows) -> Path:
    with h5py.File(file, "w") as archive:
        for scan, viewpoint, values in rows:
            archive.create_dataset(f"{scan}_{viewpoint}", data=values, compression="gzip")
    return file


def ramp(start: float, width: int = WIDTH) -> NDArray:
    return (start + np.arange(36 * width, dtype=np.float32) / 7).reshape(36, width)


def two() -> Rows:
    return [("a", "v", ramp(0)), ("b", "w", ramp(100))]


def check_table(table: FeatureTable, expected: dict[str, NDArray]) -> None:
    assert table.keys == list(expected)
    assert table.values.shape == (len(expected) + 1, 36, WIDTH + 4)
    assert table.values.dtype == torch.float16
    values = table.values.numpy()
    for row, array in zip(values[:-1, :, :WIDTH], expected.values(), strict=True):
        assert row.tobytes() == array.astype(np.float16).tobytes()
    assert not values[..., WIDTH:].any()
    assert not values[-1].any()


def fails(source: Path, *parts: str, width: int | None = WIDTH) -> None:
    """The conversion raises one sentence with all of `parts`, and leaves nothing behind."""
    folder = source.parent / "out"
    folder.mkdir(exist_ok=True)
    with pytest.raises(UserError) as caught:
        prepare(source, folder / "cache", width)
    message = str(caught.value)
    assert str(source) in message
    assert "\n" not in message
    for part in parts:
        assert part in message
    assert list(folder.iterdir()) == []


# Conversion.


@given(panoramas)
def test_tsv_survives_exactly(content: dict[tuple[str, str], NDArray]) -> None:
    rows = {f"{s}_{v}": (s, v, values) for (s, v), values in content.items()}
    with tempfile.TemporaryDirectory() as folder:
        source = write_tsv(Path(folder, "f.tsv"), list(rows.values()))
        table = prepare(source, Path(folder, "cache"))
        check_table(table, {key: row[2] for key, row in rows.items()})


def test_hdf5_and_tsv_give_the_same_digest_and_bytes(tmp_path: Path) -> None:
    wide = [(s, v, np.hstack([values, ramp(9, 2)])) for s, v, values in two()]
    from_tsv = prepare(write_tsv(tmp_path / "f.tsv", two()), tmp_path / "t")
    from_hdf5 = prepare(write_hdf5(tmp_path / "f.hdf5", wide), tmp_path / "h", WIDTH)
    again = prepare(tmp_path / "f.tsv", tmp_path / "t2")
    check_table(from_hdf5, {"a_v": ramp(0), "b_w": ramp(100)})
    assert from_tsv.digest == from_hdf5.digest == again.digest
    for name in ("features.f16", "index.json"):
        assert (tmp_path / "t" / name).read_bytes() == (tmp_path / "t2" / name).read_bytes()
    assert sorted(file.name for file in (tmp_path / "t").iterdir()) == [
        "features.f16",
        "index.json",
    ]


def test_digest_tells_keys_and_values_apart(tmp_path: Path) -> None:
    variants = [[("a", ramp(0))], [("b", ramp(0))], [("a", ramp(1))], [], [("a", ramp(0, 4))]]
    digests = {
        write_cache(tmp_path / str(i), values[0][1].shape[1] if values else 3, values, "x").digest
        for i, values in enumerate(variants)
    }
    assert len(digests) == len(variants)


@pytest.mark.parametrize("kind", ["<f2", "<f8", ">f4"])
def test_hdf5_of_any_float(tmp_path: Path, kind: str) -> None:
    values = ramp(-3).astype(kind)
    table = prepare(write_hdf5(tmp_path / "f.h5", [("a", "v", values)]), tmp_path / "cache")
    check_table(table, {"a_v": values})


def test_lines_may_end_in_any_way(tmp_path: Path) -> None:
    source = tmp_path / "f.tsv"
    source.write_bytes(
        line("a", "v", ramp(0), "\n") + b"\r\n" + line("b", "w", ramp(100), "")  # a blank one too
    )
    check_table(prepare(source, tmp_path / "cache"), {"a_v": ramp(0), "b_w": ramp(100)})


def test_progress_is_told_after_each_row(tmp_path: Path) -> None:
    told: list[int] = []
    prepare(write_tsv(tmp_path / "f.tsv", two()), tmp_path / "cache", on_row=told.append)
    assert told == [1, 2]


# The cache.


def test_an_unchanged_cache_is_kept_and_a_damaged_one_made_anew(tmp_path: Path) -> None:
    source, cache = write_tsv(tmp_path / "f.tsv", two()), tmp_path / "cache"
    values = cache / "features.f16"
    prepare(source, cache)
    first = values.stat().st_ino
    prepare(source, cache, WIDTH)
    assert values.stat().st_ino == first
    whole = values.read_bytes()
    values.write_bytes(whole[:-1])
    prepare(source, cache)
    assert values.read_bytes() == whole
    write_tsv(source, [*two(), ("c", "x", ramp(5))])
    assert prepare(source, cache).keys == ["a_v", "b_w", "c_x"]
    wide = write_hdf5(tmp_path / "f.h5", two())
    assert prepare(wide, cache, 2).values.shape == (3, 36, 2 + 4)
    assert prepare(wide, cache).values.shape == (3, 36, WIDTH + 4)


def test_other_features_of_the_same_size_are_not_taken_for_the_old(tmp_path: Path) -> None:
    source = write_tsv(tmp_path / "f.tsv", two())
    prepare(source, tmp_path / "cache")
    size, time = source.stat().st_size, source.stat().st_mtime_ns
    write_tsv(source, [("a", "v", ramp(5)), ("b", "w", ramp(6))])
    os.utime(source, ns=(time, time + 1))
    assert source.stat().st_size == size
    check_table(prepare(source, tmp_path / "cache"), {"a_v": ramp(5), "b_w": ramp(6)})


def test_the_old_table_outlives_its_replacement(tmp_path: Path) -> None:
    old = write_cache(tmp_path / "cache", WIDTH, [("a_v", ramp(0))], "one")
    new = write_cache(tmp_path / "cache", WIDTH, [("b_w", ramp(1))], "two")
    check_table(old, {"a_v": ramp(0)})
    check_table(new, {"b_w": ramp(1)})


def test_of_two_that_write_at_once_the_last_one_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    replace = os.replace

    def just_before(source: Path, target: Path) -> None:
        """Somebody else's table appears when ours is about to."""
        if Path(target) == cache:
            monkeypatch.undo()
            write_cache(cache, WIDTH, [("b_w", ramp(1))], "other")
        replace(source, target)

    for _ in range(2):  # where nothing was, and where an older table is
        monkeypatch.setattr("os.replace", just_before)
        check_table(write_cache(cache, WIDTH, [("a_v", ramp(0))], "ours"), {"a_v": ramp(0)})
        assert list(tmp_path.iterdir()) == [cache]


def test_an_error_keeps_the_old_cache(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    prepare(write_tsv(tmp_path / "f.tsv", two()), cache)
    bad = tmp_path / "bad.tsv"
    bad.write_bytes(line("c", "x", ramp(5)) + b"c\ty\n")
    with pytest.raises(UserError, match="line 2"):
        prepare(bad, cache)
    check_table(open_cache(cache), {"a_v": ramp(0), "b_w": ramp(100)})
    assert {file.name for file in tmp_path.iterdir()} == {"f.tsv", "bad.tsv", "cache"}


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(done: int) -> None:
        raise KeyboardInterrupt

    source = write_tsv(tmp_path / "f.tsv", two())
    with pytest.raises(KeyboardInterrupt):
        prepare(source, tmp_path / "cache", on_row=interrupt)
    assert list(tmp_path.iterdir()) == [source]


def test_a_folder_with_other_files_is_not_touched(tmp_path: Path) -> None:
    source = write_tsv(tmp_path / "f.tsv", two())
    with pytest.raises(UserError, match="holds other files"):
        prepare(source, tmp_path)
    with pytest.raises(UserError, match="Not a directory"):
        prepare(source, source)
    assert list(tmp_path.iterdir()) == [source]


def test_mapped_values_never_reach_the_file(tmp_path: Path) -> None:
    table = write_cache(tmp_path / "cache", WIDTH, [("a_v", ramp(0))], "x")
    table.values.zero_()
    check_table(open_cache(tmp_path / "cache"), {"a_v": ramp(0)})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", 0),
        ("width", 0),
        ("width", True),
        ("width", 4),
        ("keys", "a_v"),
        ("keys", [1]),
        ("keys", []),
        ("digest", None),
        ("source", None),
    ],
)
def test_a_damaged_index_is_named(tmp_path: Path, field: str, value: object) -> None:
    write_cache(tmp_path, WIDTH, [("a_v", ramp(0))], "x")
    index = tmp_path / "index.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {field: value}))
    with pytest.raises(UserError, match="prepare the features again"):
        open_cache(tmp_path)


def test_a_cut_or_missing_cache_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no feature cache"):
        open_cache(tmp_path)
    write_cache(tmp_path, WIDTH, [("a_v", ramp(0))], "x")
    (tmp_path / "features.f16").unlink()
    with pytest.raises(UserError, match="0 bytes where 1008 are expected"):  # 2 · 36 · 7 · 2
        open_cache(tmp_path)
    (tmp_path / "index.json").write_text("[]")
    with pytest.raises(UserError, match="field 'version'"):
        open_cache(tmp_path)


def test_a_cache_that_cannot_be_mapped_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise RuntimeError("Permission denied (13)\nmore")

    write_cache(tmp_path, WIDTH, [("a_v", ramp(0))], "x")
    monkeypatch.setattr("torch.from_file", refuse)
    with pytest.raises(UserError, match=r"f16: cannot be mapped .*Permission denied \(13\)\)\.$"):
        open_cache(tmp_path)


def test_panoramas_of_the_wrong_shape_or_twice(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(ValueError, match="shape"):
        write_cache(cache, WIDTH, [("a_v", ramp(0, 4))], "x")
    with pytest.raises(UserError, match="'a_v' occurs twice"):
        write_cache(cache, WIDTH, [("a_v", ramp(0)), ("a_v", ramp(1))], "x")
    with pytest.raises(UserError, match="half precision"):
        write_cache(cache, WIDTH, [("a_v", ramp(0) + 65520)], "x")
    assert list(tmp_path.iterdir()) == []


# The table in a world.


def house(name: str, viewpoints: list[str]) -> House:
    n = len(viewpoints)
    positions = np.arange(n)[:, None] * np.array([[0.0, 2.0, 0.0]])  # a corridor along +y
    edges = np.abs(np.arange(n)[:, None] - np.arange(n)) == 1
    return House(name, viewpoints, positions, edges, edges, np.full(n, 1.5))


def test_a_world_gathers_the_rows_it_asks_for(tmp_path: Path) -> None:
    content = [("h_x", ramp(1)), ("other_x", ramp(2)), ("h_y", ramp(3))]
    table = write_cache(tmp_path, WIDTH, content, "x")
    houses = [house("h", ["y", "x"])]
    rows = table.rows(houses)
    assert rows.tolist() == [2, 0]
    world = NavGraph(houses, table.values, rows)
    seen = world.observe(torch.tensor([0 * 36 + 12]))  # at y, facing +y, where x is
    assert seen.views[0, :, :WIDTH].numpy().tobytes() == ramp(3).astype(np.float16).tobytes()
    assert seen.actions[0, 1, :WIDTH].tolist() == ramp(3)[12].astype(np.float16).tolist()
    assert seen.actions[0, 0].tolist() == [0.0] * (WIDTH + 4)


def test_missing_viewpoints_are_counted(tmp_path: Path) -> None:
    table = write_cache(tmp_path, WIDTH, [("h_x", ramp(1))], "x")
    houses = [house("h", ["x", "y"]), house("i", ["x"])]
    with pytest.raises(UserError, match=r"House 'h': viewpoint 'y' .* 2 of 3 viewpoints"):
        table.rows(houses)


# TSV files that are damaged.


@pytest.mark.parametrize(
    ("damaged", "part"),
    [
        (b"a\tv\t640\n", "line 2: field 'image_h' is missing"),
        (b"\xff\tv\t640\t480\t60\tAAAA\n", "line 2, field 'scanId': not UTF-8"),
        (b"a\tv\t640\t480\t\xff\tAAAA\n", "line 2, field 'vfov': not UTF-8"),
        (b"\tv\t640\t480\t60\tAAAA\n", "line 2, field 'scanId': a name of 1 to 64"),
        (b"a\t" + b"v" * 65 + b"\t640\t480\t60\tAAAA\n", "line 2, field 'viewpointId': a name"),
        (b"a\tv\t640\t480\t60\tAA!A\n", "line 2, field 'features': not base64"),
        (b"a\tv\t640\t480\t60\tAAAA\n", "line 2, field 'features': 3 bytes where 36 x 3"),
        (line("a", "w", ramp(0)), "line 2, fields 'scanId' and 'viewpointId': 'a_w' is already"),
        (line("a", "v", ramp(0), "\tx\n"), "line 2: goes on after field 'features'"),
        (line("a", "v", ramp(0, 4)), "line 2, field 'features': 576 bytes where 36 x 3"),
        (line("a", "v", ramp(0) * np.nan), "line 2, field 'features': holds NaN"),
        (line("a", "v", ramp(0) + np.inf), "line 2, field 'features': holds NaN or infinite"),
        (
            line("a", "v", ramp(-1) * 65520),
            "line 2, field 'features': a value of size 936000 is too",
        ),
        (b"A" * (LINE_LIMIT + 5), "line 2: longer than"),
    ],
)
def test_damaged_rows_are_named(tmp_path: Path, damaged: bytes, part: str) -> None:
    source = tmp_path / "f.tsv"
    source.write_bytes(line("a", "w", ramp(0)) + damaged)
    fails(source, part)
    fails(source, part, width=None)


def test_signalling_nan_is_refused_without_a_warning(tmp_path: Path) -> None:
    bits = np.full((36, WIDTH), 0x7F800001, dtype="<u4")
    fails(write_tsv(tmp_path / "f.tsv", [("a", "v", bits.view("<f4"))]), "holds NaN")


def test_other_files_and_widths(tmp_path: Path) -> None:
    fails(tmp_path / "none.tsv", "No such file")
    (tmp_path / "folder.tsv").mkdir()
    fails(tmp_path / "folder.tsv", "Is a directory")
    for name, content, part in [
        ("empty.tsv", b"", "is empty"),
        ("blank.tsv", b"\n\r\n", "is empty"),
        ("f.zip", b"PK", "unpack"),
        ("first.tsv", b"a\tv\t1\t1\t1\tAAAA\n", "3 bytes are not 36 rows"),
        ("cut.tsv", line("a", "v", ramp(0), ""), "its width is unknown"),
    ]:
        (tmp_path / name).write_bytes(content)
        fails(tmp_path / name, part, width=None)
    source = write_tsv(tmp_path / "f.tsv", two())
    fails(source, "432 bytes where 36 x 2 float32 are 288", width=2)
    with pytest.raises(UserError, match="0 wide"):
        prepare(source, tmp_path / "cache", 0)


def test_the_number_of_panoramas_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("langgoalirl.worlds.features.ROW_LIMIT", 1)
    monkeypatch.setattr(feature_files, "ROW_LIMIT", 1)
    fails(write_hdf5(tmp_path / "f.hdf5", two()), "more than 1 keys")
    with pytest.raises(UserError, match="more than 1 panoramas"):
        prepare(write_tsv(tmp_path / "f.tsv", two()), tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


WHOLE = b"".join(line(*row) for row in two())


def _stated(content: bytes) -> dict[str, NDArray]:
    """What a TSV file says, read in the obvious way."""
    lines = [text.rstrip("\r") for text in content.decode().split("\n")]
    rows = [dict(zip(FIELDS, text.split("\t"), strict=True)) for text in lines if text]
    return {
        f"{row['scanId']}_{row['viewpointId']}": np.frombuffer(
            base64.b64decode(row["features"], validate=True), "<f4"
        ).reshape(36, WIDTH)
        for row in rows
    }


def _refused_or_right(content: bytes, width: int | None) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "f.tsv").write_bytes(content)
        try:
            table = prepare(folder / "f.tsv", folder / "cache", width)
        except UserError:
            assert [file.name for file in folder.iterdir()] == ["f.tsv"]
        else:
            check_table(table, _stated(content))


@given(st.integers(0, len(WHOLE)), st.sampled_from([None, WIDTH]))
def test_a_cut_is_refused_or_harmless(end: int, width: int | None) -> None:
    _refused_or_right(WHOLE[:end], width)


# Bytes that mean something to the format, half of the time.
bytes_of_note = st.one_of(st.sampled_from(b"\t\r\n=_ A\x00\xff"), st.integers(0, 255))


@given(st.integers(0, len(WHOLE) - 1), bytes_of_note, st.sampled_from([None, WIDTH]))
def test_a_flipped_byte_is_refused_or_read_as_it_stands(
    place: int, byte: int, width: int | None
) -> None:
    content = bytearray(WHOLE)
    content[place] = byte
    _refused_or_right(bytes(content), width)


# HDF5 files.


@pytest.mark.parametrize("length", [0, 7, 8, 100, 1000, -1])
def test_a_file_that_is_no_hdf5_or_cut(tmp_path: Path, length: int) -> None:
    source = write_hdf5(tmp_path / "f.hdf5", two())
    source.write_bytes(source.read_bytes()[:length])
    fails(source, "not an HDF5 file, or a damaged one")


def test_a_damaged_panorama_is_named(tmp_path: Path) -> None:
    source = write_hdf5(tmp_path / "f.hdf5", two())
    with h5py.File(source) as archive:
        place = archive["b_w"].id.get_chunk_info(0).byte_offset
    content = bytearray(source.read_bytes())
    content[place : place + 8] = b"\xff" * 8
    source.write_bytes(content)
    fails(source, "dataset 'b_w': damaged")


@pytest.mark.parametrize(
    ("values", "part"),
    [
        (ramp(0, 2), "2 columns where 3 are expected"),
        (ramp(0)[:35], "of shape (35, 3)"),
        (ramp(0).ravel(), "of shape (108,)"),
        (np.float32(1), "of shape ()"),
        (np.zeros((36, 0), np.float32), "of shape (36, 0)"),
        (h5py.Empty("f4"), "of shape None"),
        (ramp(0).astype(np.int64), "of type int64"),
        (np.full((36, 3), "x", dtype=h5py.string_dtype()), "of type object"),
        (np.zeros((36, 3), [("x", "f4")]), "floating point is expected"),
        (ramp(0) * np.nan, "holds NaN"),
        (ramp(0) + 65520, "too large for half precision"),
    ],
)
def test_unfit_datasets_are_named(tmp_path: Path, values: object, part: str) -> None:
    source = write_hdf5(tmp_path / "f.h5", [("a", "v", ramp(0))])
    with h5py.File(source, "a") as archive:
        archive["b_w"] = values
    fails(source, "dataset 'b_w'", part)


def test_without_a_width_all_must_be_as_wide_as_the_first(tmp_path: Path) -> None:
    source = write_hdf5(tmp_path / "f.h5", [("a", "v", ramp(0)), ("b", "w", ramp(0, 4))])
    fails(source, "dataset 'b_w': 4 columns where 3 are expected", width=None)


def test_large_datasets_and_chunks_are_refused_unread(tmp_path: Path) -> None:
    for shape, chunks in itertools.product([(36, 10**9), (36, 3)], [None, (36, 10**6)]):
        source = tmp_path / "f.h5"
        with h5py.File(source, "w") as archive:
            archive.create_dataset(
                "a_v", shape, "f4", maxshape=chunks and (None, None), chunks=chunks
            )
        if shape == (36, 3) and chunks is None:
            assert prepare(source, tmp_path / "cache").keys == ["a_v"]
        else:
            fails(source, "larger than 36 x 65536", width=None)


def test_links_and_groups_are_passed_over(tmp_path: Path) -> None:
    secret = write_hdf5(tmp_path / "secret.h5", [("s", "s", ramp(7))])
    source = write_hdf5(tmp_path / "f.h5", [("a", "v", ramp(0))])
    with h5py.File(source, "a") as archive:
        archive["b_external"] = h5py.ExternalLink(str(secret), "s_s")
        archive["c_soft"] = h5py.SoftLink("/a_v")
        archive.create_group("d_group")["e_f"] = ramp(1)
        archive["plain"] = ramp(2)
    assert prepare(source, tmp_path / "cache").keys == ["a_v"]
    with h5py.File(source, "a") as archive:
        del archive["a_v"]
    fails(source, "no dataset named SCAN_VIEWPOINT")


def test_values_kept_in_other_files_are_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret.bin"
    secret.write_bytes(ramp(0).tobytes())
    source = tmp_path / "f.h5"
    with h5py.File(source, "w") as archive:
        archive.create_dataset("a_v", (36, 3), "f4", external=[(str(secret), 0, 432)])
    fails(source, "dataset 'a_v'", "keeps its values in other files")
    other = write_hdf5(tmp_path / "other.h5", [("s", "s", ramp(7))])
    with h5py.File(source, "w") as archive:
        layout = h5py.VirtualLayout((36, 3), "f4")
        layout[:] = h5py.VirtualSource(str(other), "s_s", (36, 3))
        archive.create_virtual_dataset("a_v", layout)
    fails(source, "dataset 'a_v'", "keeps its values in other files")


def test_readers_stream(tmp_path: Path) -> None:
    """The first panorama comes before the second, damaged one is met."""
    source = tmp_path / "f.tsv"
    source.write_bytes(line("a", "v", ramp(0)) + b"nonsense\n")
    rows = read_tsv(source, None)
    key, values = next(rows)
    assert key == "a_v"
    assert values.tobytes() == ramp(0).tobytes()
    with pytest.raises(UserError, match="line 2"):
        next(rows)
    archive = write_hdf5(tmp_path / "f.h5", two())
    assert [key for key, _ in read_hdf5(archive, None)] == ["a_v", "b_w"]
