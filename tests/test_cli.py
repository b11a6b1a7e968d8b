"""The command line as its users meet it: exit codes, one JSON object, one sentence per mistake."""

from __future__ import annotations

import argparse
import base64
import functools
import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from langgoalirl import __version__
from langgoalirl.cli import build_parser, main
from langgoalirl.data import fetch as fetching
from langgoalirl.data.sources import Copy, FileSource, FolderSource
from langgoalirl.submission import write_submission
from langgoalirl.worlds.features import open_cache
from langgoalirl.worlds.geometry import VIEWS
from langgoalirl.worlds.r2r import R2R

METRICS = {"tl", "ne", "osr", "sr", "spl", "ndtw", "sdtw", "cls", "n"}
SCAN = "aaaaaaaaaaa"
RECIPE = "[world]\nhouses = 2\n"


@dataclass(frozen=True)
class Outcome:
    """What one command left behind."""

    code: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        """Standard output, which is one object on one line."""
        assert self.code == 0, self.err
        assert self.out.count("\n") == 1
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value

    def mistake(self) -> str:
        """The sentence about a mistake: alone, and on standard error."""
        assert self.code == 2
        assert self.out == ""
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        return self.err


Call = Callable[..., Outcome]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command in this process, with no data known."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("LANGGOALIRL_R2R", raising=False)

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        try:
            code: Any = main([str(argument) for argument in arguments])
        except SystemExit as stop:  # argparse leaves this way
            code = stop.code
        return Outcome(code, *capsys.readouterr())

    return run


