"""Houses from above: rooms, things, viewpoints, and the routes that somebody took."""

from __future__ import annotations

import io
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from langgoalirl.worlds.houses.layout import Plan
from langgoalirl.worlds.houses.world import Houses

INK, WALL, ROUTE, AGENT = "#1f2933", "#52606d", "#c2410c", "#2563eb"
FLOORS = {
    "hallway": "#f1ede4",
    "stairs": "#ddd6c5",
    "bathroom": "#dbeafe",
    "kitchen": "#fef3c7",
    "bedroom": "#ede9fe",
    "living room": "#dcfce7",
}
OTHER_FLOOR = "#f8f5f0"


def house_map(world: Houses, name: str, route: list[int], taken: list[int] | None = None) -> Figure:
    """One panel per storey; `route` (and an agent's own path) are viewpoint numbers in the house.

    The annotated route is orange, from a ring to a star; what an agent did is dashed in blue.
    """
    plan = world.plan(name)
    storeys = sorted({room.floor for room in plan.rooms})
    figure, axes = plt.subplots(
        1, len(storeys), figsize=(6.2 * len(storeys), 5.6), squeeze=False, layout="constrained"
    )
    edges = world.house(name).edges
    for axis, floor in zip(axes[0], storeys, strict=True):
        _rooms(axis, plan, floor)
        _graph(axis, plan, edges, floor)
        _path(axis, plan, route, floor, ROUTE, 3.0, "-")
        if taken:
            _path(axis, plan, taken, floor, AGENT, 1.4, "--")
        axis.set_title(f"{name}, {'upstairs' if floor else 'ground floor'}", fontsize=10, color=INK)
        axis.set_aspect("equal")
        axis.axis("off")
    return figure


def _rooms(axis: Any, plan: Plan, floor: int) -> None:
    for i, room in enumerate(plan.rooms):
        if room.floor != floor:
            continue
        wide, deep = room.x1 - room.x0, room.y1 - room.y0
        colour = FLOORS.get(room.kind, OTHER_FLOOR)
        axis.add_patch(
            Rectangle((room.x0, room.y0), wide, deep, facecolor=colour, edgecolor=WALL, lw=1.4)
        )
        axis.text(
            room.x0 + 0.12,
            room.y1 - 0.14,
            room.kind,
            fontsize=7,
            color=INK,
            va="top",
            weight="bold",
        )
        for thing in plan.things:
            if thing.room == i:
                axis.plot(thing.x, thing.y, "s", color="#9aa5b1", ms=3)
                axis.text(thing.x + 0.1, thing.y, thing.kind, fontsize=5, color=WALL, va="center")
    for door in plan.doors:
        if door.floor == floor:
            half = door.width / 2
            x, y = ([-half, half], [0, 0]) if door.axis == 0 else ([0, 0], [-half, half])
            axis.plot([door.x + d for d in x], [door.y + d for d in y], color="white", lw=3)


def _graph(axis: Any, plan: Plan, edges: Any, floor: int) -> None:
    on_floor = plan.floor_of == floor
    for a, b in zip(*edges.nonzero(), strict=True):
        if a < b and on_floor[a] and on_floor[b]:
            axis.plot(*plan.positions[[a, b], :2].T, color="#cbd2d9", lw=0.6, zorder=1)
    axis.plot(*plan.positions[on_floor, :2].T, "o", color="#7b8794", ms=2.5, zorder=2)


def _path(
    axis: Any, plan: Plan, path: list[int], floor: int, colour: str, width: float, style: str
) -> None:
    points = plan.positions[path]
    floors = plan.floor_of[path]
    for i in range(len(path) - 1):
        if floor in (floors[i], floors[i + 1]):
            axis.plot(*points[i : i + 2, :2].T, style, color=colour, lw=width, zorder=3)
    for i, marker, size in ((0, "o", 3 * width), (-1, "*", 5 * width)):
        if floors[i] == floor:
            axis.plot(*points[i, :2], marker, color=colour, ms=size, mec="white", mew=0.6, zorder=4)


def svg(figure: Figure) -> str:
    """A figure as SVG text to put into a page; the same figure gives the same text."""
    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "langgoalirl", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    plt.close(figure)
    return text.getvalue()[text.getvalue().index("<svg") :]
