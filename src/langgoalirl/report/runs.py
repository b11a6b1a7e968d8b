"""A page about runs of `train`: what was run, how it went on, how it ended."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langgoalirl.errors import UserError
from langgoalirl.report.curves import Curve, learning_curves
from langgoalirl.report.maps import svg
from langgoalirl.report.page import page, table
from langgoalirl.run_folder import RunFolder


@dataclass(frozen=True)
class Finished:
    """What a run's folder says, once its policy was trained."""

    path: Path
    config: dict[str, Any]
    status: dict[str, Any]  # of the policy's stage
    lines: list[dict[str, Any]]

    @classmethod
    def read(cls, path: Path) -> Finished:
        """A run's folder, read without building anything."""
        run = RunFolder(path)
        stages = run.status.get("stages", {})
        if "policy" not in stages:
            raise UserError(f"{path}: is no finished run of 'langgoalirl train'.")
        policy = RunFolder(path.parent / stages["policy"])
        return cls(path, run.config, policy.status, policy.metrics())

    @property
    def label(self) -> str:
        """The method, by which seeds belong together."""
        return self.config["method"]

    def last(self, split: str) -> float | None:
        """Success at the last look."""
        return next((x[f"sr_{split}"] for x in reversed(self.lines) if f"sr_{split}" in x), None)

    @property
    def watched(self) -> list[str]:
        """The splits whose success was looked at while it was trained."""
        keys = {key for line in self.lines for key in line}
        return sorted(key.removeprefix("sr_") for key in keys if key.startswith("sr_"))


def runs_page(paths: list[Path]) -> str:
    """One document about some runs."""
    runs = [Finished.read(path) for path in paths]
    splits = sorted({split for run in runs for split in run.watched})
    head = ["run", "method", "train split", "seed", "interactions", "minutes"]
    rows = [
        [
            run.path.name,
            run.label,
            run.config["train_split"],
            run.config["seed"] + run.config["run_seed"],
            max((line.get("interactions", 0) for line in run.lines), default=0),
            f"{run.status['minutes']:.1f}",
            *(run.last(split) for split in splits),
        ]
        for run in runs
    ]
    curves = [Curve(run.label, run.lines) for run in runs if run.watched]
    drawn = "".join(
        f"<h2>{html.escape(split)}</h2>{svg(learning_curves(curves, split))}" for split in splits
    )
    hint = "" if splits else "<p>No split was watched: set watch=SPLIT,… for learning curves.</p>"
    body = f"""<h1>LangGoalIRL: {len(runs)} run{"s" if len(runs) > 1 else ""}</h1>
<p>Success at the last look while training, for the splits that were watched.</p>
{table([*head, *splits], rows)}{hint}{drawn}"""
    return page("LangGoalIRL: runs", body)
