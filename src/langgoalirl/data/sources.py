"""What Room-to-Room consists of, where each part can be had, and how to tell that it is good.

No address here was tried live: links to these data die, and pages that ask for a login answer in
their place. Sizes and checksums decide what is kept, never where it came from. Connectivity, boxes
and features derive from Matterport3D, whose terms of use apply to everybody who fetches them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from langgoalirl.errors import UserError
from langgoalirl.files import read_json, sha256

MEGABYTE = 2**20


@dataclass(frozen=True)
class Copy:
    """One released version of a file."""

    size: int
    sha256: str


@dataclass(frozen=True)
class FileSource:
    """A single file that the addresses give as it is."""

    group: str
    path: str  # under the data folder
    copies: tuple[Copy, ...]  # any of these is good
    mirrors: tuple[str, ...]
    counts: Mapping[str, int] = field(default_factory=dict)  # what it holds

    @property
    def label(self) -> str:
        """What it is called in messages."""
        return self.path

    def fault(self, file: Path) -> str:
        """Why a file is none of the released copies; empty if it is one."""
        size = file.stat().st_size
        expected = [copy.sha256 for copy in self.copies if copy.size == size]
        if expected and sha256(file) in expected:
            return ""
        if expected:
            return "of the right size, but its sha256 is not the release's"
        sizes = " or ".join(f"{copy.size:,}" for copy in self.copies)
        return stand_in(file) or f"{size:,} bytes instead of {sizes}"


@dataclass(frozen=True)
class FolderSource:
    """Many files that the addresses give inside a zip archive, of which one folder is wanted."""

    group: str
    path: str  # under the data folder
    inside: str  # the wanted folder's last names in the archive
    names: re.Pattern[str]
    alike: str  # a name that stands for all of them in messages
    files: int
    mirrors: tuple[str, ...]
    archive_limit: int  # bytes; more is not what we asked for
    unpacked_limit: int
    counts: Mapping[str, int] = field(default_factory=dict)
    digest: str | None = None  # over the sorted lines "<name> <sha256>" of all files

    @property
    def label(self) -> str:
        """What it is called in messages."""
        many = f" ({self.files:,} files)" if self.files > 1 else ""
        return f"{self.path}/{self.alike}{many}"

    def members(self, folder: Path) -> list[Path]:
        """The files of a folder that belong here, by their names."""
        if not folder.is_dir():
            return []
        named = (file for file in folder.iterdir() if self.names.fullmatch(file.name))
        return sorted(file for file in named if file.is_file())

    def fault(self, file: Path) -> str:
        """Why one of the files cannot be data, as far as that shows without knowing the rest."""
        if file.suffix != ".json":
            return stand_in(file) or ("" if file.stat().st_size else "empty")
        try:
            read_json(file)
        except UserError:
            return stand_in(file) or "not valid JSON"
        return ""


def stand_in(file: Path) -> str:
    """What servers give in place of a file that they do not give; empty if it is none of it."""
    with open(file, "rb") as opened:
        head = opened.read(512).lstrip().lower()
    if head.startswith((b"<!doctype html", b"<html")):
        return "a web page instead of the file"
    if head.startswith(b"version https://git-lfs"):
        return "a pointer to the file instead of the file (Git LFS)"
    return ""


Source = FileSource | FolderSource

GROUPS = ("annotations", "connectivity", "objects", "glove", "features")
STANDARD = frozenset({"annotations", "connectivity", "objects"})
"""What a laptop needs; word vectors and image features are fetched on request."""


def _dropbox(path: str) -> str:
    return f"https://www.dropbox.com/s/{path}?dl=1"  # without dl=1 it answers with a web page


def _raw(repository: str, commit: str, path: str) -> str:
    return f"https://raw.githubusercontent.com/{repository}/{commit}/{path}"


def _large(split: str) -> str:
    """A fork of the simulator that keeps the annotations as large files."""
    fork = "sadanand1120/Matterport3DSimulator/f0a2260e68b83e384b2b5eda175e826fb2beb02b"
    return f"https://media.githubusercontent.com/media/{fork}/tasks/R2R/data/R2R_{split}.json"


def _archives(repository: str, *references: str) -> tuple[str, ...]:
    """Every archive in two spellings: the second works where the first one's redirect does not."""
    return tuple(
        address
        for reference in references
        for address in (
            f"https://github.com/{repository}/archive/{reference}.zip",
            f"https://codeload.github.com/{repository}/zip/{reference}",
        )
    )


def _split(
    name: str, copies: tuple[Copy, ...], mirrors: tuple[str, ...], paths: int, instructions: int
) -> FileSource:
    counts = MappingProxyType({"paths": paths, "instructions": instructions})
    return FileSource("annotations", f"annotations/R2R_{name}.json", copies, mirrors, counts)


