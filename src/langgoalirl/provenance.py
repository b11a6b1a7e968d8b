"""Where a result came from: the commit, and the sources that made it."""

from __future__ import annotations

import ast
import hashlib
import json
import subprocess
from functools import cache
from pathlib import Path

import langgoalirl

PACKAGE = Path(langgoalirl.__file__).parent


@cache
def source_digest(module: str) -> str:
    """A hash over the sources of a module and of all that it imports from this package."""
    found: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        file = _source(name)
        if name in found or file is None:
            continue
        text = file.read_text(encoding="utf-8")
        found[name] = hashlib.sha256(text.encode()).hexdigest()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module:
                waiting.append(node.module)
                waiting += [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                waiting += [alias.name for alias in node.names]
    return hashlib.sha256(json.dumps(sorted(found.items())).encode()).hexdigest()


def _source(module: str) -> Path | None:
    """The file of one of our modules, None for anybody else's."""
    head, *parts = module.split(".")
    if head != PACKAGE.name:
        return None
    base = PACKAGE.joinpath(*parts)
    return next((f for f in (base.with_suffix(".py"), base / "__init__.py") if f.is_file()), None)


@cache
def commit() -> str:
    """The commit of the sources, marked when they were changed since; empty outside a checkout."""
    ask = ["git", "-C", str(PACKAGE), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
