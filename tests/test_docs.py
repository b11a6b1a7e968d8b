"""The documents name things that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = "\n".join(
    file.read_text(encoding="utf-8") for file in sorted((ROOT / "src").rglob("*.py"))
)
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_every_function_that_the_algorithm_page_names() -> None:
    text = (ROOT / "docs" / "algorithm.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`\.?([A-Za-z_][\w.]*)`", text))
    assert len(named) > 30
    for name in named:
        last = name.rpartition(".")[2]
        known = rf"\b(def|class) {last}\b|\b(self\.)?{last}\b ?[:=]|\"{last}\""
        assert re.search(known, SOURCE), f"docs/algorithm.md names {name}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_are_referred_to_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)\)", text):
        assert (document.parent / target).exists(), target
    for recipe in re.findall(r"recipes/[\w/-]+\.toml", text):
        assert (ROOT / recipe).exists(), recipe
