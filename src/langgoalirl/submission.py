"""Paths in the field's submission format, read with care, written, and scored.

`[{"instr_id": "5593_0", "trajectory": [[viewpoint, heading, elevation], ...]}, ...]`; a step may
also be `[viewpoint]` alone, because no metric reads the angles.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from langgoalirl.errors import UserError
from langgoalirl.files import read_json, write_json
from langgoalirl.metrics import check_protocol, score, summary
from langgoalirl.worlds.geometry import VIEW_ELEVATIONS, VIEW_HEADINGS, VIEWS
from langgoalirl.worlds.navgraph import House, NavGraph
from langgoalirl.worlds.types import References, Split

COUNTED_INSTRUCTIONS = ("_0", "_1", "_2")
"""How the ids end that the simulator's evaluator reads; some paths have a fourth instruction."""

LATER_STARTS = ("4554_0", "4554_1", "4554_2")
"""val_seen has two editions: in one, this path lacks its first viewpoint. Submissions made with
either are scored by the path that they were made with."""

LONGEST_TRAJECTORY = 1000
"""Steps, turns included. Annotated paths have seven or so; what is longer is no way to a goal."""

AT_ONCE = 500  # trajectories; bounds the memory that their distances take


def evaluate_predictions(
    file: Path, world: NavGraph, split: Split, protocol: str
) -> tuple[dict[str, float], dict[str, Tensor]]:
    """A submission's means, and the scores of each instruction in `protocol_rows`' order."""
    rows = protocol_rows(split, protocol)
    if split.references is None:
        raise UserError(
            f"Split '{split.name}' has no goals: its submissions cannot be scored here."
        )
    paths, lengths = read_submission(file, world, split)
    annotated = _as_submitted(split.tasks.ids, split.references, paths)
    parts = [
        score(
            world,
            paths[some],
            lengths[some],
            References(annotated.paths[some], annotated.lengths[some]),
            protocol,
        )
        for some in rows.split(AT_ONCE)
    ]
    scores = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return summary(scores), scores


def _as_submitted(ids: list[str], annotated: References, walks: Tensor) -> References:
    """The annotated paths, from their second viewpoint on where another edition begins there."""
    paths, lengths = annotated.paths.clone(), annotated.lengths.clone()
    for row in (ids.index(name) for name in LATER_STARTS if name in ids):
        if walks[row, 0] == annotated.paths[row, 1] != annotated.paths[row, 0]:
            paths[row, :-1] = annotated.paths[row, 1:]
            lengths[row] -= 1
    return References(paths, lengths)


def protocol_rows(split: Split, protocol: str) -> Tensor:
    """The rows of the split that a protocol scores, in the split's order."""
    check_protocol(protocol)
    ids = split.tasks.ids
    counts = [protocol != "simulator" or name.endswith(COUNTED_INSTRUCTIONS) for name in ids]
    return torch.tensor(counts, dtype=torch.bool).nonzero().squeeze(1)


