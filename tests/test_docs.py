"""The documents name things that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from langgoalirl.results import as_markdown, gather

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


CALIBRATION = {
    "behaviour cloning": "bc",
    "base model": "base_model",
    "shuffled instructions": "bc+shuffled",
    "blanked views": "bc+blanked",
    "goal-agnostic policy": "goal_agnostic",
}


def test_the_calibration_of_the_houses_is_as_measured_and_as_promised() -> None:
    text = (ROOT / "docs" / "houses.md").read_text(encoding="utf-8")
    success: dict[str, list[float]] = {}
    for row, method in CALIBRATION.items():
        files = [
            ROOT / "results" / "pretrain-houses" / f"{method}-train-{split}-s0.json"
            for split in ("val_seen", "val_unseen")
        ]
        success[method] = [json.loads(file.read_text())["metrics"]["sr"] for file in files]
        quoted = re.findall(rf"^\| {row}.*\| (\.\d+) \| (\.\d+) \|$", text, re.MULTILINE)
        assert quoted == [tuple(f"{rate:.3f}"[1:] for rate in success[method])], row
    seen, unseen = success.pop("bc")
    assert 0.35 <= unseen <= min(0.65, seen - 0.05)
    del success["base_model"]
    assert all(rates[1] <= unseen / 2 for rates in success.values())


def test_the_annotated_tree_names_what_there_is() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (tree,) = re.findall(r"```\n(src/langgoalirl/\n.*?)```", text, re.DOTALL)
    source = ROOT / "src" / "langgoalirl"
    names = {file.name for file in source.rglob("*.py")}
    assert set(re.findall(r"\w+\.py", tree)) <= names
    folders = {file.parent.name for file in source.rglob("__init__.py") if file.parent != source}
    assert folders
    assert folders <= set(re.findall(r"^ +(\w+)/ ", tree, re.MULTILINE))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_tables_are_what_their_commands_print(document: Path) -> None:
    """A table behind `<!-- langgoalirl results DIR --metrics M -->` holds what that prints."""
    text = document.read_text(encoding="utf-8")
    marked = r"<!-- langgoalirl results (\S+) --metrics (\S+) -->\n((?:\|.*\n)+)"
    found = re.findall(marked, text)
    assert len(found) == text.count("<!-- langgoalirl results")
    for folder, names, table in found:
        metrics = names.split(",")
        assert table.strip() == as_markdown(gather(ROOT / folder, metrics), metrics)


def test_the_differences_between_methods_are_as_measured() -> None:
    text = (ROOT / "docs" / "adversarial.md").read_text(encoding="utf-8")
    files = sorted((ROOT / "results" / "compare-r2r").glob("*.json"))
    rows = []
    for file in files:
        names, split = file.stem.rsplit("-", 1)
        first, second = names.split("-over-")
        m = json.loads(file.read_text(encoding="utf-8"))["metrics"]
        interval = f"[{m['low']:+.3f}, {m['high']:+.3f}]"
        apart = f"{m['difference']:+.3f}"
        rows.append(f"| {first} | {second} | {split} | {m['seeds']} | {apart} | {interval} |")
    assert rows
    assert "\n".join(rows) in text


def test_the_times_on_the_page_about_speed_are_as_measured() -> None:
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    folder = ROOT / "results" / "bench"
    found = json.loads((folder / "learning-r2r.json").read_text(encoding="utf-8"))["metrics"]
    for name, row in found["parts"].items():
        shares = f" {row['gflop']:.2f} | {row['of_products']:.0%} |" if row["gflop"] else "  |  |"
        assert f"| {name} | {row['ms']:.2f} |{shares}" in text, name
    for row in found["plain"].values():
        assert f"| {row['ms']:.1f} | {row['times']:.1f} |" in text
    for name, spent in found["operations"].items():
        assert f"| `{name}` | {spent:.2f} |" in text
    for why, gflop in found["avoided_gflop"].items():
        assert f"| {why} | {gflop:.1f} |" in text
    for name in ("cuda", "wide"):
        file = folder / f"learning-{name}-r2r.json"
        other = json.loads(file.read_text(encoding="utf-8"))["metrics"]
        assert f"{other['loop']['minutes_per_million']:.0f} minutes" in " ".join(text.split())
        assert f"{other['loop']['interactions_per_second']:,.0f} " in text
    peers = json.loads((folder / "peers-r2r.json").read_text(encoding="utf-8"))["metrics"]
    for name, row in peers.items():
        assert f"| {name} | {row['ms']:.2f} | {row['spread']:.2f} |" in text
    name = "langgoalirl+interactions=1000000-devtrain-devunseen-s0.json"
    million = json.loads((ROOT / "results" / "r2r" / name).read_text(encoding="utf-8"))
    last = million["curve"][-1]
    assert last["interactions"] >= 1_000_000
    assert f"It took {million['minutes']:.0f} minutes and {last['peak_gb']:.1f} GB" in text
    assert f"| {last['sr_devseen']:.3f} | {last['sr_devunseen']:.3f} |" in text
