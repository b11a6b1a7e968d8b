"""Does the reward know what was said? How often the true pair of instruction and path scores above
a false one with as many steps, mean per step; ties count half.

route     the instruction of another route in the same house
sides     the same instruction with left and right exchanged
landmark  the same instruction with one of its landmarks replaced
path      another path of the same length from the same start, under the same instruction

And of several ways that behaviour cloning goes by chance, does the reward choose the right one?
"""

from __future__ import annotations

import torch
from torch import Tensor

from langgoalirl.demonstrations import MIRRORED, mix, trace
from langgoalirl.errors import UserError
from langgoalirl.evaluate import follow
from langgoalirl.language.vocabulary import Vocabulary
from langgoalirl.metrics import score
from langgoalirl.reward import Reward, Walk, mean_per_step
from langgoalirl.rollout import Follower
from langgoalirl.worlds.geometry import VIEWS
from langgoalirl.worlds.navgraph import NavGraph
from langgoalirl.worlds.object_words import SYNONYMS
from langgoalirl.worlds.types import NO_ACTION, STOP, Split

AT_ONCE = 200  # trajectories
SAMPLES = 8
TRIES = 20  # other paths that are drawn before a row is left out
PLACES = "bathroom bedroom desk fireplace hallway kitchen mirror office patio piano pool".split()
LANDMARKS = sorted({*SYNONYMS, *SYNONYMS.values(), *PLACES})


