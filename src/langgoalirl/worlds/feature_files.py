"""Image features as others distribute them, read one panorama at a time and never trusted.

A TSV file has no header and six fields, the last one base64 of 36 rows of float32. An HDF5 file has
one dataset of 36 rows for each key. A key is `SCAN_VIEWPOINT`.
"""

from __future__ import annotations

import binascii
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import BinaryIO

import h5py
import numpy as np
from numpy.typing import NDArray

from langgoalirl.errors import UserError
from langgoalirl.worlds.geometry import VIEWS

FIELDS = ("scanId", "viewpointId", "image_w", "image_h", "vfov", "features")
VIEW_BYTES = 4  # of one feature of one view: float32
WIDTH_LIMIT = 65_536  # thirty times as wide as any features in use; what is wider is no panorama
LINE_LIMIT = VIEWS * WIDTH_LIMIT * VIEW_BYTES * 4 // 3 + 4096  # as base64, and room for the rest
NAME_LIMIT = 64  # characters of a scan's or a viewpoint's name
ROW_LIMIT = 1_000_000  # panoramas: a hundred times Matterport3D
HALF_LIMIT = 65_520.0  # from here on, rounding to half precision gives infinity

Panoramas = Generator[tuple[str, NDArray], None, None]


def refuse_unfit(values: NDArray, where: str) -> None:
    """Raise unless every value is finite and stays so in half precision."""
    with np.errstate(invalid="ignore"):  # signalling NaNs
        largest = float(np.abs(values).max())
    if not largest < HALF_LIMIT:
        what = (
            f"a value of size {largest:g} is too large for half precision (65504 at most)"
            if np.isfinite(largest)
            else "holds NaN or infinite values"
        )
        raise UserError(f"{where}: {what}; extract or fetch the features again.")


@contextmanager
def opened(file: Path) -> Iterator[BinaryIO]:
    """A file to read from, and one sentence when it cannot be opened or read to its end."""
    try:
        with open(file, "rb", buffering=1 << 20) as stream:
            yield stream
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror}).") from None


def read_tsv(file: Path, width: int | None) -> Panoramas:
    """Each row's key and float32 values [36, width]; without `width`, the first row decides it."""
    lines: dict[str, int] = {}
    with opened(file) as stream:
        # A bounded readline: in a damaged file one line may be as long as the file.
        for number, line in enumerate(iter(lambda: stream.readline(LINE_LIMIT), b""), start=1):
            where = f"{file}: line {number}"
            if len(line) == LINE_LIMIT:
                raise UserError(
                    f"{where}: longer than {LINE_LIMIT - 1} bytes, so not a row of features "
                    f"(at most {WIDTH_LIMIT} wide); fetch the file again."
                )
            row = line.rstrip(b"\r\n")
            if not row:
                continue
            key, data = _parse_row(row, where)
            if width is None:
                width = _first_width(data, line.endswith(b"\n"), where)
            if len(data) != VIEWS * width * VIEW_BYTES:
                raise UserError(
                    f"{where}, field 'features': {len(data)} bytes where {VIEWS} x {width} float32 "
                    f"are {VIEWS * width * VIEW_BYTES}; give the file's width, or fetch it again."
                )
            if key in lines:
                raise UserError(
                    f"{where}, fields 'scanId' and 'viewpointId': '{key}' is already in line "
                    f"{lines[key]}; remove one of the two."
                )
            lines[key] = number
            values = np.frombuffer(data, dtype="<f4").reshape(VIEWS, width)
            refuse_unfit(values, f"{where}, field 'features'")
            yield key, values
    if not lines:
        raise UserError(f"{file}: is empty, rows of features are expected; fetch it again.")


def _parse_row(row: bytes, where: str) -> tuple[str, bytes]:
    """The key and the decoded features of one row."""
    parts = row.split(b"\t", len(FIELDS))
    if len(parts) != len(FIELDS):
        what = (
            f"field '{FIELDS[len(parts)]}' is missing"
            if len(parts) < len(FIELDS)
            else f"goes on after field '{FIELDS[-1]}'"
        )
        raise UserError(
            f"{where}: {what} ({len(FIELDS)} fields separated by tabs are expected); the file may "
            "be cut short: fetch it again."
        )
    texts = [
        _text(raw, f"{where}, field '{f}'") for f, raw in zip(FIELDS, parts[:-1], strict=False)
    ]
    for field, name in zip(FIELDS, texts[:2], strict=False):
        if not _is_name(name):
            raise UserError(
                f"{where}, field '{field}': a name of 1 to {NAME_LIMIT} printable characters is "
                "expected; fetch the file again."
            )
    try:
        # Strict: the default skips over whatever is not base64.
        data = binascii.a2b_base64(parts[-1], strict_mode=True)
    except binascii.Error as error:
        raise UserError(
            f"{where}, field 'features': not base64 ({error}); the file may be cut short: "
            "fetch it again."
        ) from None
    return f"{texts[0]}_{texts[1]}", data


