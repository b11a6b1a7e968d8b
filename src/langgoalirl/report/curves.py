"""Learning curves: success against interactions and against minutes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.figure import Figure

COLOURS = ("#c2410c", "#2563eb", "#15803d", "#7c3aed", "#b45309", "#0e7490", "#be185d", "#475569")


@dataclass(frozen=True)
class Curve:
    """What one run logged; runs with the same label are seeds of one method."""

    label: str
    lines: list[dict[str, Any]]  # of metrics.jsonl

    def points(self, key: str) -> tuple[list[float], list[float], list[float]]:
        """Thousands of interactions, minutes, and the number `key` wherever it was logged."""
        found = [line for line in self.lines if key in line and "interactions" in line]
        return (
            [line["interactions"] / 1000 for line in found],
            [line["seconds"] / 60 for line in found],
            [line[key] for line in found],
        )


def learning_curves(curves: list[Curve], split: str, key: str = "sr") -> Figure:
    """Two panels; every run is a line, and a colour is a method."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
    labels = list(dict.fromkeys(curve.label for curve in curves))
    for curve in curves:
        thousands, minutes, values = curve.points(f"{key}_{split}")
        colour = COLOURS[labels.index(curve.label) % len(COLOURS)]
        for axis, x in zip(axes, (thousands, minutes), strict=True):
            axis.plot(x, values, color=colour, lw=1.5, marker="o", ms=2.5)
    for label, colour in zip(labels, COLOURS * len(labels), strict=False):
        axes[0].plot([], [], color=colour, label=label)
    axes[0].set(xlabel="thousand interactions", ylabel=f"success, {split}")
    axes[1].set(xlabel="minutes of training")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", color="#e4e7eb")
    axes[0].legend(frameon=False, fontsize=8)
    return figure
