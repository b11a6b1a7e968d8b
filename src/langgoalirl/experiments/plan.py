"""What the paper's tables are made of: rows of (recipe, overrides), each trained with some seeds.

A job is a list of the program's own commands. Jobs of different tables that ask for the same run
are one job, and pretraining is shared by content (`stages.stage`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

Step = list[str]


@dataclass(frozen=True)
class Row:
    """One row of a table: how it is trained, and what the paper found (by column)."""

    label: str
    recipe: str
    overrides: tuple[str, ...] = ()
    adapt: tuple[str, ...] = ()  # fields of `adapt`, where the row goes on in new houses
    control: bool = False  # … by plain behaviour cloning
    follower: str = "policy"
    paper: dict[str, str] = field(default_factory=dict)

    @property
    def variant(self) -> str:
        """How it departs from the recipe, as result files are named."""
        parts = [part.rpartition(".")[2] for part in self.overrides]
        if self.adapt:
            parts += ["cloned" if self.control else "adapted", *self.adapt]
        return "+".join(parts)


@dataclass(frozen=True)
class Table:
    """A table of the paper."""

    title: str
    rows: tuple[Row, ...]
    splits: tuple[str, ...]
    seeds: int
    note: str = ""
    adapts_to: str = ""  # the split whose houses `adapt` rows learn in


@dataclass(frozen=True)
class Setting:
    """On which world, with how much of everything."""

    world: str
    train_split: str
    seen: str
    unseen: str
    interactions: int = 0  # 0 leaves the recipes'
    recipes: Path = Path("recipes")

    @property
    def splits(self) -> tuple[str, ...]:
        """Those that tables are evaluated on."""
        return tuple(split for split in (self.seen, self.unseen) if split)


@dataclass(frozen=True)
class Job:
    """Commands that are run one after the other, and the files that they leave."""

    name: str
    steps: tuple[tuple[str, ...], ...]
    results: tuple[Path, ...]

    @property
    def done(self) -> bool:
        """Nothing is left to be run."""
        return all(file.exists() for file in self.results)


SEEN, UNSEEN = "seen", "unseen"
BASE, LANG = "langgoalirl_base", "langgoalirl"


def _main() -> tuple[Row, ...]:
    return (
        Row(
            "Behaviour cloning",
            BASE,
            follower="bc",
            paper={SEEN: ".445 ± .012", UNSEEN: ".300 ± .011"},
        ),
        Row("BC on EGR's demonstrations", "bc_egr"),
        Row("LC-RL (sampling)", "lc_rl", paper={SEEN: ".359 ± .012", UNSEEN: ".216 ± .008"}),
        Row("AGILE", "agile", paper={SEEN: ".231 ± .017", UNSEEN: ".253 ± .027"}),
        Row("HER", "her", paper={SEEN: ".464 ± .013", UNSEEN: ".306 ± .017"}),
        Row("LangGoalIRL_BASE", BASE, paper={SEEN: ".449 ± .013", UNSEEN: ".308 ± .009"}),
        Row("LangGoalIRL", LANG, paper={SEEN: ".530 ± .014", UNSEEN: ".357 ± .009"}),
        Row(
            "LangGoalIRL + self-supervised",
            LANG,
            adapt=("trajectories=15000",),
            paper={UNSEEN: ".491 ± .007"},
        ),
    )


def _strategies(egr: bool, hgr: bool, hgs: bool, her: bool) -> tuple[str, ...]:
    """Overrides of the LangGoalIRL recipe, whose own strategies are EGR, HGR and HGS."""
    changes = []
    if not egr:
        changes.append("strategies.expert_goals=0")
    for name, on, usual in (("hgr", hgr, True), ("hgs", hgs, True), ("her", her, False)):
        if on != usual:
            changes.append(f"strategies.{name}={str(on).lower()}")
    return tuple(changes)


_ABLATION = {  # EGR, HGR, HGS, HER: success on seen validation
    (0, 0, 0, 0): ".449 ± .013",
    (1, 0, 0, 0): ".450 ± .012",
    (0, 1, 0, 0): ".427 ± .005",
    (0, 0, 1, 0): ".399 ± .012",
    (0, 0, 0, 1): ".464 ± .013",
    (1, 1, 0, 0): ".504 ± .019",
    (1, 0, 1, 0): ".444 ± .013",
    (1, 0, 0, 1): ".459 ± .005",
    (0, 1, 1, 0): ".503 ± .012",
    (0, 1, 0, 1): ".101 ± .079",
    (0, 0, 1, 1): ".378 ± .019",
    (1, 1, 1, 0): ".530 ± .014",
    (1, 1, 0, 1): ".491 ± .015",
    (1, 0, 1, 1): ".452 ± .009",
    (0, 1, 1, 1): ".476 ± .017",
    (1, 1, 1, 1): ".521 ± .009",
}


def _ablation() -> tuple[Row, ...]:
    names = ("EGR", "HGR", "HGS", "HER")
    rows = []
    for switches, found in _ABLATION.items():
        label = " + ".join(name for name, on in zip(names, switches, strict=True) if on)
        same_as = {(0, 0, 0, 0): BASE, (0, 0, 0, 1): "her"}  # recipes of their own
        recipe = same_as.get(switches, LANG)
        egr, hgr, hgs, her = map(bool, switches)
        overrides = () if recipe != LANG else _strategies(egr, hgr, hgs, her)
        rows.append(Row(label or "none", recipe, overrides, paper={SEEN: found}))
    return tuple(rows)


def _experts() -> tuple[Row, ...]:
    paper = {LANG: (".503 ± .012", ".525 ± .009", ".530 ± .014", ".528 ± .011")}
    paper["only EGR"] = (".449 ± .013", ".446 ± .017", ".450 ± .012", ".450 ± .016")
    rows = []
    for name, counts in paper.items():
        alone = () if name == LANG else ("strategies.hgr=false", "strategies.hgs=false")
        for count, found in enumerate(counts):
            overrides = (f"strategies.expert_goals={count}", *alone)
            label = f"{'LangGoalIRL' if name == LANG else name}, N = {count}"
            rows.append(Row(label, LANG, overrides, paper={SEEN: found}))
    return tuple(rows)


_SELFSUP = {
    "RandomExplore": (
        ("explore=random",),
        (".274 ± .009", ".303 ± .009", ".347 ± .010", ".348 ± .012"),
    ),
    "SS_G2": (("rounds=2",), (".430 ± .008", ".459 ± .008", ".483 ± .012", ".490 ± .007")),
    "SS": ((), (".452 ± .007", ".475 ± .006", ".491 ± .007", ".496 ± .004")),
}
_WALKS = (5_000, 10_000, 15_000, 20_000)


def _selfsup() -> tuple[Row, ...]:
    rows = [Row("LangGoalIRL, not adapted", LANG, paper={UNSEEN: ".357 ± .009"})]
    for (name, (fields, found)), (i, walks) in product(_SELFSUP.items(), enumerate(_WALKS)):
        adapt = (f"trajectories={walks}", *fields)
        rows.append(Row(f"{name}, {walks:,}", LANG, adapt=adapt, paper={UNSEEN: found[i]}))
    for walks in _WALKS:
        adapt = (f"trajectories={walks}",)
        rows.append(
            Row(f"BC on the same, {walks:,}", LANG, adapt=adapt, control=True, follower="bc")
        )
    return tuple(rows)


def _seen_selfsup() -> tuple[Row, ...]:
    paper = {
        BASE: (".449 ± .013", ".469 ± .011", ".472 ± .011", ".478 ± .011", ".481 ± .016"),
        LANG: (".530 ± .014", ".532 ± .013", ".535 ± .011", ".538 ± .016", ".543 ± .013"),
    }
    rows = []
    for (recipe, found), (i, walks) in product(paper.items(), enumerate((0, *_WALKS))):
        label = f"{'LangGoalIRL_BASE' if recipe == BASE else 'LangGoalIRL'}, {walks:,}"
        adapt = (f"trajectories={walks}",) if walks else ()
        rows.append(Row(label, recipe, adapt=adapt, paper={SEEN: found[i]}))
    return tuple(rows)


def tables(setting: Setting) -> dict[str, Table]:
    """Every table that is made of runs, in the order in which they matter."""
    seen, unseen = (setting.seen,), (setting.unseen,) if setting.unseen else ()
    both = (*seen, *unseen)
    shared = "Seeds share nothing: each has a pretraining of its own."
    found = {
        "main": Table("Success of every method", _main(), both, 4, shared, setting.unseen),
        "ablation": Table("EGR, HGR, HGS and HER", _ablation(), both, 2),
        "experts": Table("Relabelled goals per demonstration", _experts(), both, 2),
    }
    if unseen:
        found["selfsup"] = Table(
            "Self-supervised learning in new houses", _selfsup(), unseen, 2, "", setting.unseen
        )
    found["seen-selfsup"] = Table(
        "Self-supervised learning in known houses", _seen_selfsup(), seen, 1, "", setting.seen
    )
    return found


def jobs(table: Table, setting: Setting, seeds: range, runs: Path, results: Path) -> list[Job]:
    """What has to be run for a table: the first seed of every row first."""
    wanted = [row for row in table.rows if not row.adapt or table.adapts_to]
    return [_job(row, table, setting, seed, runs, results) for seed in seeds for row in wanted]


def result_file(row: Row, setting: Setting, split: str, seed: int, results: Path) -> Path:
    """Where `evaluate` writes what it found."""
    method = row.recipe if row.follower == "policy" else row.follower
    variant = _variant(row, setting)
    name = f"{method}+{variant}" if variant else method
    return results / f"{name}-{setting.train_split}-{split}-s{seed}.json"


def _variant(row: Row, setting: Setting) -> str:
    length = f"interactions={setting.interactions}" if setting.interactions else ""
    trained = row.follower == "policy" or row.adapt
    return "+".join(part for part in (row.variant, length if trained else "") if part)


def _job(row: Row, table: Table, setting: Setting, seed: int, runs: Path, results: Path) -> Job:
    parts = [setting.world, row.recipe, *(part.rpartition(".")[2] for part in row.overrides)]
    if setting.interactions:
        parts.append(f"interactions={setting.interactions}")
    trained = "-".join([*parts, setting.train_split, f"s{seed}"])
    length = [f"interactions={setting.interactions}"] if setting.interactions else []
    steps: list[Step] = [
        [
            "train",
            str(setting.recipes / setting.world / f"{row.recipe}.toml"),
            *("--name", trained, "--runs", str(runs)),
            *(f"seed={seed}", f"train_split={setting.train_split}"),
            *(f"watch={','.join(setting.splits)}", *length, *row.overrides),
        ]
    ]
    name = trained
    splits = [split for split in table.splits if not row.adapt or split == table.adapts_to]
    if row.adapt:
        name = "-".join([trained, "cloned" if row.control else "adapted", *row.adapt])
        steps.append(
            [
                *("adapt", str(runs / trained), "--split", table.adapts_to, "--name", name),
                *(["--control"] if row.control else [f"watch={table.adapts_to}", *length]),
                *row.adapt,
            ]
        )
    files = [result_file(row, setting, split, seed, results) for split in splits]
    variant = _variant(row, setting)
    named = ["--variant", variant] if variant else []
    steps += [
        [
            *("evaluate", str(runs / name), "--split", split, "--follower", row.follower),
            *("--results", str(results), "--json", *named),
        ]
        for split in splits
    ]
    return Job(f"{row.label}, seed {seed}", tuple(map(tuple, steps)), tuple(files))
