"""`langgoalirl demo`: embedded houses, training, scores and a page, in a few minutes."""

from __future__ import annotations

import argparse
from pathlib import Path

from langgoalirl.commands.shared import add_json, show


def add(commands: argparse._SubParsersAction) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "demo",
        help="made-up houses, small networks, a report: a few minutes, no download",
        description="Generate sixty houses with routes and instructions, train small networks to "
        "follow and to describe them (behaviour cloning, LangGoalIRL_BASE, LangGoalIRL), and write "
        "a page with scores, learning curves, maps and sentences.",
    )
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where runs are kept")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """langgoalirl demo."""
    from langgoalirl.demo import run_demo, table_rows
    from langgoalirl.progress import console

    found, page = run_demo(options.runs)
    show(
        options.json,
        {"scores": found.scores, "generated": found.sentences, "report": str(page)},
        "Success and SPL of agents on made-up houses",
        ["agent", "seen: success", "SPL", "unseen: success", "SPL"],
        table_rows(found),
    )
    if not options.json:
        for pair in found.sentences:
            print(f"\nworld:     {pair['human']}\ngenerated: {pair['generated']}")
    console.print(f"\nThe report, with maps: {page}", highlight=False)
