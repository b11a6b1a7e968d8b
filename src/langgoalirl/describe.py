"""What the goal generator says of given routes, and how good that is.

Likeness to what humans said (BLEU), variety (distinct sentences, self-BLEU, use of z), and truth:
followability, the success of a follower on generated goals over its success on human ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sacrebleu
import torch
from torch import Tensor

from langgoalirl.demonstrations import DemonstrationSet, mix
from langgoalirl.evaluate import follower_scores
from langgoalirl.language.vocabulary import PAD, Vocabulary, tokenize
from langgoalirl.models.base_model import BaseModel
from langgoalirl.models.goal_generator import GoalGenerator, kl_divergence
from langgoalirl.models.speaking import Sampling, path_log_likelihood, sample_goals
from langgoalirl.objectives import walk_along
from langgoalirl.rollout import Follower
from langgoalirl.worlds.navgraph import NavGraph
from langgoalirl.worlds.types import References, Split, World

AT_ONCE = 200  # routes


@dataclass(frozen=True)
class Spoken:
    """What the generator said of the routes of a split, one row per route."""

    rows: Tensor  # [R] the first row of each route in the split
    words: Tensor  # [R, S, N]
    best: Tensor  # [R] the sample that the own base model follows best


@torch.no_grad()
def speak(
    world: World,
    data: DemonstrationSet,
    model: GoalGenerator,
    base: BaseModel,
    how: Sampling,
    seed: int,
) -> Spoken:
    """Sample sentences for every route, and choose among them as a pragmatic speaker would."""
    rows = first_rows(data.route)
    generator = torch.Generator(world.device)
    said, best = [], []
    for i, part in enumerate(rows.split(AT_ONCE)):
        generator.manual_seed(mix(seed, i, 5))
        batch = data.rows(part)
        walk = walk_along(world, batch)
        words = sample_goals(model, model.encode(walk), how, generator)
        state = base.state.sequence(walk.seen.views, walk.seen.facing)
        fit = path_log_likelihood(base, state, walk.seen, walk.actions, words)
        best.append(fit.argmax(1).cpu())
        padded = torch.full((*words.shape[:2], how.limit + 1), PAD)
        padded[..., : words.shape[2]] = words.cpu()
        said.append(padded)
    return Spoken(rows, torch.cat(said), torch.cat(best))


def first_rows(route: Tensor) -> Tensor:
    """The first row of every route."""
    order = torch.arange(len(route))
    first = torch.full((int(route.max()) + 1,), len(route))
    first = first.scatter_reduce(0, route, order, reduce="amin")
    return first[first < len(route)]


def likeness(spoken: Spoken, vocabulary: Vocabulary, split: Split) -> dict[str, float]:
    """BLEU-4 and n-gram precisions of one sample per route against all human sentences."""
    said = [normal(text) for text in vocabulary.decode(spoken.words[:, 0])]
    return bleu(said, references(split, spoken.rows))


def references(split: Split, rows: Tensor) -> list[list[str]]:
    """All human sentences of each route."""
    by_route: dict[int, list[str]] = {}
    for route, goal in zip(split.tasks.route.tolist(), split.tasks.goals, strict=True):
        by_route.setdefault(route, []).append(normal(goal))
    return [by_route[route] for route in split.tasks.route[rows].tolist()]


def normal(text: str) -> str:
    """A sentence as BLEU compares it: our tokens, lower case."""
    return " ".join(tokenize(text))


def bleu(said: list[str], human: list[list[str]]) -> dict[str, float]:
    """Corpus BLEU-4 and its precisions, as fractions."""
    most = max(map(len, human))
    # A route with fewer sentences than others has none, not an empty one, in the last columns.
    columns: Any = [[row[i] if i < len(row) else None for row in human] for i in range(most)]
    result = sacrebleu.corpus_bleu(said, columns, tokenize="none", force=True)
    p1, p2, p3 = (value / 100 for value in result.precisions[:3])
    return {"bleu": min(1.0, result.score / 100), "p1": p1, "p2": p2, "p3": p3}


def self_bleu(groups: list[list[str]]) -> float:
    """How much the first three sentences of each group repeat each other."""
    three = [group[:3] for group in groups if len(group) >= 3]
    said = [group[i] for group in three for i in range(3)]
    others = [[g for j, g in enumerate(group) if j != i] for group in three for i in range(3)]
    return bleu(said, others)["bleu"]


def variety(spoken: Spoken, vocabulary: Vocabulary, split: Split) -> dict[str, float]:
    """Distinct sentences per route, and self-BLEU beside the humans' own."""
    texts = vocabulary.decode(spoken.words.flatten(0, 1))
    samples = spoken.words.shape[1]
    groups = [
        [normal(text) for text in texts[i : i + samples]] for i in range(0, len(texts), samples)
    ]
    return {
        "distinct": sum(len(set(group)) for group in groups) / len(groups),
        "self_bleu": self_bleu(groups),
        "self_bleu_human": self_bleu(references(split, spoken.rows)),
    }


