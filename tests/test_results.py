"""Result files: named by what they hold, complete."""

from __future__ import annotations

import json
from pathlib import Path

from langgoalirl.results import write_result


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