def read_submission(path: Path, world: NavGraph, split: Split) -> tuple[Tensor, Tensor]:
    """Viewpoints [n, T] and lengths [n] in the split's order: complete, and walks, every one."""
    trajectories = _by_id(path, split)
    starts = (split.tasks.start // VIEWS).tolist()
    names, house_of = _names(world), world.house_of.tolist()
    walks = []
    for row, (name, start) in enumerate(zip(split.tasks.ids, starts, strict=True)):
        house = world.houses[house_of[start]]
        walk = _viewpoints(f"{path}: '{name}'", trajectories[name], world, house)
        allowed = {start}
        if name in LATER_STARTS and split.references is not None:
            allowed.add(int(split.references.paths[row, 1]))
        if walk[0] not in allowed:
            raise UserError(
                f"{path}: '{name}' starts at '{names[walk[0]]}', but its instruction starts at "
                f"'{names[start]}'; include the start position."
            )
        walks.append(walk)
    lengths = torch.tensor([len(walk) for walk in walks])
    longest = max(map(len, walks), default=0)
    paths = torch.tensor([walk + walk[-1:] * (longest - len(walk)) for walk in walks])
    _check_edges(path, world, split, paths)
    return paths, lengths


def write_submission(
    path: Path, world: NavGraph, split: Split, states: Tensor, lengths: Tensor
) -> None:
    """The states [n, T] that were visited, of which `lengths` [n] are real, as a submission."""
    names = _names(world)
    heading, elevation = VIEW_HEADINGS.tolist(), VIEW_ELEVATIONS.tolist()

    def step(state: int) -> list[Any]:
        viewpoint, view = divmod(state, VIEWS)
        return [names[viewpoint], heading[view], elevation[view]]

    rows = zip(split.tasks.ids, states.tolist(), lengths.tolist(), strict=True)
    entries = [
        {"instr_id": name, "trajectory": [step(state) for state in row[:length]]}
        for name, row, length in rows
    ]
    write_json(path, entries, indent=None)


def _by_id(path: Path, split: Split) -> dict[str, list[Any]]:
    """The file's trajectories by id: each id of the split once, and no other."""
    entries = read_json(path)
    if not isinstance(entries, list):
        raise UserError(f"{path}: a list of entries is expected at the top, not {_kind(entries)}.")
    known = set(split.tasks.ids)
    found: dict[str, list[Any]] = {}
    for i, entry in enumerate(entries):
        if not isinstance(entry, dict) or not {"instr_id", "trajectory"} <= entry.keys():
            raise UserError(f"{path}: entry {i} is no object with 'instr_id' and 'trajectory'.")
        name, trajectory = entry["instr_id"], entry["trajectory"]
        if not isinstance(name, str) or name not in known:
            shown = _shown(name) if isinstance(name, str) else _kind(name)
            raise UserError(
                f"{path}: entry {i} has the unknown instr_id {shown}; "
                f"split '{split.name}' has ids like '{next(iter(split.tasks.ids), '')}'."
            )
        if name in found:
            raise UserError(f"{path}: '{name}' is there twice; keep one trajectory for each id.")
        if not isinstance(trajectory, list):
            raise UserError(
                f"{path}: '{name}' has {_kind(trajectory)} as its trajectory, not a list of steps."
            )
        found[name] = trajectory
    missing = [name for name in split.tasks.ids if name not in found]
    if missing:
        raise UserError(
            f"{path}: {len(missing)} of the {len(split)} ids of split '{split.name}' are missing, "
            f"'{missing[0]}' first; every instruction needs a trajectory."
        )
    return found


def _viewpoints(where: str, trajectory: list[Any], world: NavGraph, house: House) -> list[int]:
    """The viewpoint indices of one trajectory, all of them in `house`."""
    if not trajectory:
        raise UserError(f"{where} has an empty trajectory; it holds the start position at least.")
    if len(trajectory) > LONGEST_TRAJECTORY:
        raise UserError(
            f"{where} has a trajectory of {len(trajectory):,} steps, more than "
            f"{LONGEST_TRAJECTORY:,}; cut it where the agent stopped."
        )
    walk = []
    for t, step in enumerate(trajectory):
        if not _is_step(step):
            raise UserError(
                f"{where}, step {t} is neither [viewpoint, heading, elevation] nor [viewpoint]."
            )
        index = world.index.get((house.name, step[0]))
        if index is None:
            homes = [other.name for other in world.houses if step[0] in other.viewpoints]
            fault = f"is in house '{homes[0]}'" if homes else "is no viewpoint of this world"
            raise UserError(
                f"{where}, step {t}: {_shown(step[0])} {fault}; "
                f"a viewpoint of house '{house.name}' is expected."
            )
        walk.append(index)
    return walk


def _is_step(step: Any) -> bool:
    """Whether this is a viewpoint's name, alone or with two numbers."""
    if not isinstance(step, list) or len(step) not in (1, 3) or not isinstance(step[0], str):
        return False
    # Not isinstance: to Python, true and false are integers too.
    return all(type(angle) in (int, float) for angle in step[1:])


def _check_edges(path: Path, world: NavGraph, split: Split, paths: Tensor) -> None:
    """Every step turns on the spot or follows an edge."""
    here, there = paths[:, :-1].to(world.device), paths[:, 1:].to(world.device)
    # Column 0, *stop*, holds the viewpoint itself, so that turns are found there as well.
    leads = (world.neighbour[here] == there[..., None]).any(-1)
    if leads.all():
        return
    row, t = (~leads).nonzero()[0].tolist()
    names = _names(world)
    raise UserError(
        f"{path}: '{split.tasks.ids[row]}', step {t + 1}: no edge leads from "
        f"'{names[paths[row, t]]}' to '{names[paths[row, t + 1]]}'; list every viewpoint passed."
    )


def _names(world: NavGraph) -> list[str]:
    """Every viewpoint's name, by index."""
    return [viewpoint for house in world.houses for viewpoint in house.viewpoints]


def _shown(text: str) -> str:
    """Foreign text made safe to print: escaped, and cut if it is long."""
    return repr(text) if len(text) <= 60 else f"{text[:60]!r}…"


def _kind(value: Any) -> str:
    """What JSON calls a value."""
    kinds = {dict: "an object", list: "a list", str: "a string", type(None): "null"}
    return kinds.get(type(value), "true or false" if isinstance(value, bool) else "a number")
