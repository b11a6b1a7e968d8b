"""`langgoalirl bench`: speed, as ratios to what this machine allows and to what others do."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langgoalirl.commands.shared import add_json, show
from langgoalirl.errors import UserError

if TYPE_CHECKING:
    from langgoalirl.recipe import WorldChoice


def add(commands: argparse._SubParsersAction) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "bench",
        help="measure speed",
        description="Measure speed on one thread, beside what memory and matrix products of this "
        "machine allow, in the same run. Without WHAT: every part of the adversarial loop, in CPU "
        "milliseconds, and the whole of it; beside the plain update that is kept in benchmarks/.",
    )
    _add_data(parser)
    parser.add_argument("--hidden", type=int, default=512, help="hidden units (the paper's: 512)")
    parser.add_argument("--batch", type=int, default=256, help="steps in each batch of an update")
    parser.add_argument(
        "--width", type=int, default=0, help="random features so wide instead of the world's own"
    )
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="where; wall time on a GPU"
    )
    parser.add_argument(
        "--interactions", type=int, default=2000, help="on which the whole loop is measured"
    )
    _add_results(parser)
    add_json(parser)
    parser.set_defaults(run=run_learning)
    kinds = parser.add_subparsers(title="what else to measure", metavar="[WHAT]")
    world = kinds.add_parser(
        "world",
        help="environment steps per second",
        description="Environment steps per CPU second of a hundred agents: state transitions "
        "alone; with complete observations of 36 x 2048 random features; with the world's own "
        "features. 'copy_2048' copies the same number of bytes and does nothing else: the limit "
        "that memory sets. R2RBatch's recorded rate on the same work is 7k to 11k.",
    )
    _add_data(world)
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

    curves = kinds.add_parser(
        "curves",
        help="what an update costs as things grow",
        description="Milliseconds an update against batch, hidden units, candidates and width of "
        "features, interactions per second against episodes at a time, and gigabytes against steps "
        "in the replay buffer.",
    )
    _add_data(curves)
    curves.add_argument("--plot", type=Path, metavar="FILE", help="draw them there, as SVG")
    _add_results(curves)
    add_json(curves)
    curves.set_defaults(run=run_curves)


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="Room-to-Room (or $LANGGOALIRL_R2R), else houses"
    )


def _add_results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", type=Path, metavar="FILE", help="write the numbers there")


def _keep(options: argparse.Namespace, numbers: dict[str, Any], config: dict[str, Any]) -> None:
    """The numbers as a result file, where one was asked for."""
    from langgoalirl.files import write_json
    from langgoalirl.results import provenance

    if options.results:
        write_json(options.results, {**provenance(), "config": config, "metrics": numbers})


def _world(options: argparse.Namespace) -> WorldChoice:
    from langgoalirl.recipe import WorldChoice

    place = options.data or os.environ.get("LANGGOALIRL_R2R")
    return WorldChoice("r2r", data=str(place)) if place else WorldChoice("houses")


def run_learning(options: argparse.Namespace) -> None:
    """langgoalirl bench."""
    from langgoalirl.bench.learning import bench_learning

    if options.hidden < 4 or options.hidden % 4 or options.batch < 2 or options.width < 0:
        raise UserError("--hidden must be a multiple of 4, --batch 2 or more, --width not below 0.")
    names = ("hidden", "batch", "width", "interactions", "device")
    shape = {name: getattr(options, name) for name in names}
    numbers = bench_learning(_world(options), **shape)
    _keep(options, numbers, shape)
    rows = [
        (
            name,
            f"{row['ms']:.2f}",
            f"{row['spread']:.2f}",
            f"{row['gflop']:.2f}" if row["gflop"] else "",
            f"{row['of_products']:.0%}" if row["gflop"] else "",
        )
        for name, row in numbers["parts"].items()
    ]
    rows += [
        (
            f"{name.replace('_', ' update, ')}: {row['times']:.1f} times ours",
            f"{row['ms']:.1f}",
            f"{row['spread']:.1f}",
            "",
            "",
        )
        for name, row in numbers["plain"].items()
    ]
    rows += [
        (f"of an update, in {name}", f"{ms:.2f}", "", "", "")
        for name, ms in numbers["operations"].items()
    ]
    rows += [
        (f"avoided: {why}", "", "", f"{gflop:.1f}", "")
        for why, gflop in numbers["avoided_gflop"].items()
    ]
    loop, peak = numbers["loop"], numbers["gflops"]
    rows += [
        (f"products, {name[3:]}: {rate:.0f} GFLOP/s", "", "", "", "") for name, rate in peak.items()
    ]
    rows += [
        (f"copies: {numbers['copy_gb_per_second']:.1f} GB/s", "", "", "", ""),
        (f"loop: {loop['interactions_per_second']:.0f} interactions per second", "", "", "", ""),
        (f"a million in {loop['minutes_per_million']:.0f} minutes", "", "", "", ""),
        (f"most memory: {numbers['peak_gb']:.1f} GB", "", "", "", ""),
    ]
    some = numbers["candidates"]
    title = (
        f"{numbers['world']}, hidden {numbers['hidden']}, batch {numbers['batch']}, "
        f"{some['mean']:.1f} of {some['most']} candidates"
    )
    header = [
        "part of the loop",
        "CPU ms" if options.device == "cpu" else "ms",
        "spread",
        "GFLOP",
        "of products",
    ]
    show(options.json, numbers, title, header, rows)


def run_curves(options: argparse.Namespace) -> None:
    """langgoalirl bench curves."""
    from langgoalirl.bench.curves import TITLES, USUAL, bench_curves, plot

    numbers = bench_curves(_world(options))
    _keep(options, numbers, USUAL)
    if options.plot:
        plot(numbers, options.plot)
    rows = [
        (TITLES[name][0], f"{x:,}", f"{y:,.1f} {TITLES[name][1]}")
        for name, points in numbers.items()
        for x, y, *_ in points
    ]
    show(options.json, numbers, "costs", ["of", "", ""], rows)


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
