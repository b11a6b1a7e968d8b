"""Submissions: what is refused and why, round trips, and agreement with published evaluators."""

from __future__ import annotations

import gzip
import json
import math
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from langgoalirl import submission
from langgoalirl.errors import UserError
from langgoalirl.metrics import PROTOCOLS
from langgoalirl.submission import (
    evaluate_predictions,
    protocol_rows,
    read_submission,
    write_submission,
)
from langgoalirl.worlds.navgraph import House, NavGraph
from langgoalirl.worlds.r2r import read_connectivity, read_split
from langgoalirl.worlds.types import References, Split, Tasks


def chain(name: str, viewpoints: str) -> House:
    """Viewpoints in a row, 2 m apart."""
    n = len(viewpoints)
    positions = np.arange(n)[:, None] * np.array([[2.0, 0.0, 0.0]])
    edges = np.eye(n, k=1, dtype=bool) | np.eye(n, k=-1, dtype=bool)
    return House(name, list(viewpoints), positions, edges, edges, np.ones(n))


WORLD = NavGraph([chain("one", "abcd"), chain("two", "ef")], torch.zeros(7, 36, 8))
IDS = ["7_0", "7_1", "7_2", "7_3", "9_0"]
STARTS = torch.tensor([0, 0, 0, 0, 4])
SPLIT = Split(
    "tiny",
    Tasks(IDS, ["go"] * 5, STARTS * 36 + 12, torch.tensor([0, 0, 0, 0, 1])),
    None,
    References(torch.tensor([[0, 1, 2]] * 4 + [[4, 5, 5]]), torch.tensor([3, 3, 3, 3, 2])),
)


def valid() -> list:
    """A submission that stays at the start in house one and walks once in house two."""
    entries = [{"instr_id": name, "trajectory": [["a", 0.0, 0.0]]} for name in IDS[:4]]
    walked = [["e", 0, 0.0], ["e", 0.5, 0.0], ["f"]]
    return [*entries, {"instr_id": "9_0", "trajectory": walked}]


def saved(folder: Path, entries: object) -> Path:
    file = folder / "submit.json"
    file.write_text(json.dumps(entries))
    return file


def test_any_order_becomes_the_splits_order(tmp_path: Path) -> None:
    paths, lengths = read_submission(saved(tmp_path, valid()[::-1]), WORLD, SPLIT)
    assert lengths.tolist() == [1, 1, 1, 1, 3]
    assert paths.tolist() == [[0, 0, 0]] * 4 + [[4, 4, 5]]


def changed(place: tuple, value: object) -> list:
    """The valid submission with one thing replaced."""
    entries: list = valid()
    node = entries
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    return entries


REFUSED = [
    (valid()[1:], "1 of the 5 ids of split 'tiny' are missing, '7_0' first"),
    ([], "5 of the 5 ids"),
    ([*valid(), valid()[2]], "'7_2' is there twice"),
    ({"7_0": []}, "a list of entries is expected at the top, not an object"),
    (None, "not null"),
    (changed((1,), ["7_1", []]), "entry 1 is no object with 'instr_id' and 'trajectory'"),
    (changed((1,), {"instr_id": "7_1"}), "entry 1 is no object with"),
    (changed((1, "instr_id"), "8_0"), "entry 1 has the unknown instr_id '8_0'"),
    (changed((1, "instr_id"), "7_1\n\ud800"), r"unknown instr_id '7_1\n\ud800'"),
    (changed((1, "instr_id"), 7), "unknown instr_id a number"),
    (changed((1, "instr_id"), ["7_1"]), "unknown instr_id a list"),
    (changed((1, "trajectory"), "a"), "'7_1' has a string as its trajectory"),
    (changed((1, "trajectory"), True), "'7_1' has true or false as its trajectory"),
    (changed((1, "trajectory"), []), "'7_1' has an empty trajectory"),
    (changed((1, "trajectory"), [["a"]] * 1001), "'7_1' has a trajectory of 1,001 steps, more"),
    (changed((4, "trajectory", 1), "e"), "'9_0', step 1 is neither"),
    (changed((4, "trajectory", 1), []), "'9_0', step 1 is neither"),
    (changed((4, "trajectory", 1), ["e", 0.0]), "'9_0', step 1 is neither"),
    (changed((4, "trajectory", 1), ["e", 0.0, None]), "'9_0', step 1 is neither"),
    (changed((4, "trajectory", 1), ["e", True, 0.0]), "'9_0', step 1 is neither"),
    (changed((4, "trajectory", 1), [5, 0.0, 0.0]), "'9_0', step 1 is neither"),
    (changed((4, "trajectory", 1), ["x" * 99]), f"'{'x' * 60}'… is no viewpoint of this world"),
    (changed((4, "trajectory", 1), ["b"]), "step 1: 'b' is in house 'one'; a viewpoint of house"),
    (changed((1, "trajectory"), [["b"]]), "'7_1' starts at 'b', but its instruction starts at 'a'"),
    (changed((1, "trajectory"), [["a"], ["b"], ["d"]]), "'7_1', step 2: no edge leads from 'b' to"),
]


