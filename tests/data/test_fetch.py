"""Downloads from a server that misbehaves in every way that servers do."""

from __future__ import annotations

import hashlib
import io
import json
import re
import socket
import stat
import threading
import urllib.error
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from langgoalirl.data import fetch as module
from langgoalirl.data.fetch import fetch
from langgoalirl.data.sources import SOURCES, Copy, FileSource, FolderSource, Source
from langgoalirl.errors import UserError

DATA = bytes(range(256)) * 400  # 102,400 bytes
HTML = b"<!DOCTYPE html><html>Please log in</html>"
HALF = len(DATA) // 2


@dataclass
class Request:
    """What was asked, and how many bytes of data were given."""

    path: str
    range: str | None
    served: int = 0


class Handler(BaseHTTPRequestHandler):
    """Gives each request to the behaviour that is next in turn at its path."""

    server: Server

    def do_GET(self) -> None:
        turns = self.server.behaviours.get(self.path, [refuse(404)])
        behave = turns.pop(0) if len(turns) > 1 else turns[0]
        request = Request(self.path, self.headers.get("Range"))
        self.server.requests.append(request)
        behave(self, request)

    def start(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()

    def give(self, data: bytes, request: Request) -> None:
        request.served += len(data)  # first: the client may be done before we are
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


Behaviour = Callable[[Handler, Request], None]


class Server(ThreadingHTTPServer):
    """Paths with lists of behaviours; the last one of a list stays."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behaviours: dict[str, list[Behaviour]] = {}
        self.requests: list[Request] = []
        self.over = threading.Event()

    def at(self, path: str, *behaviours: Behaviour) -> str:
        self.behaviours[path] = list(behaviours)
        return f"http://127.0.0.1:{self.server_port}{path}"

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that hangs up is part of the tests

    @property
    def served(self) -> int:
        return sum(request.served for request in self.requests)


def serve(data: bytes, drop_after: int | None = None, ranges: bool = True) -> Behaviour:
    """A decent server; with `drop_after`, it hangs up after so many bytes."""

    def behave(handler: Handler, request: Request) -> None:
        begin = 0
        if ranges and request.range:
            begin = int(request.range.removeprefix("bytes=").removesuffix("-"))
            if begin >= len(data):
                headers = {"Content-Range": f"bytes */{len(data)}", "Content-Length": "0"}
                return handler.start(416, headers)
        rest = data[begin:]
        headers = {"Content-Length": str(len(rest))}
        if begin:
            headers["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        handler.start(206 if begin else 200, headers)
        handler.give(rest if drop_after is None else rest[:drop_after], request)
        if drop_after is not None:
            handler.wfile.flush()
            handler.connection.shutdown(socket.SHUT_RDWR)

    return behave


def refuse(status: int) -> Behaviour:
    return lambda handler, request: handler.start(status, {"Content-Length": "0"})


def redirect(path: str) -> Behaviour:
    return lambda handler, request: handler.start(302, {"Location": path, "Content-Length": "0"})


def in_chunks(data: bytes, drop_after: int) -> Behaviour:
    """No length and no ranges, as archives made on demand come; hangs up in the last chunk."""

    def behave(handler: Handler, request: Request) -> None:
        handler.start(200, {"Transfer-Encoding": "chunked"})
        given = data[:drop_after]
        handler.wfile.write(b"%x\r\n" % len(data))
        handler.give(given, request)
        if len(given) == len(data):
            handler.wfile.write(b"\r\n0\r\n\r\n")

    return behave


def page(content_type: str) -> Behaviour:
    def behave(handler: Handler, request: Request) -> None:
        handler.start(200, {"Content-Type": content_type, "Content-Length": str(len(HTML))})
        handler.give(HTML, request)

    return behave


def endless(handler: Handler, request: Request) -> None:
    handler.start(200, {})
    while True:
        handler.give(bytes(65536), request)


def hang(handler: Handler, request: Request) -> None:
    handler.server.over.wait(10)


def other_range(handler: Handler, request: Request) -> None:
    span = {"Content-Range": f"bytes 7-{len(DATA) - 1}/{len(DATA)}", "Content-Length": "5"}
    handler.start(206, span)
    handler.give(DATA[7:12], request)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


def copy_of(data: bytes) -> Copy:
    return Copy(len(data), hashlib.sha256(data).hexdigest())


def a_file(*mirrors: str, data: bytes = DATA, name: str = "R2R_tiny.json") -> FileSource:
    return FileSource("annotations", f"annotations/{name}", (copy_of(data),), mirrors)


@dataclass
class Place:
    """A data folder to fetch into."""

    directory: Path
    lines: list[str] = field(default_factory=list)
    timeout: float = 10.0

    @property
    def target(self) -> Path:
        return self.directory / "annotations/R2R_tiny.json"

    @property
    def part(self) -> Path:
        return self.target.with_name("R2R_tiny.json.part")

    def files(self) -> list[str]:
        every = self.directory.rglob("*")
        return sorted(str(f.relative_to(self.directory)) for f in every if f.is_file())

    def begin(self, data: bytes) -> None:
        self.part.parent.mkdir(parents=True)
        self.part.write_bytes(data)

    def fetch(self, *sources: Source, offline: Path | None = None) -> None:
        fetch(
            self.directory,
            {source.group for source in sources},
            offline=offline,
            sources=sources,
            report=self.lines.append,
            timeout=self.timeout,
            pauses=(0.0, 0.0),
        )

    def failure(self, *sources: Source, offline: Path | None = None) -> str:
        with pytest.raises(UserError) as caught:
            self.fetch(*sources, offline=offline)
        return str(caught.value)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "r2r")


# One file


def test_fetches_verifies_and_asks_only_once(server: Server, place: Place) -> None:
    source = a_file(server.at("/a", serve(DATA)))
    place.fetch(source)
    assert place.target.read_bytes() == DATA
    assert place.files() == ["annotations/R2R_tiny.json"]
    place.fetch(source)
    assert len(server.requests) == 1
    assert place.lines == [
        "annotations/R2R_tiny.json: fetched",
        "annotations/R2R_tiny.json: already there",
    ]


def test_tells_its_progress(server: Server, place: Place) -> None:
    seen: list[tuple[str, int, int | None]] = []
    source = a_file(server.at("/a", serve(DATA)))
    fetch(
        place.directory, ["annotations"], sources=[source], progress=lambda *now: seen.append(now)
    )
    assert seen[-1] == ("R2R_tiny.json", len(DATA), len(DATA))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_resumes_after_each_drop(server: Server, place: Place) -> None:
    """More drops than tries are allowed: each one got further, so none counts."""
    drops = [serve(DATA, drop_after=10_000)] * 6
    place.fetch(a_file(server.at("/a", *drops, serve(DATA))))
    assert place.target.read_bytes() == DATA
    assert server.served == len(DATA)
    ranges = [request.range for request in server.requests]
    assert ranges == [None, *(f"bytes={10_000 * k}-" for k in range(1, 7))]


def test_gives_up_on_drops_without_progress_and_keeps_what_came(
    server: Server, place: Place
) -> None:
    address = server.at("/a", serve(DATA, drop_after=HALF), serve(DATA, drop_after=0))
    message = place.failure(a_file(address))
    assert f"{address}: the connection dropped at {HALF:,} of {len(DATA):,} bytes" in message
    assert len(server.requests) == 3  # one more after each of the two pauses
    assert place.files() == ["annotations/R2R_tiny.json.part"]
    assert place.part.read_bytes() == DATA[:HALF]


def test_a_later_run_carries_on(server: Server, place: Place) -> None:
    place.begin(DATA[:HALF])
    place.fetch(a_file(server.at("/a", serve(DATA))))
    assert place.target.read_bytes() == DATA
    assert server.served == len(DATA) - HALF
    assert place.files() == ["annotations/R2R_tiny.json"]


def test_a_complete_part_is_not_fetched_again(server: Server, place: Place) -> None:
    place.begin(DATA)
    place.fetch(a_file(server.at("/a", serve(DATA))))
    assert place.target.read_bytes() == DATA
    assert server.served == 0


def test_a_part_longer_than_the_file_is_fetched_anew(server: Server, place: Place) -> None:
    place.begin(DATA + b"more")
    place.fetch(a_file(server.at("/a", serve(DATA))))
    assert place.target.read_bytes() == DATA
    assert server.served == len(DATA)


def test_starts_anew_where_ranges_are_ignored(server: Server, place: Place) -> None:
    dropping = serve(DATA, drop_after=HALF, ranges=False)
    place.fetch(a_file(server.at("/a", dropping, serve(DATA, ranges=False))))
    assert place.target.read_bytes() == DATA
    assert server.served == HALF + len(DATA)


def test_starts_anew_after_an_answer_with_another_range(server: Server, place: Place) -> None:
    place.begin(DATA[:HALF])
    place.fetch(a_file(server.at("/a", other_range, serve(DATA))))
    assert place.target.read_bytes() == DATA
    assert [request.range for request in server.requests] == [f"bytes={HALF}-", None]


def test_a_drop_in_a_chunk_is_noticed(server: Server, place: Place) -> None:
    chunks = [in_chunks(DATA, drop_after=HALF), in_chunks(DATA, drop_after=len(DATA))]
    place.fetch(a_file(server.at("/a", *chunks)))
    assert place.target.read_bytes() == DATA
    assert [request.range for request in server.requests] == [None, f"bytes={HALF}-"]


def test_redirects_are_followed_with_the_range(server: Server, place: Place) -> None:
    place.begin(DATA[:HALF])
    server.at("/b", serve(DATA))
    place.fetch(a_file(server.at("/a", redirect("/b"))))
    assert place.target.read_bytes() == DATA
    assert server.served == len(DATA) - HALF


def test_a_foreign_beginning_costs_no_mirror(server: Server, place: Place) -> None:
    place.begin(b"x" * HALF)
    place.fetch(a_file(server.at("/a", serve(DATA))))
    assert place.target.read_bytes() == DATA
    assert [request.range for request in server.requests] == [f"bytes={HALF}-", None]


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_refusal_leads_to_the_next_mirror_at_once(
    server: Server, place: Place, status: int
) -> None:
    place.fetch(a_file(server.at("/a", refuse(status)), server.at("/b", serve(DATA))))
    assert place.target.read_bytes() == DATA
    assert [request.path for request in server.requests] == ["/a", "/b"]


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_passing_refusal_is_tried_again(server: Server, place: Place, status: int) -> None:
    place.fetch(a_file(server.at("/a", refuse(status), refuse(status), serve(DATA))))
    assert place.target.read_bytes() == DATA
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (serve(DATA[:-1] + b"!"), "its sha256 is not the release's"),
        (serve(DATA[:-1]), "102,399 bytes instead of 102,400"),
        (serve(DATA + b"!"), "102,401 bytes, more than 102,400"),
        (serve(b"version https://git-lfs.github.com/spec/v1\n"), "a pointer to the file"),
        (page("text/html; charset=utf-8"), "a web page instead of the file"),
        (page("application/octet-stream"), "a web page instead of the file"),
        (endless, "more than 102,400 bytes"),
    ],
)
def test_wrong_bytes_are_thrown_away(
    server: Server, place: Place, wrong: Behaviour, reason: str
) -> None:
    address = server.at("/a", wrong)
    message = place.failure(a_file(address))
    assert re.search(f"{re.escape(address)}: .*{re.escape(reason)}", message)
    assert place.files() == []
    place.fetch(a_file(address, server.at("/b", serve(DATA))))
    assert place.files() == ["annotations/R2R_tiny.json"]
    assert place.target.read_bytes() == DATA


def test_a_login_page_does_not_cost_the_half_that_is_there(server: Server, place: Place) -> None:
    place.begin(DATA[:HALF])
    place.fetch(a_file(server.at("/a", page("text/html")), server.at("/b", serve(DATA))))
    assert [(r.path, r.range) for r in server.requests] == [
        ("/a", f"bytes={HALF}-"),
        ("/b", f"bytes={HALF}-"),
    ]
    assert server.requests[1].served == len(DATA) - HALF


def test_a_server_that_hangs_is_left(server: Server, place: Place) -> None:
    place.timeout = 0.2
    address = server.at("/a", hang)
    assert f"{address}: timed out" in place.failure(a_file(address))
    assert place.files() == []
    assert len(server.requests) == 3
    place.timeout = 10.0
    place.fetch(a_file(server.at("/a", refuse(404)), server.at("/b", serve(DATA))))
    assert place.target.read_bytes() == DATA


def test_an_unreachable_server_is_named(place: Place) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/a"
        assert f"{address}: [Errno" in place.failure(a_file(address))


def test_pauses_grow(server: Server, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    source = a_file(server.at("/a", refuse(503)))
    with pytest.raises(UserError, match="503"):
        fetch(place.directory, ["annotations"], sources=[source])
    assert slept == [1.0, 4.0, 15.0]


def test_a_pause_is_told_and_no_network_costs_none(
    server: Server, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = server.at("/a", refuse(503))
    place.failure(a_file(address))
    assert f"{address}: 503 Service Unavailable; again in 0 s" in place.lines

    def nowhere(*arguments: object, **options: object) -> None:
        raise urllib.error.URLError(socket.gaierror("no such name"))

    place.lines.clear()
    monkeypatch.setattr("urllib.request.urlopen", nowhere)
    assert f"{address}: no such name" in place.failure(a_file(address))
    assert not any("again in" in line for line in place.lines)


def test_a_damaged_file_stays_until_a_good_one_is_there(server: Server, place: Place) -> None:
    place.target.parent.mkdir(parents=True)
    place.target.write_bytes(b"old")
    place.failure(a_file(server.at("/a", serve(b"x" * len(DATA)))))
    assert place.target.read_bytes() == b"old"
    place.fetch(a_file(server.at("/b", serve(DATA))))
    assert place.target.read_bytes() == DATA


def test_any_known_copy_is_good(server: Server, place: Place) -> None:
    other = DATA + b"\n"
    source = replace(a_file(server.at("/a", serve(other))), copies=(copy_of(DATA), copy_of(other)))
    place.fetch(source)
    assert place.target.read_bytes() == other


def test_one_message_tells_all_that_is_missing(server: Server, place: Place) -> None:
    good = a_file(server.at("/good", serve(DATA)), name="R2R_good.json")
    first = a_file(server.at("/a", refuse(404)), server.at("/b", refuse(403)), name="R2R_one.json")
    second = a_zip(server.at("/c", page("text/html")))
    message = place.failure(first, good, second)
    assert message.splitlines() == [
        "Not everything could be had:",
        "  annotations/R2R_one.json",
        f"    {first.mirrors[0]}: 404 Not Found",
        f"    {first.mirrors[1]}: 403 Forbidden",
        "  connectivity/SCAN_connectivity.json (2 files)",
        f"    {second.mirrors[0]}: a web page instead of the file",
        "Get these files in another way, put them anywhere under one folder, each under its name "
        f"above, and run 'langgoalirl data fetch r2r {place.directory} --from FOLDER'.",
    ]
    assert place.files() == ["annotations/R2R_good.json"]


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for directory in (tmp_path / "file", tmp_path / "file" / "r2r"):
        with pytest.raises(UserError, match=r"file.*; choose a folder that can be written\.$"):
            fetch(directory, ["annotations"], sources=[a_file()])


def test_a_folder_in_a_files_place_is_named(server: Server, place: Place) -> None:
    place.target.mkdir(parents=True)
    message = place.failure(a_file(server.at("/a", serve(DATA))))
    assert message == f"{place.target}: is a folder where a file belongs; move it away."
    assert server.requests == []


def test_a_full_disk_is_no_dropped_connection(
    server: Server, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.FileIO):
        def write(self, data: object) -> int:
            return 1

    monkeypatch.setattr(module, "open", lambda path, mode, **_: Full(path, mode), raising=False)
    message = place.failure(a_file(server.at("/a", serve(DATA))))
    assert message == f"{place.part}: cannot be written (No space left on device)."
    assert len(server.requests) == 1


def test_unknown_groups_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Did you mean 'features'"):
        fetch(tmp_path, ["feature"])
    with pytest.raises(UserError, match="no such folder to copy from"):
        fetch(tmp_path, offline=tmp_path / "nowhere")


# Archives

GRAPHS = {f"{scan * 11}_connectivity.json": b"[%d]" % i for i, scan in enumerate("ab")}


def a_zip(*mirrors: str) -> FolderSource:
    return FolderSource(
        group="connectivity",
        path="connectivity",
        inside="sim/connectivity",
        names=re.compile(r"[0-9A-Za-z]{11}_connectivity\.json"),
        alike="SCAN_connectivity.json",
        files=2,
        mirrors=mirrors,
        archive_limit=100_000,
        unpacked_limit=1_000,
    )


def packed(members: dict[str, bytes] | None = None, **more: bytes | zipfile.ZipInfo) -> bytes:
    """An archive like those of a git host: everything in one folder named after the commit."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("repo-main/README.md", "a simulator")
        archive.writestr("repo-main/sim/connectivity/scans.txt", "not wanted")
        archive.writestr("repo-main/elsewhere/ccccccccccc_connectivity.json", "[]")
        for name, data in (GRAPHS if members is None else members).items():
            archive.writestr(f"repo-main/sim/connectivity/{name}", data)
    return buffer.getvalue()


def with_member(info: zipfile.ZipInfo | str, data: bytes = b"[]") -> bytes:
    buffer = io.BytesIO(packed(dict(list(GRAPHS.items())[:1])))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr(info, data)
    return buffer.getvalue()


def link() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("repo-main/sim/connectivity/bbbbbbbbbbb_connectivity.json")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


def unusual() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("repo-main/sim/connectivity/bbbbbbbbbbb_connectivity.json")
    info.compress_type = zipfile.ZIP_BZIP2
    return info


def spoiled() -> bytes:
    """One bit of a member is not what its checksum says."""
    data = bytearray(packed(dict.fromkeys(GRAPHS, b"[%s]" % (b"1" * 50))))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        last = archive.infolist()[-1]
    data[last.header_offset + 30 + len(last.filename)] ^= 4
    return bytes(data)


def test_takes_the_one_folder_that_is_wanted(server: Server, place: Place) -> None:
    place.fetch(a_zip(server.at("/zip", serve(packed()))))
    assert place.files() == [f"connectivity/{name}" for name in GRAPHS]
    for name, data in GRAPHS.items():
        assert (place.directory / "connectivity" / name).read_bytes() == data
    place.fetch(a_zip(server.at("/zip", refuse(404))))
    assert len(server.requests) == 1


def test_a_broken_archive_download_is_resumed(server: Server, place: Place) -> None:
    data = packed()
    place.fetch(a_zip(server.at("/zip", serve(data, drop_after=300), serve(data))))
    assert server.served == len(data)
    assert place.files() == [f"connectivity/{name}" for name in GRAPHS]


@pytest.mark.parametrize(
    ("archive", "reason"),
    [
        (with_member("repo-main/../../evil.json"), "leads out of it"),
        (with_member("/etc/evil.json"), "leads out of it"),
        (with_member(link(), b"/etc/passwd"), "is not a file"),
        (with_member(unusual()), "packed in an unusual way"),
        (packed(dict.fromkeys(GRAPHS, b"[" + b" " * 600 + b"]")), "more than 1,000 bytes"),
        (packed(dict.fromkeys(GRAPHS, b"[")), "not valid JSON"),
        (packed({}), "has 0 of 2 files"),
        (packed({**GRAPHS, "ccccccccccc_connectivity.json": b"[]"}), "has 3 of 2 files"),
        (
            with_member("two/sim/connectivity/aaaaaaaaaaa_connectivity.json"),
            "has two 'aaaaaaaaaaa_connectivity.json'",
        ),
        (packed()[:-30], "not a whole zip archive"),
        (spoiled(), "not a whole zip archive"),
        (HTML, "a web page instead of the file"),
        (b"", "not a whole zip archive"),
    ],
)
def test_hostile_and_broken_archives_leave_nothing(
    server: Server, place: Place, archive: bytes, reason: str
) -> None:
    message = place.failure(a_zip(server.at("/zip", serve(archive))))
    assert reason in message
    assert place.files() == []
    assert sorted(place.directory.parent.iterdir()) == [place.directory]


def test_an_archive_from_elsewhere_does_not_replace_good_files(
    server: Server, place: Place
) -> None:
    folder = place.directory / "connectivity"
    folder.mkdir(parents=True)
    name = next(iter(GRAPHS))
    (folder / name).write_bytes(GRAPHS[name])
    place.failure(a_zip(server.at("/zip", serve(packed(dict.fromkeys(GRAPHS, b"["))))))
    assert place.files() == [f"connectivity/{name}"]
    assert (folder / name).read_bytes() == GRAPHS[name]


@settings(max_examples=150, deadline=None)
@given(
    at=st.integers(0, len(packed()) - 1),
    byte=st.integers(0, 255),
    end=st.one_of(st.none(), st.integers(0, len(packed()))),
)
@example(at=868, byte=2, end=None)  # a member that begins before the archive
def test_a_mutated_archive_gives_the_files_or_nothing(
    tmp_path_factory: pytest.TempPathFactory, at: int, byte: int, end: int | None
) -> None:
    place = tmp_path_factory.mktemp("zip")
    data = bytearray(packed())
    data[at] = byte
    (place / "part").write_bytes(data[:end])
    target = place / "connectivity"
    try:
        module._install_archive(a_zip(), place / "part", target)
    except module._WrongBytes:
        assert not target.exists()
    else:
        assert {file.name: file.read_bytes() for file in target.iterdir()} == GRAPHS


# --from


def test_copies_from_any_layout_without_asking_anybody(
    server: Server, place: Place, tmp_path: Path
) -> None:
    heap = tmp_path / "heap"
    for name, data in {
        "old/R2R_tiny.json": b"cut short",
        "z/deep/R2R_tiny.json": DATA,
        "a/aaaaaaaaaaa_connectivity.json": b"[",
        "b/aaaaaaaaaaa_connectivity.json": GRAPHS["aaaaaaaaaaa_connectivity.json"],
        "bbbbbbbbbbb_connectivity.json": GRAPHS["bbbbbbbbbbb_connectivity.json"],
        "scans.txt": b"not wanted",
    }.items():
        (heap / name).parent.mkdir(parents=True, exist_ok=True)
        (heap / name).write_bytes(data)
    address = server.at("/a", serve(DATA))
    place.fetch(a_file(address), a_zip(address), offline=heap)
    assert place.files() == [
        "annotations/R2R_tiny.json",
        *(f"connectivity/{name}" for name in GRAPHS),
    ]
    assert place.target.read_bytes() == DATA
    for name, data in GRAPHS.items():
        assert (place.directory / "connectivity" / name).read_bytes() == data
    assert (heap / "z/deep/R2R_tiny.json").read_bytes() == DATA
    assert server.requests == []


def test_what_is_wrong_at_hand_is_named_and_not_taken(place: Place, tmp_path: Path) -> None:
    heap = tmp_path / "heap"
    heap.mkdir()
    (heap / "R2R_tiny.json").write_bytes(HTML)
    (heap / "aaaaaaaaaaa_connectivity.json").write_bytes(b"[]")
    (heap / "bbbbbbbbbbb_connectivity.json").write_bytes(b"[")
    message = place.failure(a_file(), a_zip(), a_file(name="R2R_none.json"), offline=heap)
    assert message.splitlines()[1:-1] == [
        "  annotations/R2R_tiny.json",
        f"    {heap}/R2R_tiny.json: a web page instead of the file",
        "  connectivity/SCAN_connectivity.json (2 files)",
        f"    1 of 2 files were under {heap}",
        f"    {heap}/bbbbbbbbbbb_connectivity.json: not valid JSON",
        "  annotations/R2R_none.json",
        f"    no file of this name under {heap}",
    ]
    assert place.files() == ["connectivity/aaaaaaaaaaa_connectivity.json"]


def test_a_second_heap_completes_the_first(place: Place, tmp_path: Path) -> None:
    names = list(GRAPHS)
    for heap, name in zip(("one", "two"), names, strict=True):
        (tmp_path / heap).mkdir()
        (tmp_path / heap / name).write_bytes(GRAPHS[name])
    (tmp_path / "two" / names[0]).write_bytes(b"[9]")  # another version of what is there by then
    place.failure(a_zip(), offline=tmp_path / "one")
    place.fetch(a_zip(), offline=tmp_path / "two")
    folder = place.directory / "connectivity"
    assert {name: (folder / name).read_bytes() for name in names} == GRAPHS


# The table


def test_the_table_is_well_formed() -> None:
    for source in SOURCES:
        assert source.mirrors
        assert all(address.startswith("https://") for address in source.mirrors)
        assert all(a.endswith("?dl=1") for a in source.mirrors if "dropbox.com" in a)
        if isinstance(source, FileSource):
            assert all(re.fullmatch("[0-9a-f]{64}", copy.sha256) for copy in source.copies)
            assert not Path(source.path).is_absolute()
    assert len({source.path for source in SOURCES}) == len(SOURCES)


def test_real_data_is_recognised_and_copied(r2r_dir: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    groups = {"connectivity", "glove"}
    fetch(tmp_path, groups, offline=r2r_dir, report=lines.append)
    fetch(tmp_path, groups, offline=r2r_dir, report=lines.append)
    assert [line.rpartition(": ")[2] for line in lines] == ["fetched"] * 3 + ["already there"] * 3
    assert len(list((tmp_path / "connectivity").iterdir())) == 90
    with pytest.raises(UserError) as caught:
        fetch(tmp_path, ["annotations"], offline=r2r_dir)
    assert str(caught.value).count("no file of this name") == 2  # val_unseen and test
    assert len(json.loads((tmp_path / "annotations/R2R_val_seen.json").read_text())) == 340