def reward_auc(
    rewards: list[Reward], world: NavGraph, split: Split, seed: int = 0
) -> dict[str, float]:
    """`reward_auc_<check>_<kind>`, and how many pairs each check has."""
    if split.demonstrations is None:
        raise UserError(f"Split '{split.name}' has no annotated paths to be scored.")
    vocabulary, limit = rewards[0].vocabulary, rewards[0].word_limit
    words = vocabulary.encode(split.tasks.goals, limit)
    actions = split.demonstrations.actions.cpu()
    start = world.reset(split.tasks)
    walks = Walk(trace(world, start, actions.to(world.device)).cpu(), actions)
    house = world.house_of[start // VIEWS].cpu()
    chance = torch.Generator().manual_seed(mix(seed, 30))
    other = other_route(house, split.tasks.route.cpu(), chance)
    swapped, has_sides = exchanged(words, vocabulary)
    moved, has_landmark = replaced(words, vocabulary, chance)
    elsewhere, has_path = other_paths(world, walks, chance)
    false = {  # what is said, what is walked, and for which rows
        "route": (words[other.clamp_min(0)], walks, other >= 0),
        "sides": (swapped, walks, has_sides),
        "landmark": (moved, walks, has_landmark),
        "path": (words, elsewhere, has_path),
    }
    numbers: dict[str, float] = {}
    for check, (said, taken, usable) in false.items():
        numbers[f"reward_pairs_{check}"] = rows = int(usable.sum())
        for reward in rewards if rows else []:
            right = _means(reward, world, words[usable], _rows(walks, usable))
            wrong = _means(reward, world, said[usable], _rows(taken, usable))
            above = (right > wrong).double() + 0.5 * (right == wrong).double()
            numbers[f"reward_auc_{check}_{reward.kind}"] = above.mean().item()
    return numbers


def best_of_several(
    rewards: list[Reward], world: NavGraph, follower: Follower, split: Split, seed: int = 0
) -> dict[str, float]:
    """`best_of_8_<kind>`: the success of that one of eight sampled trajectories whose rewards have
    the largest sum; `best_of_8_any`: whether one of them succeeds; `one_of_8`: each of them."""
    if split.references is None:
        raise UserError(f"Split '{split.name}' has no goals: it cannot be scored here.")
    words = rewards[0].vocabulary.encode(split.tasks.goals, rewards[0].word_limit)
    chance = torch.Generator(world.device).manual_seed(mix(seed, 31))
    success: list[Tensor] = []
    worth: dict[str, list[Tensor]] = {reward.kind: [] for reward in rewards}
    for _ in range(SAMPLES):
        done = follow(world, follower, split.tasks, words, generator=chance)
        paths = done.states // VIEWS
        width = torch.full_like(done.lengths, paths.shape[1])
        success.append(score(world, paths, width, split.references)["sr"].cpu())
        walks = Walk(done.states[:, :-1].cpu(), done.actions.cpu())
        for reward in rewards:
            worth[reward.kind].append(_values(reward, world, words, walks).sum(1))
    every = torch.stack(success)
    numbers = {"one_of_8": every.mean().item(), "best_of_8_any": every.amax(0).mean().item()}
    for kind, values in worth.items():
        best = torch.stack(values).argmax(0)
        numbers[f"best_of_8_{kind}"] = every.gather(0, best[None]).mean().item()
    return numbers


def _rows(walks: Walk, rows: Tensor) -> Walk:
    return Walk(walks.states[rows], walks.actions[rows])


def _values(reward: Reward, world: NavGraph, words: Tensor, walks: Walk) -> Tensor:
    """[n, T] of any number of trajectories."""
    every = torch.arange(len(words)).split(AT_ONCE)
    parts = [reward.of_words(world, words[rows], _rows(walks, rows)) for rows in every]
    return torch.cat(parts).cpu()


def _means(reward: Reward, world: NavGraph, words: Tensor, walks: Walk) -> Tensor:
    return mean_per_step(_values(reward, world, words, walks), walks.actions)


def other_route(house: Tensor, route: Tensor, chance: torch.Generator) -> Tensor:
    """[n] for each row a row of another route in the same house, -1 where there is none."""
    may = (house[:, None] == house) & (route[:, None] != route)
    drawn = torch.rand(may.shape, generator=chance).masked_fill(~may, -1.0)
    return torch.where(may.any(1), drawn.argmax(1), -1)


def exchanged(words: Tensor, vocabulary: Vocabulary) -> tuple[Tensor, Tensor]:
    """Instructions with left and right exchanged, and which of them that changes."""
    mirror = torch.arange(len(vocabulary))
    for word, opposite in MIRRORED.items():
        if word in vocabulary.index and opposite in vocabulary.index:
            mirror[vocabulary.index[word]] = vocabulary.index[opposite]
    changed = mirror[words]
    return changed, (changed != words).any(1)


def replaced(
    words: Tensor, vocabulary: Vocabulary, chance: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Instructions with one landmark replaced by one that they don't mention, nor a synonym of it,
    and which of them have a landmark at all."""
    known = [word for word in LANDMARKS if word in vocabulary.index]
    number = torch.tensor([vocabulary.index[word] for word in known], dtype=torch.long)
    roots = sorted({SYNONYMS.get(word, word) for word in known})
    root = torch.tensor([roots.index(SYNONYMS.get(word, word)) for word in known])
    changed, found = words.clone(), torch.zeros(len(words), dtype=torch.bool)
    for i, row in enumerate(words):
        hits = row[:, None] == number  # [N, landmarks]
        places = hits.any(1).nonzero()[:, 0]
        mentioned = root[hits.any(0)]
        free = (~torch.isin(root, mentioned)).nonzero()[:, 0]
        if len(places) == 0 or len(free) == 0:
            continue
        place = places[torch.randint(len(places), (1,), generator=chance)]
        changed[i, place] = number[free[torch.randint(len(free), (1,), generator=chance)]]
        found[i] = True
    return changed, found


def other_paths(world: NavGraph, walks: Walk, chance: torch.Generator) -> tuple[Walk, Tensor]:
    """Random walks as long as the given ones from the same starts, that come to no viewpoint twice
    and end elsewhere; and for which rows one was found."""
    moves = (walks.actions > STOP).sum(1)
    stops = (walks.actions == STOP).any(1)
    rows = torch.arange(len(moves))
    end = _end(world, walks)
    actions, found = walks.actions.clone(), torch.zeros(len(moves), dtype=torch.bool)
    for _ in range(TRIES):
        drawn = torch.full_like(walks.actions, NO_ACTION)
        key, whole = walks.states[:, 0].clone(), torch.ones_like(found)
        visited = torch.zeros(len(moves), len(world.house_of), dtype=torch.bool)
        for t in range(drawn.shape[1]):
            place = key // VIEWS
            visited[rows, place] = True
            may = world.mask.cpu()[place] & ~visited.gather(1, world.neighbour.cpu()[place])
            may[:, STOP] = False
            on = t < moves
            whole &= may.any(1) | ~on
            may[~may.any(1), STOP] = True
            action = torch.multinomial(may.float(), 1, generator=chance)[:, 0]
            drawn[:, t] = torch.where(on, action, drawn[:, t])
            step = world.step(key.to(world.device), action.to(world.device)).cpu()
            key = torch.where(on, step, key)
        drawn[rows[stops], moves[stops]] = STOP
        good = whole & (key // VIEWS != end) & ~found & (moves > 0)
        actions[good] = drawn[good]
        found |= good
    device = world.device
    states = trace(world, walks.states[:, 0].to(device), actions.to(device)).cpu()
    return Walk(states, actions), found


def _end(world: NavGraph, walks: Walk) -> Tensor:
    """[B] the viewpoint at which each walk ends."""
    rows, last = torch.arange(len(walks.actions)), (walks.actions != NO_ACTION).sum(1) - 1
    state, action = walks.states[rows, last], walks.actions[rows, last]
    return world.step(state.to(world.device), action.to(world.device)).cpu() // VIEWS
