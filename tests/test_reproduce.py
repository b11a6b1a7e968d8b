"""`reproduce`: tables become runs, runs become tables, and nothing that fails or is cut off is
lost. The program itself is replaced by a script of a few lines."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from langgoalirl.adversarial import Learning
from langgoalirl.cli import main
from langgoalirl.config import load
from langgoalirl.experiments import local
from langgoalirl.experiments.numbers import Cell, as_markdown, cell, interquartile_mean
from langgoalirl.experiments.plan import Job, Row, Setting, jobs, result_file, tables

ROOT = Path(__file__).parents[1]
R2R = Setting("r2r", "devtrain", "devseen", "devunseen")

SCRIPT = """
import json, sys
from pathlib import Path
words = sys.argv[1:]
said = dict(zip(words, words[1:]))
with open("calls.txt", "a") as out:
    out.write(" ".join(words) + "\\n")
if "agile.toml" in " ".join(words):
    sys.exit("langgoalirl: no such luck.")
if words[0] == "evaluate":
    run = Path(words[1]).name
    seed = int(run.split("-s")[-1][0]) if "-adapted" not in run else int(run.split("-s")[1][0])
    method = run.split("-")[1] if said["--follower"] == "policy" else said["--follower"]
    name = method + ("+" + said["--variant"] if "--variant" in said else "")
    split = said["--split"]
    file = Path(said["--results"]) / f"{name}-train-{split}-s{seed}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    value = 0.5 + 0.1 * (method == "langgoalirl") + 0.01 * seed
    file.write_text(json.dumps({"metrics": {"sr": value}}))
