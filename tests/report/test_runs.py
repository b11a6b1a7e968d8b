"""The page about runs: it reads folders, and what they logged is what it draws."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from langgoalirl.errors import UserError
from langgoalirl.report.curves import Curve, learning_curves
from langgoalirl.report.runs import runs_page
from langgoalirl.run_folder import RunFolder

LINES = [
    {"interactions": 0, "sr_val_seen": 0.25, "seconds": 0.0},
    {"interactions": 4000, "sr_val_seen": 0.5, "seconds": 90.0},
]


def a_run(runs: Path, method: str, seed: int) -> Path:
    policy = RunFolder(runs / "stages" / f"{method}-{seed}")
    for update, line in enumerate(LINES):
        policy.log(update, **line)
    policy.finish(minutes=1.5)
    run = RunFolder(runs / f"{method}-s{seed}")
    run.begin({"method": method, "train_split": "train", "seed": seed, "run_seed": 0})
    run.finish(stages={"policy": f"stages/{method}-{seed}"})
    return run.path


def test_the_page_tells_how_every_run_ended(tmp_path: Path) -> None:
    runs = [a_run(tmp_path, "langgoalirl", seed) for seed in (0, 1)]
    text = runs_page([*runs, a_run(tmp_path, "her", 0)])
    rows = re.findall(r"<tr><td>(.*?)</td>.*?<td class=n>([^<]*)</td></tr>", text)
    names = ["langgoalirl-s0", "langgoalirl-s1", "her-s0"]
    assert rows == [(name, "0.500") for name in names]
    assert text.count("<svg") == 1
    assert text.count("<td class=n>4000</td>") == 3
    assert not re.search(r"(src|href)=[\"']?https?:", text)


def test_a_run_that_watched_nothing_is_told_how_to(tmp_path: Path) -> None:
    run = a_run(tmp_path, "her", 0)
    (tmp_path / "stages" / "her-0" / "metrics.jsonl").write_text("", encoding="utf-8")
    text = runs_page([run])
    assert "watch=SPLIT" in text
    assert "<svg" not in text


def test_what_is_no_run_of_train_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no finished run of 'langgoalirl train'"):
        runs_page([tmp_path])


def test_curves_are_drawn_against_interactions_and_minutes() -> None:
    figure = learning_curves([Curve("her", LINES), Curve("her", LINES[:1])], "val_seen")
    left, right = figure.axes
    assert [line.get_xydata().tolist() for line in left.lines[:2]] == [  # type: ignore[union-attr]
        [[0, 0.25], [4, 0.5]],
        [[0, 0.25]],
    ]
    assert right.lines[0].get_xydata().tolist() == [[0, 0.25], [1.5, 0.5]]  # type: ignore[union-attr]
    legend = left.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["her"]
