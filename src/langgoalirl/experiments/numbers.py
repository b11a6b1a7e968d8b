"""What came of a table's runs: means, intervals, and differences that are paired by seed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

import numpy as np

from langgoalirl.experiments.plan import Row, Setting, Table, result_file
from langgoalirl.files import read_json

RESAMPLES = 2000


@dataclass(frozen=True)
class Cell:
    """Success over seeds."""

    values: dict[int, float]  # by seed

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return fmean(self.values.values())

    @property
    def deviation(self) -> float | None:
        """Of a single seed; None where there is only one."""
        return stdev(self.values.values()) if len(self.values) > 1 else None

    @property
    def middle(self) -> float:
        """The interquartile mean: of the middle half of the seeds, parts of a seed included."""
        return interquartile_mean(np.array(sorted(self.values.values())))

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % of the means of seeds drawn anew; None for fewer than three seeds."""
        found = np.array(list(self.values.values()))
        if len(found) < 3:
            return None
        draw = np.random.default_rng(0).integers(len(found), size=(RESAMPLES, len(found)))
        low, high = np.quantile(found[draw].mean(1), [0.025, 0.975])
        return float(low), float(high)

    def above(self, other: Cell) -> tuple[float, float | None]:
        """The mean difference over the seeds that both have, and its standard error."""
        seeds = self.values.keys() & other.values.keys()
        apart = [self.values[seed] - other.values[seed] for seed in sorted(seeds)]
        if not apart:
            return math.nan, None
        error = stdev(apart) / math.sqrt(len(apart)) if len(apart) > 1 else None
        return fmean(apart), error


def interquartile_mean(ordered: np.ndarray) -> float:
    """The mean between the first and the third quartile of sorted numbers."""
    n = len(ordered)
    # Number i covers the share from i / n to (i + 1) / n of all; what of it lies in the middle?
    edges = np.arange(n + 1) / n
    weight = np.clip(edges[1:], 0.25, 0.75) - np.clip(edges[:-1], 0.25, 0.75)
    return float((ordered * weight).sum() / weight.sum())


def cell(row: Row, setting: Setting, split: str, seeds: range, results: Path) -> Cell | None:
    """What is known of a row on a split; None where nothing is."""
    values = {}
    for seed in seeds:
        file = result_file(row, setting, split, seed, results)
        if file.exists():
            values[seed] = float(read_json(file)["metrics"]["sr"])
    return Cell(values) if values else None


def as_markdown(table: Table, setting: Setting, seeds: range, results: Path) -> str:
    """Ours beside the paper's, row by row."""
    names = {setting.seen: "seen", setting.unseen: "unseen"}
    head = ["", "seeds"]
    for split in table.splits:
        head += [split, "95 %", "over BASE", f"paper, {names[split]}"]
    base = Row("", "langgoalirl_base")
    references = {s: cell(base, setting, s, seeds, results) for s in table.splits}
    lines = [head, ["---"] * len(head)]
    for row in table.rows:
        found = {s: cell(row, setting, s, seeds, results) for s in table.splits}
        counts = [len(c.values) for c in found.values() if c is not None]
        line = [row.label, str(max(counts, default=0))]
        for split in table.splits:
            line += [*_texts(found[split], references[split], row), row.paper.get(names[split], "")]
        lines.append(line)
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return (
        f"### {table.title}\n\n{table.note}\n\n{body}\n"
        if table.note
        else (f"### {table.title}\n\n{body}\n")
    )


def _texts(found: Cell | None, reference: Cell | None, row: Row) -> list[str]:
    if found is None:
        return ["–", "", ""]
    spread = f" ± {found.deviation:.3f}" if found.deviation is not None else ""
    interval = found.interval
    between = f"{interval[0]:.3f} to {interval[1]:.3f}" if interval else ""
    over = ""
    if reference is not None and not (
        row.recipe == "langgoalirl_base" and not row.adapt and row.follower == "policy"
    ):
        apart, error = found.above(reference)
        if not math.isnan(apart):
            over = f"{apart:+.3f}" + (f" ± {error:.3f}" if error is not None else "")
    return [f"{found.mean:.3f}{spread}", between, over]