def _glove(name: str, commit: str, copy: Copy) -> FileSource:
    repository, path = "ronghanghu/speaker_follower", f"tasks/R2R/data/{name}"
    mirrors = (
        _raw(repository, commit, path),
        f"https://github.com/{repository}/raw/{commit}/{path}",
    )
    return FileSource("glove", f"glove/{name}", (copy,), mirrors)


SOURCES: tuple[Source, ...] = (
    _split(
        "train",
        (  # two copies are about that differ by one byte
            Copy(3_996_670, "5ac291e10068e37bcc3267506bbbf19bfe20eaf2453932455722c4c9303d70da"),
            Copy(3_996_671, "30af70d96ea217778ba0d1b3085a774a13f36266fef39a13dbe8b03516fbf988"),
        ),
        (
            _dropbox("hh5qec8o5urcztn/R2R_train.json"),
            _raw(
                "BenjaPrograma/proyecto-IA",
                "3f36d19c97ec5601441cfb6119b8d857614c3e0b",
                "tasks/R2R/data/R2R_train.json",
            ),
            _large("train"),
        ),
        paths=4_675,
        instructions=14_039,
    ),
    _split(
        "val_seen",
        (Copy(292_756, "755633db9d5e64d5ca71d329c5046bb722781a09f0d1d501d7e8d094c83652ec"),),
        (_dropbox("8ye4gqce7v8yzdm/R2R_val_seen.json"), _large("val_seen")),
        paths=340,
        instructions=1_021,
    ),
    _split(
        "val_unseen",
        (Copy(665_674, "1cc730adc1c098998ac9191462849fc725e0c5336984a35bfbac7d5f044e682c"),),
        (_dropbox("p6hlckr70a07wka/R2R_val_unseen.json"), _large("val_unseen")),
        paths=783,
        instructions=2_349,
    ),
    _split(
        "test",
        (Copy(860_083, "f7e28b527ab7fd209010439b327269c18d315888c68ecc81486ef20d58046f10"),),
        (_dropbox("w4pnbwqamwzdwd1/R2R_test.json"), _large("test")),
        paths=1_391,
        instructions=4_173,
    ),
    FolderSource(
        group="connectivity",
        path="connectivity",
        inside="connectivity",
        names=re.compile(r"[0-9A-Za-z]{11}_connectivity\.json"),
        alike="SCAN_connectivity.json",
        files=90,
        mirrors=_archives("peteanderson80/Matterport3DSimulator", "HEAD", "refs/heads/master"),
        archive_limit=1024 * MEGABYTE,
        unpacked_limit=64 * MEGABYTE,
        counts=MappingProxyType({"graphs": 90, "viewpoints": 10_567}),
        digest="d41f3ab9ddb005e996ba10db6f2d0493e022b95a11044409410698bb3a95b7aa",
    ),
    FolderSource(
        group="objects",
        path="objects",
        inside="tasks/REVERIE/data/BBox",
        names=re.compile(r"[0-9A-Za-z]{11}_[0-9a-f]{32}\.json"),
        alike="SCAN_VIEWPOINT.json",
        files=10_567,
        mirrors=_archives(
            "YuankaiQi/REVERIE", "46da658210babe05e13bf133f60bae2b4cf7b3db", "refs/heads/master"
        ),
        archive_limit=2048 * MEGABYTE,
        unpacked_limit=64 * MEGABYTE,
        counts=MappingProxyType({"files": 10_567, "empty": 2_385}),
        digest="ca366debf1fb83eef679d480484bcbb93c1db96fbbdf28b30a8a8dbb8076042c",
    ),
    _glove(
        "train_vocab.txt",
        "7201b16cf8417913a5d8187fe5dc47e819374199",
        Copy(6_639, "ab08ba5728a3134ff311ecf861cf00571a93d9eedae20af54b8a31b89fb5e1a6"),
    ),
    _glove(
        "train_glove.npy",
        "5df1dd25e2b4b7ae20e43856589a19db1cdf9e1b",
        Copy(1_189_328, "c88f7cbbb55de860d4252f76a4d1c8d89942ffd0cf242876ccc28b6b62dd001f"),
    ),
    FolderSource(  # one table of 36 x 2048 numbers for each viewpoint
        group="features",
        path="features",
        inside="",
        names=re.compile(r"ResNet-152-imagenet\.tsv"),
        alike="ResNet-152-imagenet.tsv",
        files=1,
        mirrors=(_dropbox("o57kxh2mn5rkx4o/ResNet-152-imagenet.zip"),),
        archive_limit=4096 * MEGABYTE,
        unpacked_limit=6144 * MEGABYTE,
    ),
)
