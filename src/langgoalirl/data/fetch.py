"""Get Room-to-Room from its upstream places, or from a folder that holds the files already.

Nothing appears under its final name before it was verified, and what was verified is never
replaced by something worse. A download that breaks off is kept as NAME.part and carried on.
"""

from __future__ import annotations

import errno
import http
import http.client
import os
import re
import shutil
import socket
import stat
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from langgoalirl.data.sources import (
    GROUPS,
    SOURCES,
    STANDARD,
    FileSource,
    FolderSource,
    Source,
    stand_in,
)
from langgoalirl.errors import UserError, nearest

CHUNK = 2**18
PAUSES = (1.0, 4.0, 15.0)
"""Seconds before each new try after a download that got no further."""

PASSING = {408, 425, 429}
"""Refusals that mean 'later', beside the 5xx: the others mean 'not here'."""

Report = Callable[[str], None]
Progress = Callable[[str, int, int | None], None]  # name, bytes so far, bytes in all if known


class _Failed(Exception):
    """One way of getting a source came to nothing; the message says why."""


class _WrongBytes(_Failed):
    """What came is not what was asked for."""


def fetch(
    directory: Path,
    what: Collection[str] = STANDARD,
    *,
    offline: Path | None = None,
    sources: Sequence[Source] = SOURCES,
    report: Report = lambda line: None,
    progress: Progress = lambda name, done, total: None,
    timeout: float = 30.0,
    pauses: Sequence[float] = PAUSES,
) -> None:
    """Fill `directory` with the groups in `what`; `offline` names a folder to copy them from.

    With `offline` no address is asked. What cannot be had is told at the end, in one error, when
    everything else has been fetched.
    """
    for group in what:
        if group not in GROUPS:
            raise UserError(f"'{group}' is nothing to fetch.{nearest(group, GROUPS)}")
    if offline is not None and not offline.is_dir():
        raise UserError(f"{offline}: no such folder to copy from.")
    network = _Network(timeout, tuple(pauses), report, progress)
    failures: dict[str, list[str]] = {}
    try:
        _make_writable(directory)
        at_hand = _files_by_name(offline) if offline is not None else {}
        for source in sources:
            if source.group not in what:
                continue
            _refuse_wrong_kind(source, directory / source.path)
            if _is_good(source, directory / source.path):
                report(f"{source.label}: already there")
                continue
            if offline is None:
                reasons = _download(source, directory, network)
            else:
                reasons = _copy(source, directory, offline, at_hand)
            report(f"{source.label}: {'could not be had' if reasons else 'fetched'}")
            if reasons:
                failures[source.label] = reasons
    except OSError as error:
        place = error.filename or directory
        reason = error.strerror or error
        raise UserError(f"{place}: {reason}; choose a folder that can be written.") from None
    if failures:
        raise UserError(_what_is_missing(directory, failures))


def _make_writable(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory):
        pass


def _refuse_wrong_kind(source: Source, target: Path) -> None:
    """A folder where a file belongs, or the other way round, is the user's own: ask for it."""
    belongs, other = ("folder", "file") if isinstance(source, FolderSource) else ("file", "folder")
    if target.exists() and target.is_dir() != (belongs == "folder"):
        raise UserError(f"{target}: is a {other} where a {belongs} belongs; move it away.")


def _what_is_missing(directory: Path, failures: dict[str, list[str]]) -> str:
    lines = ["Not everything could be had:"]
    for label, reasons in failures.items():
        lines += [f"  {label}", *(f"    {reason}" for reason in reasons)]
    lines.append(
        "Get these files in another way, put them anywhere under one folder, each under its name "
        f"above, and run 'langgoalirl data fetch r2r {directory} --from FOLDER'."
    )
    return "\n".join(lines)


def _is_good(source: Source, target: Path) -> bool:
    if isinstance(source, FileSource):
        return target.is_file() and not source.fault(target)
    files = source.members(target)
    return len(files) >= source.files and not any(map(source.fault, files))


# From the network