@torch.no_grad()
def use_of_latent(
    world: World, data: DemonstrationSet, model: GoalGenerator, seed: int
) -> dict[str, float]:
    """KL(q || p), and nats per sentence that a posterior's z of another sentence costs."""
    generator = torch.Generator(world.device).manual_seed(mix(seed, 6))
    kl, own, foreign = [], [], []
    for rows in torch.arange(len(data)).split(AT_ONCE):
        batch = data.rows(rows)
        words = batch.words.to(world.device)
        encoded = model.encode(walk_along(world, batch))
        q = model.posterior_of(encoded, words)
        z = q.sample(generator)
        kl.append(kl_divergence(q, model.prior_of(encoded)))
        own.append(model.log_likelihood(encoded, words, z))
        # Rolled by a third: another route's z, with no chance of being one's own.
        foreign.append(model.log_likelihood(encoded, words, z.roll(max(1, len(z) // 3), 0)))
    own_mean = torch.cat(own).mean().item()
    return {
        "kl": torch.cat(kl).mean().item(),
        "reconstruction": -own_mean,
        "shuffled_z_costs": own_mean - torch.cat(foreign).mean().item(),
    }


@torch.no_grad()
def followability(
    world: NavGraph, follower: Follower, vocabulary: Vocabulary, spoken: Spoken, split: Split
) -> dict[str, float]:
    """Success on generated goals over success on human ones, for the same paths: of any one sample
    (the mean over all of them), and of the selected one. The follower must be of another seed than
    the models that spoke and chose."""
    if split.references is None:
        raise ValueError("followability needs annotated paths")
    human = follower_scores(world, follower, split, vocabulary.encode(split.tasks.goals, 80))
    samples = spoken.words.shape[1]
    rows = spoken.rows.repeat_interleave(samples)
    told = Split(
        split.name,
        split.tasks.rows(rows),
        None,
        References(split.references.paths[rows], split.references.lengths[rows]),
    )
    success = follower_scores(world, follower, told, spoken.words.flatten(0, 1))["sr"]
    by_sample = success.view(len(spoken.rows), samples)
    selected = by_sample.gather(1, spoken.best.to(by_sample.device)[:, None])
    base = human["sr"].mean().item()
    rates = {"single": by_sample.mean().item(), "selected": selected.mean().item()}
    return {
        "success_human": base,
        **{f"success_{name}": rate for name, rate in rates.items()},
        **{f"followability_{name}": rate / max(base, 1e-9) for name, rate in rates.items()},
    }


def examples(
    spoken: Spoken, vocabulary: Vocabulary, split: Split, count: int
) -> list[dict[str, str]]:
    """Some routes, evenly spread over the split: a human's sentence and the first sample."""
    picks = torch.linspace(0, len(spoken.rows) - 1, min(count, len(spoken.rows))).long()
    said = vocabulary.decode(spoken.words[picks, 0])
    return [
        {"id": split.tasks.ids[row], "human": split.tasks.goals[row].strip(), "generated": text}
        for row, text in zip(spoken.rows[picks].tolist(), said, strict=True)
    ]