@pytest.mark.parametrize(("entries", "reason"), REFUSED)
def test_faults_are_refused_with_the_reason(tmp_path: Path, entries: object, reason: str) -> None:
    file = saved(tmp_path, entries)
    with pytest.raises(UserError, match=re.escape(reason)) as caught:
        read_submission(file, WORLD, SPLIT)
    message = str(caught.value)
    assert message.startswith(str(file))
    assert message.endswith(".")
    assert message.isprintable()


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    file = saved(tmp_path, valid())
    file.write_text(file.read_text()[:-9])
    with pytest.raises(UserError, match="not valid JSON"):
        read_submission(file, WORLD, SPLIT)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.sampled_from("abcdefg7_0"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["instr_id", "trajectory"]), inner)
    ),
    max_leaves=5,
)
places = st.one_of(
    st.tuples(st.integers(0, 4)),
    st.tuples(st.integers(0, 4), st.sampled_from(["instr_id", "trajectory"])),
    st.tuples(st.just(4), st.just("trajectory"), st.integers(0, 2)),
    st.tuples(st.just(4), st.just("trajectory"), st.integers(0, 1), st.integers(0, 2)),
)


@settings(deadline=None, max_examples=150)
@given(places, values)
def test_whatever_is_in_the_file_it_is_a_walk_or_refused(place: tuple, value: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            paths, lengths = read_submission(
                saved(Path(folder), changed(place, value)), WORLD, SPLIT
            )
        except UserError:
            return
    assert paths[:, 0].equal(STARTS)
    assert (lengths >= 1).all()
    assert lengths.max() == paths.shape[1]
    assert ((paths[:, 1:] - paths[:, :-1]).abs() <= 1).all()
    assert WORLD.house_of[paths].equal(WORLD.house_of[STARTS][:, None].expand_as(paths))


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.integers(0, 2), min_size=5, max_size=5), min_size=1, max_size=6))
def test_what_is_written_is_read_again(choices: list[list[int]]) -> None:
    states = [SPLIT.tasks.start]
    for choice in choices:
        count = WORLD.mask[states[-1] // 36].sum(1)
        states.append(WORLD.step(states[-1], torch.tensor(choice) % count))
    visited = torch.stack(states, 1)
    lengths = torch.arange(5) % len(states) + 1
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "predictions" / "tiny.json"
        write_submission(file, WORLD, SPLIT, visited, lengths)
        paths, read_lengths = read_submission(file, WORLD, SPLIT)
        assert [f.name for f in file.parent.iterdir()] == ["tiny.json"]
    assert read_lengths.equal(lengths)
    for row, length in enumerate(lengths.tolist()):
        assert paths[row, :length].equal(visited[row, :length] // 36)


def test_the_written_format(tmp_path: Path) -> None:
    one = Split("one", Tasks(["9_0"], ["go"], STARTS[4:] * 36 + 12, STARTS[4:]), None, None)
    file = tmp_path / "submit.json"
    write_submission(
        file, WORLD, one, torch.tensor([[4 * 36 + 12, 5 * 36 + 27, 0]]), STARTS[4:] // 2
    )
    (entry,) = json.loads(file.read_text())
    assert entry.keys() == {"instr_id", "trajectory"}
    assert entry["instr_id"] == "9_0"
    first, second = entry["trajectory"]
    assert first == ["e", 0.0, 0.0]
    assert second == ["f", pytest.approx(math.pi / 2), pytest.approx(math.pi / 6)]


def test_the_simulator_reads_three_instructions_of_a_path(tmp_path: Path) -> None:
    assert protocol_rows(SPLIT, "simulator").tolist() == [0, 1, 2, 4]
    assert protocol_rows(SPLIT, "envdrop").tolist() == [0, 1, 2, 3, 4]
    assert protocol_rows(SPLIT, "duet").tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(UserError, match="no protocol"):
        protocol_rows(SPLIT, "other")

    file = saved(tmp_path, valid())
    means, scores = evaluate_predictions(file, WORLD, SPLIT, "simulator")
    assert means["n"] == 4
    assert means["sr"] == 0.25
    assert scores["ne"].tolist() == [4, 4, 4, 0]
    assert scores["tl"].tolist() == [0, 0, 0, 2]
    assert evaluate_predictions(file, WORLD, SPLIT, "duet")[0]["sr"] == 0.2
    with pytest.raises(UserError, match="'7_3' first"):  # complete, although it is not scored
        evaluate_predictions(saved(tmp_path, valid()[:3] + valid()[4:]), WORLD, SPLIT, "simulator")


def test_scores_do_not_depend_on_how_many_are_scored_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = saved(tmp_path, valid())
    means, scores = evaluate_predictions(file, WORLD, SPLIT, "envdrop")
    monkeypatch.setattr(submission, "AT_ONCE", 2)
    again, parts = evaluate_predictions(file, WORLD, SPLIT, "envdrop")
    assert again == means
    assert all(parts[name].equal(scores[name]) for name in scores)


def test_a_split_without_goals_is_refused(tmp_path: Path) -> None:
    hidden = Split("test", SPLIT.tasks, None, None)
    with pytest.raises(UserError, match="Split 'test' has no goals"):
        evaluate_predictions(saved(tmp_path, valid()), WORLD, hidden, "envdrop")


# How each published evaluator calls our metrics, in its summary and per instruction.
SUMMARY = {
    "simulator": {
        "tl": "length",
        "ne": "nav_error",
        "osr": "oracle success_rate",
        "sr": "success_rate",
        "spl": "spl",
    },
    "envdrop": {
        "tl": "lengths",
        "ne": "nav_error",
        "osr": "oracle_rate",
        "sr": "success_rate",
        "spl": "spl",
    },
    "duet": {
        "tl": "lengths",
        "ne": "nav_error",
        "osr": "oracle_sr",
        "sr": "sr",
        "spl": "spl",
        "ndtw": "nDTW",
        "sdtw": "SDTW",
        "cls": "CLS",
    },
}
ITEMS = {
    "simulator": {"tl": "trajectory_lengths", "ne": "nav_errors"},
    "envdrop": {"tl": "trajectory_lengths", "ne": "nav_errors"},
    "duet": {
        "tl": "trajectory_lengths",
        "ne": "nav_error",
        "osr": "oracle_success",
        "sr": "success",
        "spl": "spl",
        "ndtw": "nDTW",
        "sdtw": "SDTW",
        "cls": "CLS",
    },
}
METRES = ("tl", "ne")


@pytest.fixture(scope="module")
def real(r2r_dir: Path) -> NavGraph:
    houses = read_connectivity(r2r_dir / "connectivity")
    return NavGraph(houses, torch.zeros(sum(map(len, houses)) + 1, 36, 4))


@pytest.fixture(scope="module")
def genuine(real: NavGraph, r2r_dir: Path) -> Split:
    return read_split(real, r2r_dir / "annotations/R2R_val_seen.json")


@pytest.fixture(scope="module")
def edited(real: NavGraph, r2r_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Split:
    """The edition of val_seen that the evaluators were run with: path 4554 lacks its start."""
    entries = json.loads((r2r_dir / "annotations/R2R_val_seen.json").read_text())
    (shortened,) = (entry for entry in entries if entry["path_id"] == 4554)
    del shortened["path"][0]
    file = tmp_path_factory.mktemp("annotations") / "R2R_val_seen.json"
    file.write_text(json.dumps(entries))
    return read_split(real, file)


def unpacked(folder: Path, file: Path) -> Path:
    target = folder / file.stem
    target.write_bytes(gzip.decompress(file.read_bytes()))
    return target


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("agent", ["shortest", "random", "noisy"])
def test_agrees_with_the_published_evaluators(
    real: NavGraph, edited: Split, oracle_dir: Path, tmp_path: Path, agent: str, protocol: str
) -> None:
    name = f"val_seen_{agent}"
    file = unpacked(tmp_path, oracle_dir / f"results/{name}.json.gz")
    means, scores = evaluate_predictions(file, real, edited, protocol)

    official = json.loads((oracle_dir / "official_eval.json").read_text())[protocol][name]
    assert means["n"] == official["instructions"]
    for ours, theirs in SUMMARY[protocol].items():
        scale = 100 if protocol == "duet" and ours not in METRES else 1
        assert means[ours] == pytest.approx(official[theirs] / scale, abs=1e-6), ours

    packed = oracle_dir / f"official_items/{protocol}_{name}.json.gz"
    items = json.loads(gzip.decompress(packed.read_bytes()))
    rows = protocol_rows(edited, protocol).tolist()
    order = {instruction: i for i, instruction in enumerate(items["instr_id"])}
    order_of_rows = [order.pop(edited.tasks.ids[row]) for row in rows]
    assert not order
    for ours, theirs in ITEMS[protocol].items():
        column = np.array(items[theirs], dtype=float)[order_of_rows]
        np.testing.assert_allclose(scores[ours].numpy(), column, rtol=0, atol=1e-6, err_msg=ours)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_both_editions_score_a_submission_alike(
    real: NavGraph, edited: Split, genuine: Split, oracle_dir: Path, tmp_path: Path, protocol: str
) -> None:
    file = unpacked(tmp_path, oracle_dir / "results/val_seen_noisy.json.gz")
    _, wanted = evaluate_predictions(file, real, edited, protocol)
    _, found = evaluate_predictions(file, real, genuine, protocol)
    for name, scores in wanted.items():
        assert torch.equal(found[name], scores), name


def test_other_paths_begin_where_they_begin(
    real: NavGraph, genuine: Split, oracle_dir: Path, tmp_path: Path
) -> None:
    file = unpacked(tmp_path, oracle_dir / "results/val_seen_shortest.json.gz")
    entries = json.loads(file.read_text())
    (other,) = (entry for entry in entries if entry["instr_id"] == genuine.tasks.ids[0])
    del other["trajectory"][0]
    file.write_text(json.dumps(entries))
    with pytest.raises(UserError, match=f"'{genuine.tasks.ids[0]}' starts at"):
        read_submission(file, real, genuine)