"""


@pytest.fixture(autouse=True)
def _fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(SCRIPT)
    monkeypatch.setattr(local, "PROGRAM", [sys.executable, str(script)])
    monkeypatch.setattr(local, "LOOK_EVERY", 0.01)
    monkeypatch.chdir(tmp_path)


# The plan


def test_every_run_of_every_table_is_one_that_train_accepts(tmp_path: Path) -> None:
    """Its recipe is there and takes the overrides."""
    for world, split, seen, unseen in (
        ("r2r", "devtrain", "devseen", "devunseen"),
        ("houses", "train", "val_seen", "val_unseen"),
    ):
        setting = Setting(world, split, seen, unseen, recipes=ROOT / "recipes")
        for table in tables(setting).values():
            for job in jobs(table, setting, range(1), tmp_path, tmp_path):
                words = job.steps[0]
                fields = [word for word in words[6:] if "=" in word]  # behind --name and --runs
                recipe = load(Learning, Path(words[1]), fields)
                assert recipe.train_split == split
                assert [step[0] for step in job.steps[1:]] == (
                    ["adapt"] * (len(job.steps) - 1 - len(job.results))
                    + ["evaluate"] * len(job.results)
                )


def test_the_ablation_turns_the_switches_that_its_labels_name(tmp_path: Path) -> None:
    setting = Setting("r2r", "devtrain", "devseen", "devunseen", recipes=ROOT / "recipes")
    table = tables(setting)["ablation"]
    assert len(table.rows) == len({row.label for row in table.rows}) == 16
    for row in table.rows:
        file = ROOT / "recipes" / "r2r" / f"{row.recipe}.toml"
        used = load(Learning, file, row.overrides).strategies
        on = {"EGR": used.expert_goals > 0, "HGR": used.hgr, "HGS": used.hgs, "HER": used.her}
        label = " + ".join(name for name, is_on in on.items() if is_on) or "none"
        assert row.label == label


def test_runs_that_tables_share_leave_the_same_files(tmp_path: Path) -> None:
    found = tables(R2R)
    main_table = {j.results for j in jobs(found["main"], R2R, range(2), tmp_path, tmp_path)}
    ablation = {j.results for j in jobs(found["ablation"], R2R, range(2), tmp_path, tmp_path)}
    assert len(main_table & ablation) == 6  # LangGoalIRL, its base and HER, two seeds each
    every = [j for t in found.values() for j in jobs(t, R2R, range(1), tmp_path, tmp_path)]
    by_files = {job.results: job.steps for job in every}
    assert all(by_files[job.results][0] == job.steps[0] for job in every)


def test_the_first_seed_of_every_row_comes_first(tmp_path: Path) -> None:
    order = jobs(tables(R2R)["main"], R2R, range(3), tmp_path, tmp_path)
    seeds = [int(job.name[-1]) for job in order]
    assert seeds == sorted(seeds)


# Running


def test_what_is_missing_is_run_and_a_failure_holds_up_nobody(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["reproduce", "main", "--world", "houses", "--seeds", "2", "--jobs", "3"]
    assert main(command) != 0
    out = capsys.readouterr()
    assert "2 of the runs failed" in out.err
    assert "no such luck" in out.out
    calls = Path("calls.txt").read_text().splitlines()
    assert sum("agile.toml" in call for call in calls) == 2
    assert sum(call.startswith("evaluate") for call in calls) == 2 * (6 * 2 + 1)
    page = Path("runs/main-houses.md").read_text()
    assert "| LangGoalIRL | 2 | 0.605 ± 0.007 |" in page
    assert "| +0.100 ± 0.000 | .530 ± .014 |" in page
    assert "| AGILE | 0 | – |" in page

    assert main(command) != 0  # only what failed is tried again
    again = Path("calls.txt").read_text().splitlines()[len(calls) :]
    assert len(again) == 2
    assert all("agile.toml" in call for call in again)


def test_a_budget_says_what_it_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "main", "--seeds", "1", "--jobs", "2", "--budget", "30m", "--plan"]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["jobs"]) == 4
    assert found["jobs"][0] == "Behaviour cloning, seed 0"
    assert len(found["left_out"]) == 4
    assert not Path("calls.txt").exists()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--budget", "soon"], "write 90m or 2h"),
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--jobs", "0"], "--jobs must be at least 1"),
        (["--world", "r2r", "--train-split", "test"], "neither train nor devtrain"),
    ],
)
def test_mistakes_are_answered(
    wrong: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "main", *wrong]) != 0
    assert message in capsys.readouterr().err


def test_a_job_that_leaves_no_results_has_failed(tmp_path: Path) -> None:
    job = Job("odd", (("train", "x"),), (tmp_path / "never.json",))
    state = local.run([job], 1, tmp_path / "logs")
    assert state.failed == {"odd": "it left no result files"}


# Numbers


def test_the_interquartile_mean_by_hand() -> None:
    assert interquartile_mean(np.array([1.0, 2.0, 3.0, 10.0])) == pytest.approx(2.5)
    # Of five seeds a quarter is one and a quarter of them: .75 of the second and the fourth.
    wanted = (0.75 * 2 + 3 + 0.75 * 5) / 2.5
    assert interquartile_mean(np.array([0.0, 2.0, 3.0, 5.0, 99.0])) == pytest.approx(wanted)
    assert interquartile_mean(np.array([4.0])) == 4.0


def test_differences_are_paired_by_seed() -> None:
    ours, base = Cell({0: 0.6, 1: 0.5, 2: 0.9}), Cell({0: 0.5, 1: 0.2, 7: 0.1})
    apart, error = ours.above(base)
    assert apart == pytest.approx(0.2)
    assert error == pytest.approx(0.1)
    assert math.isnan(ours.above(Cell({5: 1.0}))[0])


def test_intervals_need_three_seeds() -> None:
    assert Cell({0: 0.1, 1: 0.2}).interval is None
    low, high = Cell({0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}).interval or (0, 0)
    assert 0.1 < low < 0.25 < high < 0.4


def test_a_cell_holds_what_its_files_say(tmp_path: Path) -> None:
    row = Row("x", "langgoalirl", ("strategies.hgs=false",))
    for seed, value in ((0, 0.25), (2, 0.75)):
        file = result_file(row, R2R, "devseen", seed, tmp_path)
        assert file.name == f"langgoalirl+hgs=false-devtrain-devseen-s{seed}.json"
        file.write_text(json.dumps({"metrics": {"sr": value}}))
    found = cell(row, R2R, "devseen", range(3), tmp_path)
    assert found is not None
    assert found.values == {0: 0.25, 2: 0.75}
    assert cell(row, R2R, "devunseen", range(3), tmp_path) is None
    table = tables(R2R)["main"]
    assert as_markdown(table, R2R, range(3), tmp_path).count("| – |") >= len(table.rows)
