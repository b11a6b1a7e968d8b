"""How well paths follow instructions, as the evaluators of the field count it.

Three evaluators are in use, and papers rarely say which. They agree on everything but two points:
`duet` weighs success by the annotated path's length, the others by the shortest distance; and
`simulator` reads only the first three instructions of a path (see `submission.protocol_rows`).

Distances are metres along the graph. Turning on the spot repeats a viewpoint and costs nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from langgoalirl.errors import UserError, nearest
from langgoalirl.worlds.navgraph import NavGraph
from langgoalirl.worlds.types import References

PROTOCOLS = ("envdrop", "simulator", "duet")

RADIUS = 3.0
"""Metres: who ends nearer to the goal than this has found it; also the scale of nDTW and CLS."""


def check_protocol(protocol: str) -> None:
    """Refuse a protocol that does not exist."""
    if protocol not in PROTOCOLS:
        raise UserError(f"There is no protocol '{protocol}'.{nearest(protocol, PROTOCOLS)}")


def score(
    world: NavGraph,
    paths: Tensor,
    lengths: Tensor,
    references: References,
    protocol: str = "envdrop",
) -> dict[str, Tensor]:
    """Every metric of every path [n, T], of which `lengths` [n] viewpoints are real: [n] each.

    tl: metres walked; ne: metres left to the goal; osr, sr: whether the path came, and ended,
    within the radius; spl: success by path length; ndtw, sdtw: likeness to the annotated path in
    its order (sdtw only of successes); cls: coverage of the annotated path by length.
    """
    check_protocol(protocol)
    walked = _stay_at_end(paths.to(world.device), lengths.to(world.device))
    annotated, steps = references.paths.to(world.device), references.lengths.to(world.device)
    start, goal = annotated[:, 0], annotated[:, -1]

    apart = world.distance(walked[:, :, None], annotated[:, None, :])  # [n, T, L]
    to_goal = apart[:, :, -1]
    success = (to_goal[:, -1] < RADIUS).double()
    metres = _metres(world, walked)
    annotated_metres = _metres(world, annotated)
    needed = annotated_metres if protocol == "duet" else world.distance(start, goal)
    likeness = torch.exp(-_warping(apart, _arrivals(walked), steps) / (RADIUS * steps))
    return {
        "tl": metres,
        "ne": to_goal[:, -1],
        "osr": (to_goal < RADIUS).any(1).double(),
        "sr": success,
        "spl": success * _share(needed, torch.maximum(needed, metres)),
        "ndtw": likeness,
        "sdtw": success * likeness,
        "cls": _coverage_by_length(apart, steps, metres, annotated_metres),
    }


def summary(scores: dict[str, Tensor]) -> dict[str, float]:
    """The mean of each metric, and `n`: over how many rows."""
    means: dict[str, float] = {name: values.mean().item() for name, values in scores.items()}
    return {**means, "n": len(scores["sr"])}


def _stay_at_end(paths: Tensor, lengths: Tensor) -> Tensor:
    """Whatever the padding was, it becomes turns at the last viewpoint, which change no metric."""
    step = torch.arange(paths.shape[1], device=paths.device)
    return paths.gather(1, torch.minimum(step, lengths[:, None] - 1))


def _arrivals(paths: Tensor) -> Tensor:
    """[n, T] which steps come to another viewpoint than the one before; the first always does."""
    arrives = torch.ones_like(paths, dtype=torch.bool)
    arrives[:, 1:] = paths[:, 1:] != paths[:, :-1]
    return arrives


def _metres(world: NavGraph, paths: Tensor) -> Tensor:
    """[n] the length of each path."""
    return world.distance(paths[:, :-1], paths[:, 1:]).sum(1)


def _share(part: Tensor, whole: Tensor) -> Tensor:
    """`part / whole`, and all of it where there is nothing: a goal at the start needs no way."""
    return torch.where(whole > 0, part / whole, 1.0)


def _warping(apart: Tensor, arrives: Tensor, steps: Tensor) -> Tensor:
    """[n] the least sum of distances over all monotone pairings of a path with its annotation.

    A table row is one step of the path, a column one step of the annotation. A turn on the spot
    is no step: it leaves the row as it was.
    """
    n, time, columns = apart.shape
    row = apart.new_full((n, columns + 1), torch.inf)
    row[:, 0] = 0.0  # before the first step of either
    for t in range(time):
        following = torch.full_like(row, torch.inf)
        for j in range(columns):
            cheapest = torch.minimum(row[:, j : j + 2].amin(1), following[:, j])
            following[:, j + 1] = apart[:, t, j] + cheapest
        row = torch.where(arrives[:, t, None], following, row)
    return row.gather(1, steps[:, None]).squeeze(1)


def _coverage_by_length(apart: Tensor, steps: Tensor, walked: Tensor, annotated: Tensor) -> Tensor:
    """[n] CLS: how near the path comes to each annotated viewpoint, times how apt its length is."""
    real = torch.arange(apart.shape[2], device=apart.device) < steps[:, None]
    coverage = (torch.exp(-apart.amin(1) / RADIUS) * real).sum(1) / steps
    expected = coverage * annotated
    return coverage * _share(expected, expected + (expected - walked).abs())
