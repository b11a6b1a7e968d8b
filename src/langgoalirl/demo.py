"""The embedded demo: made-up houses, agents that follow instructions in them, and one page."""

from __future__ import annotations

import html
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from langgoalirl.adversarial import Learning, train
from langgoalirl.agents import RandomAgent, shortest_paths
from langgoalirl.describe import examples, likeness, speak, variety
from langgoalirl.evaluate import follow
from langgoalirl.files import atomic_write
from langgoalirl.irl.algorithm import Strategies
from langgoalirl.irl.learner import Rates
from langgoalirl.metrics import score, summary
from langgoalirl.models.sizes import Sizes
from langgoalirl.models.speaking import Sampling
from langgoalirl.recipe import WorldChoice
from langgoalirl.report.curves import Curve, learning_curves
from langgoalirl.report.maps import house_map, svg
from langgoalirl.report.page import page, table
from langgoalirl.rollout import Trajectories
from langgoalirl.trained import Trained
from langgoalirl.training import GeneratorTraining, Training
from langgoalirl.worlds.geometry import VIEWS
from langgoalirl.worlds.houses.world import Houses
from langgoalirl.worlds.navgraph import NavGraph
from langgoalirl.worlds.types import Split

QUICK = Training(updates=800, learning_rate=2e-3, decay=True, average=0.99, mirror=True)

RECIPE = Learning(
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
    speaking=Sampling(samples=1),
    interactions=30_000,
    watch="val_seen,val_unseen",
    look_every=10_000,
    strategies=Strategies(expert_goals=1),
    rates=Rates(batch=128, reward_rate=1e-3, critic_rate=1e-3, policy_rate=3e-4),
)
"""Small networks, a few minutes of training on one core: enough to see that it works."""

METHODS = {
    "LangGoalIRL_BASE": ("langgoalirl_base", Strategies(expert_goals=0, hgr=False, hgs=False)),
    "LangGoalIRL": ("langgoalirl", RECIPE.strategies),
}


@dataclass
class Demo:
    """What the demo found out, for the terminal and for the page."""

    scores: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)  # agent, split
    sentences: list[dict[str, str]] = field(default_factory=list)
    measures: dict[str, float] = field(default_factory=dict)
    curves: list[Curve] = field(default_factory=list)
    maps: list[tuple[str, list[str]]] = field(default_factory=list)  # picture, sentences


def run_demo(runs: Path) -> tuple[Demo, Path]:
    """Train, score, describe, draw; gives the findings and the page."""
    found, opened = Demo(), {}
    for label, (method, strategies) in METHODS.items():
        recipe = replace(RECIPE, method=method, strategies=strategies)
        name = f"demo-{method}"
        folder, stages = train(recipe, runs, name)
        opened[label] = Trained.open(folder.path)
        found.curves.append(Curve(label, stages["policy"].metrics()))
    trained = opened["LangGoalIRL"]  # it stands on the same pretraining as the others
    agents = {"behaviour cloning": trained.follower("bc")}
    agents |= {label: run.follower("policy") for label, run in opened.items()}
    world = trained.ground.world
    for name in ("val_seen", "val_unseen"):
        split = world.split(name)
        words = trained.ground.words(split)
        chance = torch.Generator().manual_seed(0)
        wandered = follow(world, RandomAgent(), split.tasks, words, generator=chance)
        found.scores.setdefault("random", {})[name] = _scored(world, wandered, split)
        for label, agent in agents.items():
            done = follow(world, agent, split.tasks, words)
            found.scores.setdefault(label, {})[name] = _scored(world, done, split)
        assert split.references is not None
        paths, lengths = shortest_paths(world, split.tasks.start, split.references)
        found.scores.setdefault("shortest path (knows the goal)", {})[name] = summary(
            score(world, paths, lengths, split.references)
        )
    _describe(trained, split, found)
    assert isinstance(world, Houses)
    found.maps = [_map(world, split, done, row) for row in (0, len(split) // 2)]
    file = runs / "demo" / "report.html"
    with atomic_write(file, "w") as out:
        out.write(_page(found))
    return found, file


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


def _page(found: Demo) -> str:
    """One self-contained page."""
    head = ["agent", "seen: success", "SPL", "unseen: success", "SPL"]
    curves = "".join(
        svg(learning_curves(found.curves, split)) for split in ("val_seen", "val_unseen")
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
    body = f"""<h1>LangGoalIRL: following instructions in made-up houses</h1>
<p>Sixty generated houses, a few minutes of training. Success means to stop within 3 metres of the
goal; SPL weighs it by the length of the way. In <em>val_unseen</em> every house is new.</p>
<h2>Who finds the goal</h2>
{table(head, table_rows(found))}
<h2>Learning curves of the adversarial loop</h2>
<p>Both methods start from behaviour cloning.</p>{curves}
<h2>Two routes from above</h2>
<p>Orange: the annotated route, from ring to star. Dashed in blue: where LangGoalIRL went,
told the first of the three instructions.</p>{maps}
<h2>What the goal generator says of routes in new houses</h2>
<p>Grey: the world's own instruction; red: what was generated. {html.escape(measures)}</p>{said}"""
    return page("LangGoalIRL: demo", body)


def table_rows(found: Demo) -> list[list[Any]]:
    """Agents and their success, for the terminal."""
    return [
        [agent, *(scores[s][key] for s in ("val_seen", "val_unseen") for key in ("sr", "spl"))]
        for agent, scores in found.scores.items()
    ]