def _download(source: Source, directory: Path, network: _Network) -> list[str]:
    """Try one address after the other; the reasons if none served."""
    target = directory / source.path
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(source, FileSource):
        part = target.with_name(f"{target.name}.part")
        limit = max(copy.size for copy in source.copies)
    else:
        part = target.with_name(f"{target.name}.zip.part")
        limit = source.archive_limit
    reasons = []
    for address in source.mirrors:
        try:
            _from_mirror(source, address, part, target, limit, network)
            return []
        except _Failed as failed:
            reasons.append(f"{address}: {failed}")
    return reasons


def _from_mirror(
    source: Source, address: str, part: Path, target: Path, limit: int, network: _Network
) -> None:
    resumed = part.exists()
    try:
        network.download(address, part, limit)
        if isinstance(source, FileSource):
            _install_file(source, part, target)
        else:
            _install_archive(source, part, target)
    except _WrongBytes:
        part.unlink(missing_ok=True)
        if not resumed:
            raise
        # The beginning may have been another file's: give this address its own chance.
        _from_mirror(source, address, part, target, limit, network)


@dataclass(frozen=True)
class _Network:
    """Patient downloads over HTTP."""

    timeout: float
    pauses: tuple[float, ...]
    report: Report
    progress: Progress

    def download(self, address: str, part: Path, limit: int) -> None:
        """Fill `part`, from where it ends; a connection that gets further may drop again."""
        furthest, failures = _size(part), 0
        while True:
            try:
                return self._receive(address, part, limit)
            except urllib.error.HTTPError as error:
                error.close()
                reason = f"{error.code} {error.reason}"
                if error.code < 500 and error.code not in PASSING:
                    raise _Failed(reason) from None
            except (OSError, http.client.HTTPException) as error:
                reason = str(getattr(error, "reason", error)) or type(error).__name__
                if not _size(part) and isinstance(getattr(error, "reason", None), socket.gaierror):
                    raise _Failed(reason) from None  # no such server, or no network at all
            failures = 1 if _size(part) > furthest else failures + 1
            furthest = max(furthest, _size(part))
            if failures > len(self.pauses):
                raise _Failed(reason)
            pause = self.pauses[failures - 1]
            self.report(f"{address}: {reason}; again in {pause:g} s")
            time.sleep(pause)

    def _receive(self, address: str, part: Path, limit: int) -> None:
        have = _size(part)
        headers = {"User-Agent": "langgoalirl"}
        if have:
            headers["Range"] = f"bytes={have}-"
        try:
            response = urllib.request.urlopen(
                urllib.request.Request(address, headers=headers), timeout=self.timeout
            )
        except urllib.error.HTTPError as error:
            if not (have and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE):
                raise
            error.close()
            if error.headers.get("Content-Range") == f"bytes */{have}":
                return  # nothing was left to send
            part.unlink()
            raise ConnectionError("the server has less than was received before") from None
        with response:
            if response.headers.get_content_type() == "text/html":
                raise _Failed("a web page instead of the file")
            done, total = _extent(response, have, part)
            if total is not None and total > limit:
                raise _Failed(f"{total:,} bytes, more than {limit:,}")
            with open(part, "ab" if done else "wb", buffering=0) as file:
                while chunk := response.read1(CHUNK):
                    done += len(chunk)
                    if done > limit:
                        raise _WrongBytes(f"more than {limit:,} bytes")
                    _append(file, chunk)
                    self.progress(part.name.removesuffix(".part"), done, total)
        if total is not None and done < total:
            raise ConnectionError(f"the connection dropped at {done:,} of {total:,} bytes")


def _extent(response: http.client.HTTPResponse, have: int, part: Path) -> tuple[int, int | None]:
    """Where in the file the answer begins, and how long the file is if the server says so."""
    if response.status != http.HTTPStatus.PARTIAL_CONTENT:
        length = response.headers.get("Content-Length", "")
        return 0, int(length) if length.isdecimal() else None
    span = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    if span is None or int(span[1]) != have:
        part.unlink(missing_ok=True)
        raise ConnectionError("the server answered with another range than it was asked for")
    return have, None if span[2] == "*" else int(span[2])


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _append(file: BinaryIO, chunk: bytes) -> None:
    """A full disk must not be taken for a dropped connection."""
    try:
        if file.write(chunk) < len(chunk):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        raise UserError(f"{file.name}: cannot be written ({error.strerror}).") from None


