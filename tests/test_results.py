"""Result files: named by what they hold, complete."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from langgoalirl.errors import UserError
from langgoalirl.results import as_markdown, gather, provenance, write_result


def test_a_result_says_where_it_came_from(tmp_path: Path) -> None:
    file = write_result(
        tmp_path,
        method="bc",
        variant="shuffled",
        train_split="train",
        split="val_seen",
        seed=3,
        config={"seed": 3},
        metrics={"sr": 0.5},
        minutes=1.5,
    )
    assert file.name == "bc+shuffled-train-val_seen-s3.json"
    value = json.loads(file.read_text(encoding="utf-8"))
    assert value["metrics"] == {"sr": 0.5}
    assert value["minutes"] == 1.5
    assert value["command"].startswith("langgoalirl")
    assert {"commit", "date", "machine", "interactions", "config", "overrides"} <= value.keys()


def a_file(folder: Path, method: str, seed: int, sr: float, **more: float) -> None:
    write_result(
        folder,
        method=method,
        train_split="train",
        split="val_seen",
        seed=seed,
        config={},
        metrics={"sr": sr, **more},
        minutes=float(seed),
    )


def test_seeds_are_gathered_into_mean_and_deviation(tmp_path: Path) -> None:
    for seed, sr in enumerate((0.25, 0.5, 0.75)):
        a_file(tmp_path, "bc", seed, sr)
    a_file(tmp_path, "her", 0, 0.125, spl=0.0625)
    (tmp_path / "note.json").write_text("[]", encoding="utf-8")
    bc, her = gather(tmp_path, ["sr", "spl"])
    assert (bc.name, bc.seeds, bc.minutes) == ("bc", 3, 1.0)
    assert (bc.mean, bc.deviation) == ({"sr": 0.5}, {"sr": 0.25})
    assert [bc.shown("sr"), bc.shown("spl")] == ["0.500 ± 0.250", "–"]
    assert [her.shown("sr"), her.shown("spl")] == ["0.125", "0.062"]
    last = as_markdown([her], ["sr"]).splitlines()[-1]
    assert last == "| her | train | val_seen | 1 | 0.0 | 0.125 |"


@pytest.mark.parametrize(
    ("field", "value"), [("method", 1), ("minutes", None), ("metrics", 3), ("metrics", {"sr": {}})]
)
def test_a_damaged_result_is_one_sentence(tmp_path: Path, field: str, value: object) -> None:
    a_file(tmp_path, "bc", 0, 0.5)
    (file,) = tmp_path.glob("*.json")
    content = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(content | {field: value}), encoding="utf-8")
    with pytest.raises(UserError, match=f"{file.name}: is damaged"):
        gather(tmp_path, ["sr"])


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no result files"):
        gather(tmp_path, ["sr"])


def test_a_result_names_its_command_but_no_place_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ["x", "evaluate", "runs/a", "--split", "s", "--results", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", words)
    assert provenance()["command"] == "langgoalirl evaluate runs/a --split s --results out"
