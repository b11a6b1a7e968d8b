"""The embedded demo: made-up houses, agents that follow instructions in them, and one page."""

from __future__ import annotations

import html
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from langgoalirl.agents import RandomAgent, shortest_paths
from langgoalirl.describe import examples, likeness, speak, variety
from langgoalirl.evaluate import follow
from langgoalirl.files import atomic_write
from langgoalirl.metrics import score, summary
from langgoalirl.models.sizes import Sizes
from langgoalirl.models.speaking import Sampling
from langgoalirl.pretrain import pretrain
from langgoalirl.recipe import Pretraining, WorldChoice
from langgoalirl.rollout import Trajectories
from langgoalirl.trained import Trained
from langgoalirl.training import GeneratorTraining, Training
from langgoalirl.worlds.geometry import VIEWS
from langgoalirl.worlds.houses.world import Houses
from langgoalirl.worlds.navgraph import NavGraph
from langgoalirl.worlds.types import Split

QUICK = Training(updates=800, learning_rate=2e-3, decay=True, average=0.99, mirror=True)

RECIPE = Pretraining(
    world=WorldChoice(name="houses"),
    sizes=Sizes(hidden=128, word=64, angle=16, latent=32, dropout=0.3, feature_dropout=0.1),
    min_count=2,
    base_model=QUICK,
    bc=replace(QUICK, updates=500),
    goal_generator=GeneratorTraining(
        updates=500,
        learning_rate=2e-3,
        decay=True,
        average=0.99,
        mirror=True,
        kl_updates=300,
        dropout=0.15,
        feature_dropout=0.05,
    ),
)
"""Small networks, two minutes of training on one core: enough to see that it works."""


@dataclass
class Demo:
    """What the demo found out, for the terminal and for the page."""

    scores: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)  # agent, split
    sentences: list[dict[str, str]] = field(default_factory=list)
    measures: dict[str, float] = field(default_factory=dict)
    maps: list[tuple[str, list[str]]] = field(default_factory=list)  # picture, sentences


def run_demo(runs: Path) -> tuple[Demo, Path]:
    """Train, score, describe, draw; gives the findings and the page."""
    pretrain(RECIPE, runs, "demo", ("bc", "goal_generator"))
    trained = Trained.open(runs / "demo")
    world = trained.ground.world
    found = Demo()
    for name in ("val_seen", "val_unseen"):
        split = world.split(name)
        words = trained.ground.words(split)
        chance = torch.Generator().manual_seed(0)
        found.scores.setdefault("random", {})[name] = _scored(
            world, follow(world, RandomAgent(), split.tasks, words, generator=chance), split
        )
        done = follow(world, trained.follower("bc"), split.tasks, words)
        found.scores.setdefault("behaviour cloning", {})[name] = _scored(world, done, split)
        assert split.references is not None
        paths, lengths = shortest_paths(world, split.tasks.start, split.references)
        found.scores.setdefault("shortest path (knows the goal)", {})[name] = summary(
            score(world, paths, lengths, split.references)
        )
    _describe(trained, split, found)
    assert isinstance(world, Houses)
    found.maps = [_map(world, split, done, row) for row in (0, len(split) // 2)]
    page = runs / "demo" / "report.html"
    with atomic_write(page, "w") as file:
        file.write(_page(found))
    return found, page


def _scored(world: NavGraph, done: Trajectories, split: Split) -> dict[str, float]:
    assert split.references is not None
    paths = done.states // VIEWS
    width = torch.full_like(done.lengths, paths.shape[1])
    return summary(score(world, paths, width, split.references))


def _describe(trained: Trained, split: Split, found: Demo) -> None:
    """What the goal generator says of routes in houses that it never saw."""
    from langgoalirl.demonstrations import DemonstrationSet

    ground = trained.ground
    data = DemonstrationSet(ground.world, split, ground.vocabulary, ground.recipe.word_limit)
    how = Sampling(samples=3)
    generator, base = trained.goal_generator(), trained.base_model()
    spoken = speak(ground.world, data, generator, base, how, seed=0)
    found.sentences = examples(spoken, ground.vocabulary, split, 5)
    found.measures = {
        **likeness(spoken, ground.vocabulary, split),
        **variety(spoken, ground.vocabulary, split),
    }


def _map(world: Houses, split: Split, done: Trajectories, row: int) -> tuple[str, list[str]]:
    """A route from above with all its instructions, and where the agent went under the first."""
    from langgoalirl.report.maps import house_map, svg

    assert split.references is not None
    first = int(split.tasks.route.eq(split.tasks.route[row]).nonzero()[0])
    house = int(world.house_of[split.references.paths[first, 0]])
    begin = int(world.first[house])

    def local(path: Tensor) -> list[int]:
        return (path - begin).tolist()

    annotated = local(split.references.paths[first, : int(split.references.lengths[first])])
    taken = local(done.states[first, : int(done.lengths[first])] // VIEWS)
    same = split.tasks.route.eq(split.tasks.route[first]).nonzero()[:, 0].tolist()
    figure = house_map(world, world.houses[house].name, annotated, taken)
    return svg(figure), [split.tasks.goals[i] for i in same]


STYLE = """
:root { color-scheme: light }
body { font: 16px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 60rem;
       margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .35rem .7rem; border-bottom: 1px solid #e4e7eb }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
svg { width: 100%; height: auto } blockquote { margin: .3rem 0 .3rem 1rem; color: #52606d }
p.said { margin: .1rem 0 .8rem 1rem; color: #9a3412 }
"""


def _page(found: Demo) -> str:
    """One self-contained page."""
    rows = "".join(
        f"<tr><td>{html.escape(agent)}</td>"
        + "".join(
            f"<td class=n>{scores[split]['sr']:.3f}</td><td class=n>{scores[split]['spl']:.3f}</td>"
            for split in ("val_seen", "val_unseen")
        )
        + "</tr>"
        for agent, scores in found.scores.items()
    )
    maps = "".join(
        picture + "".join(f"<blockquote>{html.escape(text)}</blockquote>" for text in texts)
        for picture, texts in found.maps
    )
    said = "".join(
        f"<blockquote>{html.escape(pair['human'])}</blockquote>"
        f"<p class=said>{html.escape(pair['generated'])}</p>"
        for pair in found.sentences
    )
    measures = ", ".join(f"{name} {value:.3f}" for name, value in found.measures.items())
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>LangGoalIRL: demo</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{STYLE}</style></head><body>
<h1>LangGoalIRL: following instructions in made-up houses</h1>
<p>Sixty generated houses, two minutes of training. Success means to stop within 3 metres of the
goal; SPL weighs it by the length of the way. In <em>val_unseen</em> every house is new.</p>
<h2>Who finds the goal</h2>
<table><tr><th>agent</th><th class=n>seen: success</th><th class=n>SPL</th>
<th class=n>unseen: success</th><th class=n>SPL</th></tr>{rows}</table>
<h2>Two routes from above</h2>
<p>Orange: the annotated route, from ring to star. Dashed in blue: where behaviour cloning went,
told the first of the three instructions.</p>{maps}
<h2>What the goal generator says of routes in new houses</h2>
<p>Grey: the world's own instruction; red: what was generated. {html.escape(measures)}</p>{said}
</body></html>
"""


def table_rows(found: Demo) -> list[list[Any]]:
    """Agents and their success, for the terminal."""
    return [
        [agent, *(scores[s][key] for s in ("val_seen", "val_unseen") for key in ("sr", "spl"))]
        for agent, scores in found.scores.items()
    ]
