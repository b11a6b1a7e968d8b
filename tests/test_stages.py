"""Run folders, and stages that are found again by what they depend on."""

from __future__ import annotations

import io
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load as from_bytes

from langgoalirl import provenance, run_folder
from langgoalirl.errors import UserError
from langgoalirl.provenance import source_digest
from langgoalirl.run_folder import RunFolder, Tensors, digest
from langgoalirl.stages import stage

MODULE = "langgoalirl.errors"  # one that imports nothing of ours
TENSORS: Tensors = {"weight": torch.arange(6.0).view(2, 3), "step": torch.tensor(3)}


class Trainer:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.folders: list[Path] = []

    def __call__(self, run: RunFolder) -> Tensors:
        self.folders.append(run.path)
        return TENSORS


# Stages


def test_a_finished_stage_is_found_again(tmp_path: Path) -> None:
    train = Trainer()
    first = stage(tmp_path, "base", {"seed": 1, "inputs": {}}, MODULE, train)
    again = stage(tmp_path, "base", {"inputs": {}, "seed": 1}, MODULE, train)  # order is nothing
    assert train.folders == [first.path] == [again.path]
    assert first.path.parent == tmp_path / "stages"
    assert first.config == {"stage": "base", "seed": 1, "inputs": {}}
    assert first.finished
    assert first.status["digest"] == digest(TENSORS) == digest(again.need("final"))
    other = stage(tmp_path, "base", {"inputs": {}, "seed": 1}, "langgoalirl.files", train)
    assert other.path != first.path  # other sources, but the same configuration
    assert other.status["config_digest"] == first.status["config_digest"]


def test_whatever_it_depends_on_makes_another_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = Trainer()
    config = {"seed": 1, "inputs": {"base": "0a"}}
    stage(tmp_path, "bc", config, MODULE, train)
    stage(tmp_path, "bc", {**config, "seed": 2}, MODULE, train)
    stage(tmp_path, "bc", {**config, "inputs": {"base": "0b"}}, MODULE, train)
    stage(tmp_path, "bc", config, "langgoalirl.files", train)
    monkeypatch.setattr("langgoalirl.stages.source_digest", lambda module: "edited")
    stage(tmp_path, "bc", config, MODULE, train)
    assert len(set(train.folders)) == len(train.folders) == 5


def test_a_stage_that_was_cut_off_goes_on_in_its_folder(tmp_path: Path) -> None:
    def failing(run: RunFolder) -> Tensors:
        run.save("last", TENSORS, {"update": 7})
        raise KeyboardInterrupt

    seen = []

    def resuming(run: RunFolder) -> Tensors:
        loaded = run.load("last")
        assert loaded is not None
        seen.append(loaded[1])
        return loaded[0]

    with pytest.raises(KeyboardInterrupt):
        stage(tmp_path, "base", {}, MODULE, failing)
    run = stage(tmp_path, "base", {}, MODULE, resuming)
    assert seen == [{"update": 7}]
    assert run.status["digest"] == digest(TENSORS)


