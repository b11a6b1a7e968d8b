"""What the houses measure like: `python -m langgoalirl.worlds.houses.statistics` prints it all."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import torch

from langgoalirl.language.vocabulary import tokenize
from langgoalirl.worlds.geometry import VIEWS
from langgoalirl.worlds.houses.world import DESCRIPTIONS, SPLITS, Houses
from langgoalirl.worlds.types import STOP, Split

NEAR = 3.0  # metres from the goal at which an episode is a success


def words(text: str) -> list[str]:
    """The words of an instruction, punctuation left out."""
    return [token for token in tokenize(text) if token[0].isalnum()]


def new_word_pairs(train: Split, split: Split) -> float:
    """The share of instructions with two neighbours among their words that training never joins.

    Words that training lacks, misspelt ones above all, don't count.
    """
    told = [words(goal) for goal in train.tasks.goals]
    pairs = set().union(*(pairwise(row) for row in told))
    known = set().union(*told)
    new = [
        any(pair not in pairs and known.issuperset(pair) for pair in pairwise(words(goal)))
        for goal in split.tasks.goals
    ]
    return float(np.mean(new))


def random_success(world: Houses, split: Split, moves: int | None = None, times: int = 5) -> float:
    """How often chance ends within 3 m of the goal.

    Each of at most ten actions is drawn from all candidates, *stop* among them; or, with `moves`,
    that many moves are drawn and then the agent stops.
    """
    assert split.references is not None
    generator = torch.Generator(world.device).manual_seed(0)
    state = world.reset(split.tasks).repeat(times)
    goal = split.references.goals.repeat(times)
    stopped = torch.zeros(len(state), dtype=torch.bool, device=world.device)
    for _ in range(moves or 10):
        weight = world.mask[state // VIEWS].float()
        weight[:, STOP] *= moves is None
        action = torch.multinomial(weight, 1, generator=generator)[:, 0]
        action[stopped] = STOP
        stopped |= action == STOP
        state = world.step(state, action)
    return float((world.distance(state // VIEWS, goal) < NEAR).double().mean())


def describe(world: Houses) -> dict[str, str]:
    """One line per number worth knowing."""
    size = [len(house) for house in world.houses]
    degree = np.concatenate([house.edges.sum(1) for house in world.houses])
    metres = np.concatenate([house.distances[np.triu(house.edges)] for house in world.houses])
    plans = list(world.plans.values())
    rows = {
        "viewpoints of a house": f"{min(size)} to {max(size)}, {np.mean(size):.1f} on average",
        "neighbours of a viewpoint": f"{degree.mean():.1f}, at most {degree.max()}",
        "edges": f"{len(metres)}, {metres.mean():.2f} m on average",
        "rooms, doors, things of a house": ", ".join(
            f"{np.mean([len(part) for part in parts]):.1f}"
            for parts in zip(*((p.rooms, p.doors, p.things) for p in plans), strict=True)
        ),
        "houses with two storeys": str(sum(any(r.floor for r in p.rooms) for p in plans)),
        "words in training": str(
            len({w for g in world.split("train").tasks.goals for w in words(g)})
        ),
    }
    for name in SPLITS:
        split = world.split(name)
        assert split.references is not None
        way = world.distance(split.references.paths[:, 0], split.references.goals)
        length = np.mean([len(words(goal)) for goal in split.tasks.goals])
        rows[f"{name}: routes, instructions"] = f"{len(split) // DESCRIPTIONS}, {len(split)}"
        moves = float((split.references.lengths - 1).double().mean())
        rows[f"{name}: moves, metres of a route"] = f"{moves:.1f}, {float(way.mean()):.1f}"
        rows[f"{name}: words of an instruction"] = f"{length:.1f}"
        if name != "train":
            new = new_word_pairs(world.split("train"), split)
            chance = [random_success(world, split, moves) for moves in (None, 5, 6)]
            rows[f"{name}: instructions with a new word pair"] = f"{new:.3f}"
            rows[f"{name}: random success; after 5, 6 moves"] = ", ".join(
                f"{c:.3f}" for c in chance
            )
    return rows


def main() -> None:
    """Print the default world's numbers as rows of a Markdown table."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    world = Houses()
    print(f"| seconds to generate, one core | {time.perf_counter() - start:.1f} |")
    for name, value in describe(world).items():
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()
