"""The command `langgoalirl`. Each command lives in a module of its own and imports what it needs
only when it runs, so that `--help` is quick."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from langgoalirl import __version__
from langgoalirl.commands import (
    adapt,
    bench,
    compare,
    data,
    demo,
    describe,
    evaluate,
    pretrain,
    report,
    reproduce,
    results,
    score,
    train,
    wander,
)
from langgoalirl.commands.shared import Parser
from langgoalirl.errors import UserError
from langgoalirl.memory import keep_freed_memory

DESCRIPTION = """\
Learn a policy and a reward function from demonstrations annotated in plain language.

A newcomer's way:
  langgoalirl demo                                  a world of made-up houses, in a few minutes
  langgoalirl pretrain recipes/houses/pretrain.toml train on it in earnest
  langgoalirl evaluate runs/NAME --split val_unseen how well instructions are followed
  langgoalirl describe runs/NAME --split val_unseen what the goal generator says of routes

With Room-to-Room:
  langgoalirl data fetch r2r DIR                    get graphs, boxes and instructions (30 MB)
  langgoalirl data check r2r DIR                    see that all is there and whole
"""


def build_parser() -> argparse.ArgumentParser:
    """All commands with their options."""
    parser = Parser(
        prog="langgoalirl",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"langgoalirl {__version__}")
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=Parser
    )
    for module in (
        demo,
        data,
        pretrain,
        train,
        adapt,
        evaluate,
        describe,
        score,
        wander,
        compare,
        results,
        report,
        reproduce,
        bench,
    ):
        module.add(commands)
    return parser


def _interrupt(*_: object) -> NoReturn:
    """Whoever ends us politely gets what the keyboard gets: nothing half-made stays behind."""
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; what the user can put right is one sentence and exit code 2."""
    options = build_parser().parse_args(arguments)
    # One process with one thread per core does more than one process with several threads.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    keep_freed_memory()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        options.run(options)
    except UserError as error:
        print(f"langgoalirl: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a folder that cannot be written, a full disk
        if error.filename is None:
            raise
        print(f"langgoalirl: {error.filename}: {error.strerror}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("langgoalirl: interrupted; the same command goes on from here.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