# Sources


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package whose `top` imports `middle`, which imports `deep.leaf` inside a function."""
    folder = tmp_path / "tiny"
    (folder / "deep").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "top.py").write_text("import os\nfrom tiny.middle import go\n")
    (folder / "middle.py").write_text("def go():\n    from tiny.deep import leaf\n")
    (folder / "deep" / "__init__.py").write_text("import tiny.circle\n")
    (folder / "deep" / "leaf.py").write_text("x = 1\n")
    (folder / "circle.py").write_text("import tiny.top\n")
    (folder / "apart.py").write_text("x = 1\n")
    monkeypatch.setattr(provenance, "PACKAGE", folder)
    source_digest.cache_clear()
    yield folder
    source_digest.cache_clear()


@pytest.mark.parametrize(
    ("file", "matters"),
    [
        ("top.py", True),
        ("middle.py", True),
        ("deep/__init__.py", True),
        ("deep/leaf.py", True),
        ("circle.py", True),
        ("apart.py", False),
    ],
)
def test_the_digest_covers_what_is_imported_however_deep(
    file: str, matters: bool, package: Path
) -> None:
    before = source_digest("tiny.top")
    source_digest.cache_clear()
    assert source_digest("tiny.top") == before
    source_digest.cache_clear()
    with (package / file).open("a") as opened:
        opened.write("# edited\n")
    assert (source_digest("tiny.top") != before) == matters


def test_modules_have_digests_of_their_own(package: Path) -> None:
    assert source_digest("tiny.apart") != source_digest("tiny.top")
    (package / "apart.py").rename(package / "moved.py")
    source_digest.cache_clear()
    moved = source_digest("tiny.moved")
    (package / "moved.py").rename(package / "apart.py")
    source_digest.cache_clear()
    assert source_digest("tiny.apart") != moved  # the name counts


def test_our_own_stages_cover_what_they_train() -> None:
    """Whoever edits a model or a world gets new stages."""
    found = set()
    original = provenance._source

    def noting(module: str) -> Path | None:
        file = original(module)
        found.add(file.relative_to(provenance.PACKAGE).as_posix() if file else "")
        return file

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "_source", noting)
        source_digest.cache_clear()
        source_digest("langgoalirl.pretrain")
    assert found >= {
        "pretrain.py",
        "training.py",
        "models/layers.py",
        "worlds/navgraph.py",
        "worlds/geometry.py",
        "worlds/r2r.py",
        "worlds/houses/voices.py",
    }


def test_the_commit_is_gits_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provenance.commit.cache_clear()
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    assert provenance.commit() == ""
    provenance.commit.cache_clear()
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    assert provenance.commit() == head.stdout[:12]
    provenance.commit.cache_clear()


# Folders


def test_another_configuration_is_refused(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.begin({"seed": 1, "sizes": (3, 4)})
    run.begin({"seed": 1, "sizes": [3, 4]})
    with pytest.raises(UserError, match=r"config\.json: .*another configuration.*another name"):
        run.begin({"seed": 2, "sizes": [3, 4]})
    assert run.config == {"seed": 1, "sizes": [3, 4]}


def test_the_status_of_a_run(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert run.status == {}
    assert not run.finished
    run.fail("no memory")
    assert run.status == {"state": "failed", "error": "no memory"}
    assert not run.finished
    run.finish(digest="0a")
    assert run.status == {"state": "finished", "digest": "0a"}
    assert run.finished


def test_rewinding_forgets_what_came_later(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.rewind(10)
    assert run.metrics() == []
    for update in (10, 20, 20, 30):
        run.log(update, loss=update / 10)
    run.rewind(20)
    run.log(40, loss=4.0)
    assert [(line["update"], line["loss"]) for line in run.metrics()] == [
        (10, 1.0),
        (20, 2.0),
        (20, 2.0),
        (40, 4.0),
    ]
    run.rewind(0)
    assert (tmp_path / "metrics.jsonl").read_text() == ""


def test_a_line_that_was_cut_off_is_left_out_and_forgotten(tmp_path: Path) -> None:
    run, file = RunFolder(tmp_path), tmp_path / "metrics.jsonl"
    run.log(1, loss=1.0)
    run.log(2, loss=2.0)
    whole = file.read_text()
    for end in range(len(whole) // 2 + 1, len(whole) - 1):
        file.write_text(whole[:end])
        assert run.metrics() == [{"update": 1, "loss": 1.0}]
    run.rewind(5)
    run.log(6, loss=6.0)
    assert [line["update"] for line in run.metrics()] == [1, 6]


def test_a_checkpoint_comes_back(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert run.load("last") is None
    shared = torch.ones(4)
    tensors = {
        **TENSORS,
        "half": torch.randn(3, generator=torch.Generator()).bfloat16(),
        "turned": torch.arange(6).view(2, 3).T,
        "tied": shared[:2],
        "tied.too": shared,
        "none": torch.zeros(0, 3),
    }
    state = {"update": 3, "best": -float("inf"), "name": "Ω"}
    run.save("last", tensors, state)
    loaded = run.load("last")
    assert loaded is not None
    assert loaded[1] == state
    assert digest(loaded[0]) == digest(tensors)
    assert [file.name for file in (tmp_path / "checkpoints").iterdir()] == ["last.safetensors"]


def test_a_missing_checkpoint_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no checkpoint 'final'; train the run first"):
        RunFolder(tmp_path).need("final")


def test_a_checkpoint_that_was_cut_short_is_one_sentence(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.save("last", TENSORS, {"update": 3})
    file = tmp_path / "checkpoints" / "last.safetensors"
    content = file.read_bytes()
    for end in range(len(content)):
        file.write_bytes(content[:end])
        with pytest.raises(UserError, match=r"last\.safetensors: damaged .*; remove it"):
            run.load("last")


@given(st.data())
def test_a_checkpoint_with_a_changed_byte_is_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    run = RunFolder(tmp_path_factory.mktemp("run"))
    run.save("last", TENSORS, {"update": 3})
    file = run.path / "checkpoints" / "last.safetensors"
    content = bytearray(file.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(content)
    try:
        loaded = run.load("last")
    except UserError:
        return
    assert loaded is not None
    assert all(isinstance(value, torch.Tensor) for value in loaded[0].values())


def test_the_digest_is_of_names_kinds_shapes_and_bytes() -> None:
    tensors = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor(3)}
    same = {"b": torch.tensor(3), "a": torch.tensor([1.0, 0.0, 2.0, 0.0])[::2]}
    assert digest(tensors) == digest(same)
    others = [
        {**tensors, "a": torch.tensor([1.0, 2.0000002])},
        {**tensors, "a": torch.tensor([[1.0, 2.0]])},
        {**tensors, "a": torch.tensor([1.0, 2.0]).view(torch.int32)},
        {**tensors, "c": torch.tensor(3)},
        {"a": tensors["a"], "c": tensors["b"]},
        {},
    ]
    assert len({digest(tensors), *map(digest, others)}) == 7


def test_files_are_plain_json(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.begin({"seed": 1})
    run.finish(minutes=1.5)
    run.log(5, loss=0.25)
    assert json.loads((tmp_path / "config.json").read_text()) == {"seed": 1}
    assert json.loads((tmp_path / "status.json").read_text())["minutes"] == 1.5
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"update": 5, "loss": 0.25}


ANOTHER = """
import sys, time, torch
from pathlib import Path
from langgoalirl.stages import stage

