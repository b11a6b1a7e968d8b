"""What several commands share: a parser that helps with misspelt words, tables, JSON, results."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from langgoalirl.errors import nearest


class Parser(argparse.ArgumentParser):
    """argparse, but a misspelt option or command is answered with the nearest one there is."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, **options})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what is unknown here, where this command's own options are known."""
        options = [text for action in self._actions for text in action.option_strings]
        words = list(sys.argv[1:] if args is None else args)
        # Before argparse complains of a required option that is there but misspelt.
        unknown = [w for w in words if w.startswith("--") and w.split("=")[0] not in options]
        if unknown and self._subparsers is None:
            self.error(f"there is no option '{unknown[0]}'.{nearest(unknown[0], options)}")
        known, rest = super().parse_known_args(args, namespace)
        if "overrides" in vars(known):  # FIELD=VALUE behind an option, where argparse stops looking
            known.overrides += [word for word in rest if "=" in word and word[0] != "-"]
            rest = [word for word in rest if word not in known.overrides]
        if rest:
            self.error(f"unknown argument '{rest[0]}'.{nearest(rest[0], options)}")
        return known, []

    def error(self, message: str) -> NoReturn:
        """One sentence and exit code 2."""
        choice = re.match(r"argument (\S+): invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if choice:
            names = [name.strip(" '\"") for name in choice[3].split(",")]
            message = f"{choice[1]}: there is no '{choice[2]}'.{nearest(choice[2], names)}"
        elif not message.endswith((".", "?")):
            message += "."
        self.exit(2, f"{self.prog}: {message} See '{self.prog} --help'.\n")


def add_world(parser: argparse.ArgumentParser, needed: bool = False) -> None:
    """The options that name a world without a recipe."""
    parser.add_argument("--world", choices=("houses", "r2r"), required=needed, help="the world")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="Room-to-Room's folder (or $LANGGOALIRL_R2R)"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """--json."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object and nothing else"
    )


def show(
    as_json: bool, value: dict[str, Any], title: str, head: Sequence[str], rows: Iterable[Sequence]
) -> None:
    """The same content as one JSON object or as a table."""
    if as_json:
        print(json.dumps(value, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for i, name in enumerate(head):
        table.add_column(name, justify="left" if i == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*(f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row))
    Console(markup=False).print(table)  # a name in [brackets] is a name