def viewpoint(i: int) -> str:
    return f"{i:032x}"


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Four viewpoints in a row, 2 m apart; one path with four instructions and one with one."""
    folder = tmp_path / "r2r"
    graph = [
        {
            "image_id": viewpoint(i),
            "pose": [1, 0, 0, 2.0 * i, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1],
            "included": True,
            "visible": [i != j for j in range(4)],
            "unobstructed": [abs(i - j) == 1 for j in range(4)],
            "height": 1.5,
        }
        for i in range(4)
    ]
    paths = [
        {"path_id": 1, "path": [viewpoint(i) for i in (0, 1, 2)], "instructions": ["Go."] * 4},
        {"path_id": 2, "path": [viewpoint(i) for i in (3, 2)], "instructions": ["Go back."]},
    ]
    for path in paths:
        path |= {"scan": SCAN, "heading": 1.57, "distance": 4.0}
    write(folder / f"connectivity/{SCAN}_connectivity.json", graph)
    write(folder / "annotations/R2R_tiny.json", paths)
    return folder


def write(file: Path, value: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(value if isinstance(value, str) else json.dumps(value))
    return file


WALKS = {"1_0": [0, 1, 2], "1_1": [0], "1_2": [0, 1], "1_3": [0, 1, 2, 3], "2_0": [3, 2]}


def submission(file: Path, walks: dict[str, list[int]] = WALKS) -> Path:
    entries = [
        {"instr_id": name, "trajectory": [[viewpoint(i), 0.0, 0.0] for i in walk]}
        for name, walk in walks.items()
    ]
    return write(file, entries)


# Help


def parsers(parser: argparse.ArgumentParser, above: tuple[str, ...] = ()) -> Iterator[tuple]:
    """Every command with its own --help."""
    yield above
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from parsers(below, (*above, name))


COMMANDS = list(parsers(build_parser()))


def test_there_are_commands() -> None:
    assert {("demo",), ("data", "fetch"), ("pretrain",), ("evaluate",)} < set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help(call: Call, command: tuple[str, ...]) -> None:
    outcome = call(*command, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith(" ".join(["usage: langgoalirl", *command, ""]))


def test_version(call: Call) -> None:
    assert call("--version") == Outcome(0, f"langgoalirl {__version__}\n", "")


def test_help_is_quick_because_it_imports_nothing_heavy() -> None:
    code = "import sys, langgoalirl.cli; print({'torch', 'numpy', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# Misspelt words


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("", "required: COMMAND"),
        ("evalute --split x", "there is no 'evalute'. Did you mean 'evaluate'?"),
        ("data fetsh r2r x", "there is no 'fetsh'. Did you mean 'fetch'?"),
        ("data check r2rr x", "there is no data set 'r2rr'. Did you mean 'r2r'?"),
        ("data fetch r2r x --with glov", "--with: there is no 'glov'. Did you mean 'glove'?"),
        ("evaluate x", "required: --split"),
        ("evaluate x --spilt y", "there is no option '--spilt'. Did you mean '--split'?"),
        ("evaluate x --splt=y", "Did you mean '--split'?"),
        ("evaluate x --split y --jsn", "there is no option '--jsn'. Did you mean '--json'?"),
        ("evaluate x --split y --js", "there is no option '--js'. Did you mean '--json'?"),
        ("evaluate x --split y --protocol duett", "no 'duett'. Did you mean 'duet'?"),
        ("evaluate x --split y --world home", "no 'home'. Did you mean 'houses'?"),
        ("evaluate x y --split z", "unknown argument 'y'."),
        ("describe x --split y --samples five", "argument --samples: invalid int value: 'five'"),
        ("pretrain x --only goal_generater", "Did you mean 'goal_generator'?"),
        ("demo --run x", "there is no option '--run'. Did you mean '--runs'?"),
    ],
)
def test_misspelt_words_are_answered_with_the_nearest(call: Call, command: str, said: str) -> None:
    mistake = call(*command.split()).mistake()
    assert said in mistake
    assert re.search(r"[.?] See 'langgoalirl[a-z ]* --help'\.\n$", mistake)


# Other mistakes


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("evaluate --split tiny", "evaluate needs a RUN, or --predictions FILE"),
        ("evaluate RUN --split tiny --predictions FILE", "evaluate needs a RUN, or"),
        ("evaluate --split tiny --predictions FILE", "--predictions needs --world"),
        ("evaluate --split tiny --predictions FILE --world r2r", "LANGGOALIRL_R2R"),
        ("evaluate --split tiny --predictions FILE --world r2r --data {}/no", "{}/no/connectivity"),
        ("evaluate {}/none --split tiny", "{}/none"),
        ("describe {}/none --split tiny", "{}/none"),
        ("pretrain", "pretrain needs a RECIPE"),
        ("pretrain {}/none.toml", "{}/none.toml: no such file."),
        ("pretrain {}/my.toml sed=1", "'sed=1': unknown field 'sed'. Did you mean 'seed'?"),
        ("pretrain {}/my.toml world.houses=x", "'world.houses' must be a whole number"),
        ("pretrain {}/my.toml word_limit=0", "word_limit must be at least 1"),
        ("pretrain {}/my.toml --runs {}/my.toml/runs", "{}/my.toml"),
        ("bench world --data {}/none", "{}/none/connectivity"),
        ("evaluate --split s --predictions FILE --world r2r --results {}/x", "--results takes"),
        ("data check r2r {}/none", "{}/none: no such folder"),
        ("data fetch r2r {}/new --from {}/my.toml", "{}/my.toml: no such folder to copy from."),
        ("data fetch r2r {}/new --from {}/none", "{}/none: no such folder to copy from."),
        ("data fetch r2r {}/my.toml/new --from {}", "{}/my.toml/new"),
        ("data prepare {}/none.tsv {}/cache", "{}/none.tsv"),
        ("data prepare {}/my.toml {}/cache", ".tsv, .hdf5 and .h5 files"),
        ("data prepare {}/my.tsv {}/cache", "{}/my.tsv: line 1"),
    ],
)
def test_mistakes_are_one_sentence(call: Call, tmp_path: Path, command: str, said: str) -> None:
    write(tmp_path / "my.toml", RECIPE)
    write(tmp_path / "my.tsv", "scan\tviewpoint\n")
    mistake = call(*command.replace("{}", str(tmp_path)).split()).mistake()
    assert mistake.startswith("langgoalirl: ")
    assert said.replace("{}", str(tmp_path)) in mistake
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my.toml", "my.tsv"]


def test_being_told_to_end_is_an_interruption(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*arguments: object, **options: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(fetching, "fetch", ended)
    outcome = call("data", "fetch", "r2r", tmp_path)
    assert (outcome.code, outcome.out) == (130, "")
    assert "langgoalirl: interrupted" in outcome.err


# evaluate --predictions


def evaluated(call: Call, file: Path, folder: Path, *more: str) -> Outcome:
    place = ("--world", "r2r", "--data", folder, "--split", "tiny")
    return call("evaluate", "--predictions", file, *place, *more)


def test_a_submission_is_scored(call: Call, tiny: Path, tmp_path: Path) -> None:
    file = submission(tmp_path / "walks.json")
    found = evaluated(call, file, tiny, "--json").json()
    assert found.keys() == METRICS
    expected = {"n": 5, "tl": 14 / 5, "ne": 8 / 5, "osr": 4 / 5, "sr": 4 / 5}
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["spl"] == pytest.approx((1 + 0 + 1 + 4 / 6 + 1) / 5)

    found = evaluated(call, file, tiny, "--json", "--protocol", "simulator").json()  # without 1_3
    expected = {"n": 4, "tl": 8 / 4, "ne": 6 / 4, "osr": 3 / 4, "sr": 3 / 4, "spl": 3 / 4}
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_without_json_there_is_a_table(call: Call, tiny: Path, tmp_path: Path) -> None:
    outcome = evaluated(call, submission(tmp_path / "walks.json"), tiny)
    assert (outcome.code, outcome.err) == (0, "")
    assert "json on tiny, protocol envdrop" in outcome.out.replace("\n", "")
    assert "2.800" in outcome.out
    assert "0.733" in outcome.out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "not valid JSON at line 1"),
        ("[]", "5 of the 5 ids of split 'tiny' are missing"),
        ([{"instr_id": "9_9", "trajectory": [["a"]]}], "unknown instr_id '9_9'"),
        ([{"instr_id": "1_0", "trajectory": "a\nb"}], "'1_0' has a string as its trajectory"),
        (WALKS | {"2_0": [3, 1]}, "no edge leads from"),
        (WALKS | {"2_0": [2]}, "'2_0' starts at"),
    ],
)
def test_a_bad_submission_is_one_sentence(
    call: Call, tiny: Path, tmp_path: Path, content: Any, said: str
) -> None:
    file = tmp_path / "bad.json"
    submission(file, content) if isinstance(content, dict) else write(file, content)
    mistake = evaluated(call, file, tiny, "--json").mistake()
    assert mistake.startswith(f"langgoalirl: {file}: ")
    assert said in mistake


def test_a_split_that_is_not_there(call: Call, tiny: Path, tmp_path: Path) -> None:
    file = submission(tmp_path / "walks.json")
    mistake = evaluated(call, file, tiny, "--split", "tinny").mistake()
    assert "no split 'tinny'. Did you mean 'tiny'?" in mistake


def test_the_environment_says_where_the_data_is(
    call: Call, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANGGOALIRL_R2R", str(tiny))
    file = submission(tmp_path / "walks.json")
    outcome = call("evaluate", "--predictions", file, "--world=r2r", "--split=tiny", "--json")
    assert outcome.json()["n"] == 5


@pytest.mark.parametrize(
    ("program", "arguments", "code", "out", "err"),
    [
        ("-m langgoalirl", "--version", 0, f"langgoalirl {__version__}\n", ""),
        ("-m langgoalirl", "evaluate --split x", 2, "", "langgoalirl: evaluate needs a RUN"),
        ("-m langgoalirl.cli", "evalute", 2, "", "langgoalirl: COMMAND: there is no 'evalute'"),
    ],
)
def test_as_a_program(program: str, arguments: str, code: int, out: str, err: str) -> None:
    command = [sys.executable, *program.split(), *arguments.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, out)
    assert done.stderr.startswith(err)
    assert done.stderr.count("\n") == (1 if code else 0)


def test_the_annotated_paths_of_val_seen_are_perfect(
    call: Call, r2r_dir: Path, tmp_path: Path
) -> None:
    world = R2R(r2r_dir, "none")
    split = world.split("val_seen")
    assert split.references is not None
    file = tmp_path / "annotated.json"
    write_submission(
        file, world, split, split.references.paths * VIEWS + 12, split.references.lengths
    )
    arguments = ["--world", "r2r", "--data", r2r_dir, "--split", "val_seen", "--json"]
    found = call("evaluate", "--predictions", file, *arguments).json()
    assert found.keys() == METRICS
    perfect = {"ne": 0, "osr": 1, "sr": 1, "spl": 1, "ndtw": 1, "sdtw": 1, "cls": 1, "n": 1021}
    assert {name: found[name] for name in perfect} == pytest.approx(perfect)
    assert found["tl"] == pytest.approx(10.18, abs=0.01)


# pretrain --fields


def test_the_fields_of_a_recipe(call: Call) -> None:
    fields = call("pretrain", "--fields", "--json").json()
    assert fields["seed"] == {"default": "0", "help": "seed of every weight and every batch"}
    assert fields["world.name"]["help"].endswith("(houses, r2r)")
    assert "world.name" in call("pretrain", "--fields").out


# data check


def test_check_tells_what_is_missing_and_its_remedies_are_commands(call: Call, tiny: Path) -> None:
    found = call("data", "check", "r2r", tiny, "--json").json()
    assert found["sound"] is True
    status = {row["what"]: row["status"] for row in found["rows"]}
    assert status["annotations/R2R_tiny.json"] == "ok"
    assert status["annotations/R2R_val_seen.json"] == "missing"
    assert status["glove/train_vocab.txt"] == status["features"] == "missing"
    for row in found["rows"]:
        if row["status"] == "missing":
            program, *arguments = shlex.split(row["remedy"])
            assert program == "langgoalirl"
            assert Path(build_parser().parse_args(arguments).place[-1]) == tiny


def test_check_fails_on_damage_after_telling_of_it(call: Call, tiny: Path) -> None:
    write(tiny / "annotations/R2R_tiny.json", "[")
    outcome = call("data", "check", "r2r", tiny, "--json")
    assert outcome.code == 2
    assert outcome.err == (f"langgoalirl: {tiny}: damaged: annotations/R2R_tiny.json; see above.\n")
    assert json.loads(outcome.out)["sound"] is False
    assert outcome.out.count("\n") == 1


@pytest.mark.parametrize("name", ["[/b]", "[red]", "Größe 1"])
def test_tables_print_any_name_as_it_is(call: Call, tiny: Path, name: str) -> None:
    folder = tiny.parent / name  # "[/b]" is a folder in a folder
    folder.parent.mkdir(exist_ok=True)
    tiny.rename(folder)
    (folder / "annotations/R2R_tiny.json").rename(folder / "annotations/R2R_[red]x.json")
    outcome = call("data", "check", "r2r", folder)
    assert (outcome.code, outcome.err) == (0, "")
    assert f"{name}" in outcome.out.replace("\n", "")
    assert "annotations/R2R_[red]x.json" in re.sub(r"\s*│?\n│?\s*", "", outcome.out)


def test_a_folder_without_a_name_is_not_this_one(call: Call) -> None:
    assert "name is empty; name a folder" in call("data", "check", "r2r", "").mistake()


# data prepare


def test_prepare_converts_and_says_what_it_made(call: Call, tmp_path: Path) -> None:
    values = np.arange(2 * VIEWS * 3, dtype="<f4").reshape(2, VIEWS, 3) / 64
    lines = [
        "\t".join(["scan", name, "640", "480", "60", base64.b64encode(rows.tobytes()).decode()])
        for name, rows in zip("ab", values, strict=True)
    ]
    source = write(tmp_path / "features.tsv", "\n".join([*lines, ""]))
    found = call("data", "prepare", source, tmp_path / "cache", "--json").json()
    assert found.keys() == {"cache", "panoramas", "width", "sha256"}
    assert (found["panoramas"], found["width"]) == (2, 3)
    table = open_cache(tmp_path / "cache")
    assert table.digest == found["sha256"]
    assert table.keys == ["scan_a", "scan_b"]
    assert table.values[:2, :, :3].float().numpy().tolist() == values.tolist()

    again = call("data", "prepare", source, tmp_path / "cache")  # the cache is there already
    assert again.code == 0
    assert found["sha256"] in re.sub(r"\W", "", again.out)


def test_prepare_leaves_nothing_of_a_damaged_file(call: Call, tmp_path: Path) -> None:
    source = write(tmp_path / "features.tsv", "scan\ta\t640\t480\t60\tAAAA=\n")
    mistake = call("data", "prepare", source, tmp_path / "cache", "--json").mistake()
    assert f"{source}: line 1, field 'features'" in mistake
    assert list(tmp_path.iterdir()) == [source]


# data fetch


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch, tiny: Path) -> Path:
    """The tiny folder as if it were the release, with word vectors as an extra."""
    glove = write(tiny / "glove/train_vocab.txt", "go\n")

    def single(group: str, file: Path) -> FileSource:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        copy = Copy(file.stat().st_size, digest)
        return FileSource(group, str(file.relative_to(tiny)), (copy,), ())

    sources = (
        single("annotations", tiny / "annotations/R2R_tiny.json"),
        FolderSource(
            group="connectivity",
            path="connectivity",
            inside="connectivity",
            names=re.compile(r"\w+_connectivity\.json"),
            alike="SCAN_connectivity.json",
            files=1,
            mirrors=(),
            archive_limit=0,
            unpacked_limit=0,
        ),
        single("glove", glove),
    )
    offered = functools.partial(fetching.fetch, sources=sources)
    monkeypatch.setattr(fetching, "fetch", offered)
    return tiny


def files(folder: Path) -> dict[str, bytes]:
    found = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in found}


def test_fetch_copies_from_a_folder(call: Call, release: Path, tmp_path: Path) -> None:
    outcome = call("data", "fetch", "r2r", tmp_path / "new", "--from", release)
    assert (outcome.code, outcome.out) == (0, "")
    expected = files(release)
    word_vectors = expected.pop("glove/train_vocab.txt")
    assert files(tmp_path / "new") == expected
    assert outcome.err.count("fetched") == 2

    more = ("--from", release, "--with", "glove")
    outcome = call("data", "fetch", "r2r", tmp_path / "new", *more)
    assert outcome.code == 0
    assert files(tmp_path / "new") == expected | {"glove/train_vocab.txt": word_vectors}
    assert outcome.err.count("already there") == 2


def test_fetch_tells_what_it_could_not_have(call: Call, release: Path, tmp_path: Path) -> None:
    write(release / "annotations/R2R_tiny.json", "changed")
    outcome = call("data", "fetch", "r2r", tmp_path / "new", "--from", release)
    assert (outcome.code, outcome.out) == (2, "")
    assert "langgoalirl: Not everything could be had:\n  annotations/R2R_tiny.json\n" in outcome.err
    assert f"data fetch r2r {tmp_path / 'new'} --from FOLDER" in outcome.err
    assert "Traceback" not in outcome.err
    assert files(tmp_path / "new").keys() == {f"connectivity/{SCAN}_connectivity.json"}