# Under the final name


def _install_file(source: FileSource, part: Path, target: Path) -> None:
    if fault := source.fault(part):
        raise _WrongBytes(fault)
    part.replace(target)


def _install_archive(source: FolderSource, part: Path, target: Path) -> None:
    if fault := stand_in(part):
        raise _WrongBytes(fault)
    with _stage(target) as stage:
        try:
            with zipfile.ZipFile(part) as archive:
                for name, member in _members(archive, source).items():
                    with archive.open(member) as packed, open(stage / name, "xb") as unpacked:
                        shutil.copyfileobj(packed, unpacked, CHUNK)
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
            raise _WrongBytes(f"not a whole zip archive ({error})") from None
        except OSError as error:
            if error.errno != errno.EINVAL:  # a member that claims to begin before the archive does
                raise
            raise _WrongBytes("not a whole zip archive (a member begins nowhere)") from None
        for file in stage.iterdir():
            if fault := source.fault(file):
                raise _WrongBytes(f"{file.name} in the archive is {fault}")
        _move(stage, target)
    part.unlink()


def _members(archive: zipfile.ZipFile, source: FolderSource) -> dict[str, zipfile.ZipInfo]:
    """The wanted members by their bare names, or a refusal of the whole archive."""
    inside = PurePosixPath(source.inside).parts
    members: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        path = PurePosixPath(member.filename)
        if path.is_absolute() or ".." in path.parts:
            raise _WrongBytes(f"the archive's '{member.filename}' leads out of it")
        folder = path.parent.parts
        if folder[len(folder) - len(inside) :] != inside or not source.names.fullmatch(path.name):
            continue
        if stat.S_ISLNK(member.external_attr >> 16) or member.is_dir():
            raise _WrongBytes(f"the archive's '{member.filename}' is not a file")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _WrongBytes(f"the archive's '{member.filename}' is packed in an unusual way")
        if path.name in members:
            raise _WrongBytes(f"the archive has two '{path.name}'")
        members[path.name] = member
    if len(members) != source.files:
        raise _WrongBytes(f"the archive has {len(members):,} of {source.files:,} files")
    # No member gives more than it declares: reading stops there.
    if sum(member.file_size for member in members.values()) > source.unpacked_limit:
        raise _WrongBytes(f"the archive unpacks to more than {source.unpacked_limit:,} bytes")
    return members


@contextmanager
def _stage(target: Path) -> Iterator[Path]:
    """A folder beside the target, from which verified files move in."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as place:
        yield Path(place)


def _move(stage: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for file in stage.iterdir():
        file.replace(target / file.name)


# From a folder


def _files_by_name(folder: Path) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in names:
            if (file := Path(place, name)).is_file():
                found.setdefault(name, []).append(file)
    return found


def _copy(
    source: Source, directory: Path, offline: Path, at_hand: dict[str, list[Path]]
) -> list[str]:
    """Copy what is good; the reasons if something is still missing."""
    target = directory / source.path
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(source, FolderSource):
        return _copy_folder(source, target, offline, at_hand)
    faults = []
    for file in at_hand.get(target.name, []):
        if not (fault := source.fault(file)):
            with _stage(target) as stage:
                _install_file(source, Path(shutil.copyfile(file, stage / file.name)), target)
            return []
        faults.append(f"{file}: {fault}")
    return faults or [f"no file of this name under {offline}"]


def _copy_folder(
    source: FolderSource, target: Path, offline: Path, at_hand: dict[str, list[Path]]
) -> list[str]:
    """Fill in what is missing or broken, one file at a time."""
    good = {file.name for file in source.members(target) if not source.fault(file)}
    faults = []
    with _stage(target) as stage:
        for name in sorted(set(filter(source.names.fullmatch, at_hand)) - good):
            for file in at_hand[name]:
                if not (fault := source.fault(file)):
                    shutil.copyfile(file, stage / name)
                    good.add(name)
                    break
                faults.append(f"{file}: {fault}")
        _move(stage, target)
    if len(good) >= source.files:
        return []
    return [f"{len(good):,} of {source.files:,} files were under {offline}", *faults[:3]]
