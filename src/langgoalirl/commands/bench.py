"""`langgoalirl bench`: speed, as ratios to what this machine allows and to what others do."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from langgoalirl.commands.shared import add_json, show


def add(commands: argparse._SubParsersAction) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "bench",
        help="measure speed",
        description="Measure speed on one thread, beside what memory and matrix products of this "
        "machine allow, in the same run.",
    )
    kinds = parser.add_subparsers(title="what to measure", metavar="WHAT", required=True)
    world = kinds.add_parser(
        "world",
        help="environment steps per second",
        description="Environment steps per CPU second of a hundred agents: state transitions "
        "alone; with complete observations of 36 x 2048 random features; with the world's own "
        "features. 'copy_2048' copies the same number of bytes and does nothing else: the limit "
        "that memory sets. R2RBatch's recorded rate on the same work is 7k to 11k.",
    )
    world.add_argument(
        "--data", type=Path, metavar="DIR", help="Room-to-Room (or $LANGGOALIRL_R2R), else houses"
    )
    _add_results(world)
    add_json(world)
    world.set_defaults(run=run_world)

    pretrain = kinds.add_parser(
        "pretrain",
        help="instructions per second in training",
        description="Instructions per second of every stage of pretraining, beside the same models "
        "trained plainly: float32, batches in random order padded to the longest demonstration, "
        "frozen states worked out anew in every update. Ours and plain take turns.",
    )
    pretrain.add_argument("recipe", type=Path, metavar="RECIPE", help="a TOML file")
    pretrain.add_argument(
        "overrides", nargs="*", metavar="FIELD=VALUE", help="fields that differ from the recipe"
    )
    _add_results(pretrain)
    add_json(pretrain)
    pretrain.set_defaults(run=run_pretrain)


def _add_results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", type=Path, metavar="FILE", help="write the numbers there")


def _keep(options: argparse.Namespace, numbers: dict[str, Any], config: dict[str, Any]) -> None:
    """The numbers as a result file, where one was asked for."""
    from langgoalirl.files import write_json
    from langgoalirl.results import provenance

    if options.results:
        write_json(options.results, {**provenance(), "config": config, "metrics": numbers})


def run_world(options: argparse.Namespace) -> None:
    """langgoalirl bench world."""
    from langgoalirl.bench.world import bench_world

    place = options.data or os.environ.get("LANGGOALIRL_R2R")
    numbers: dict[str, Any] = bench_world(Path(place) if place else None)
    _keep(options, numbers, {})
    rows = [
        (name, f"{rate['per_second']:,.0f}", f"{rate['spread']:,.0f}")
        for name, rate in numbers["steps_per_second"].items()
    ]
    low, high = numbers["times_r2rbatch"]
    rows.append(("observed_2048, of the memory limit", f"{numbers['of_memory_limit']:.2f}", ""))
    rows.append(("observed_2048, times R2RBatch", f"{low:.1f} to {high:.1f}", ""))
    title = f"{numbers['world']}, {numbers['viewpoints']:,} viewpoints, {numbers['batch']} agents"
    show(options.json, numbers, title, ["steps per CPU second", "median", "spread"], rows)


def run_pretrain(options: argparse.Namespace) -> None:
    """langgoalirl bench pretrain."""
    from langgoalirl.bench.pretrain import bench_pretrain
    from langgoalirl.config import as_dict, load
    from langgoalirl.recipe import Pretraining

    recipe = load(Pretraining, options.recipe, options.overrides)
    numbers = bench_pretrain(recipe)
    _keep(options, numbers, as_dict(recipe))
    rows = [
        (name, f"{s['per_second']:,.0f}", f"{s['plain_per_second']:,.0f}", f"{s['times']:.1f}")
        for name, s in numbers["stages"].items()
    ]
    title = f"{numbers['world']}, hidden {numbers['hidden']}"
    show(options.json, numbers, title, ["instructions per second", "ours", "plain", "times"], rows)