def _text(raw: bytes, where: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{where}: not UTF-8 text; convert the file or fetch it again.") from None


def _is_name(text: str) -> bool:
    return 1 <= len(text) <= NAME_LIMIT and text.isprintable()


def _first_width(data: bytes, ended: bool, where: str) -> int:
    """The width that the first row has, if it can be trusted to be whole."""
    width, rest = divmod(len(data), VIEWS * VIEW_BYTES)
    if rest or not width:
        raise UserError(
            f"{where}, field 'features': {len(data)} bytes are not {VIEWS} rows of float32; "
            "fetch the file again."
        )
    if not ended:
        # Cut at the right place, a row looks like a whole one of narrower features.
        raise UserError(
            f"{where}, field 'features': the file ends in its first row, so its width is unknown; "
            "give the width, or fetch the file again if it was cut short."
        )
    return width


def read_hdf5(file: Path, width: int | None) -> Panoramas:
    """Each dataset's key and values, cut to `width`; without it, all must be as wide as the first.

    Whatever is not a dataset of this very file, named SCAN_VIEWPOINT, is passed over: groups, soft
    and external links.
    """
    exact = width is None
    empty = True
    with opened(file), _hdf5_errors(file, "not an HDF5 file, or a damaged one"):
        archive = h5py.File(file, "r")
    with archive:
        with _hdf5_errors(file, "damaged"):
            if len(archive) > ROW_LIMIT:
                raise UserError(f"{file}: more than {ROW_LIMIT} keys; split the file.")
            names = [name for name in archive if _is_key(name)]
        for name in names:
            where = f"{file}: dataset '{name}'"
            with _hdf5_errors(where, "damaged"):
                if not isinstance(archive.get(name, getlink=True), h5py.HardLink):
                    continue
                dataset = archive[name]
                if not isinstance(dataset, h5py.Dataset):
                    continue
                _refuse_dataset(dataset, where)
                stored = dataset.shape[1]
                width = stored if width is None else width
                if stored < width or (exact and stored > width):
                    raise UserError(
                        f"{where}: {stored} columns where {width} are expected; give the width "
                        "that all have in common, or extract the features again."
                    )
                values = dataset[:, :width]
            refuse_unfit(values, where)
            empty = False
            yield name, values
    if empty:
        raise UserError(
            f"{file}: no dataset named SCAN_VIEWPOINT at the top level; features of Room-to-Room "
            "have one for each viewpoint."
        )


def _is_key(name: str) -> bool:
    scan, _, viewpoint = name.partition("_")
    return _is_name(scan) and _is_name(viewpoint)


@contextmanager
def _hdf5_errors(where: Path | str, what: str) -> Iterator[None]:
    """The library reports damage by almost any exception; the user gets one sentence."""
    try:
        yield
    except (OSError, RuntimeError, LookupError, ValueError, TypeError, MemoryError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{where}: {what} ({reason}); fetch the file again.") from None


def _refuse_dataset(dataset: h5py.Dataset, where: str) -> None:
    """Raise unless these are 36 rows of plain floats, in this file, of a sensible size."""
    if dataset.external is not None or dataset.is_virtual:
        raise UserError(f"{where}: keeps its values in other files, which are not followed.")
    if dataset.dtype.kind != "f":
        raise UserError(f"{where}: of type {dataset.dtype}, floating point is expected.")
    shape = dataset.shape
    if shape is None or len(shape) != 2 or shape[0] != VIEWS or not shape[1]:
        raise UserError(f"{where}: of shape {shape}, {VIEWS} rows of features are expected.")
    if max(prod(shape), prod(dataset.chunks or ())) > VIEWS * WIDTH_LIMIT:
        raise UserError(f"{where}: larger than {VIEWS} x {WIDTH_LIMIT} values, so no panorama.")