def train(run):
    print("training", flush=True)
    sys.stdin.readline()
    return {"x": torch.ones(1)}

stage(Path(sys.argv[1]), "shared", {"seed": 1}, "langgoalirl.errors", train)
"""


@pytest.mark.skipif(os.name == "nt", reason="needs file locks")
def test_two_runs_that_want_the_same_stage_train_it_once(tmp_path: Path) -> None:
    """The second waits for the first, and finds what that left; if the first dies, it trains."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", ANOTHER, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    trains: dict[Any, subprocess.Popen[str]] = {p.stdout: p for p in processes}

    def next_one(running: dict[Any, Any]) -> subprocess.Popen[str]:
        """The process that has begun to train."""
        ready, _, _ = select.select(list(running), [], [], 60)
        process = running.pop(ready[0])
        assert process.stdout.readline() == "training\n"
        return process

    first = next_one(trains)
    for waits in trains.values():
        assert waits.stderr is not None
        assert "another run trains it" in waits.stderr.readline()
    assert not select.select(list(trains), [], [], 0.5)[0]
    first.kill()
    first.communicate()
    second = next_one(trains)
    (third,) = trains.values()
    second.communicate("\n", timeout=60)
    out, _ = third.communicate("\n", timeout=60)
    assert out == ""
    assert second.returncode == third.returncode == 0


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(list(run_folder._NAMES)), st.lists(st.integers(0, 3), max_size=3)
        ),
        max_size=6,
    )
)
def test_what_is_written_is_what_the_library_reads(
    kinds: list[tuple[torch.dtype, list[int]]],
) -> None:
    """Whatever the types and shapes, empty ones and single numbers included; views too."""
    draw = torch.Generator().manual_seed(0)
    tensors = {}
    for i, (dtype, shape) in enumerate(kinds):
        numbers = torch.randint(0, 2, (*shape, 2), generator=draw).to(dtype)
        tensors[f"t{i}"] = numbers[..., 0]  # not contiguous
    file = io.BytesIO()
    run_folder.write_tensors(file, tensors, {"state": "{}"})
    found = from_bytes(file.getvalue())
    assert found.keys() == tensors.keys()
    for name, value in tensors.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value)
