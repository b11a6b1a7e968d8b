"""Practice of the goal generator: it describes walks that nobody described, the base model tries to
follow what was said, and only what it could follow is learned from.

The walks are the goal-agnostic policy's, in the houses of the demonstrations; neither goal
positions nor further instructions are needed. The base model was not trained on these walks, so
what it can follow, it follows because of what was said.
"""

from __future__ import annotations

import torch

from langgoalirl.demonstrations import DemonstrationSet, mix
from langgoalirl.errors import UserError
from langgoalirl.exploration import draw_starts, wander
from langgoalirl.models.base_model import BaseModel
from langgoalirl.models.goal_generator import GoalGenerator
from langgoalirl.models.speaking import Sampling, follow_path, sample_goals
from langgoalirl.objectives import walk_along
from langgoalirl.progress import Progress
from langgoalirl.rollout import Follower
from langgoalirl.training import Practice
from langgoalirl.worlds.geometry import VIEWS
from langgoalirl.worlds.navgraph import NavGraph

AT_ONCE = 200  # walks
FEWEST_MOVES = 2


@torch.no_grad()
def practise(
    world: NavGraph,
    data: DemonstrationSet,
    prior: Follower,
    generator: GoalGenerator,
    base: BaseModel,
    settings: Practice,
    seed: int,
) -> DemonstrationSet:
    """Walks with the sentence that the base model follows best, if it follows it to the letter:
    at every step the walk's action is the one it would have taken."""
    chance = torch.Generator(world.device).manual_seed(mix(seed, 7))
    starts = torch.Generator().manual_seed(mix(seed, 8))
    houses = world.house_of[data.states[:, 0].to(world.device) // VIEWS].unique()
    walks = wander(world, prior, draw_starts(world, houses, settings.walks, starts), chance)
    whole = (walks.moves >= FEWEST_MOVES) & (walks.moves < walks.lengths)  # of use, and stopped
    states, actions = walks.states[whole, :-1].cpu(), walks.actions[whole].cpu()
    limit = data.words.shape[1]
    silence = torch.ones(len(states), 1, dtype=torch.long)
    unsaid = data.like(silence, states, actions)
    how = Sampling(settings.samples, temperature=settings.temperature, limit=limit - 1)
    words = torch.zeros(len(states), limit, dtype=data.words.dtype)
    holds = torch.zeros(len(states), dtype=torch.bool)
    with Progress("practice: describing walks", len(states)) as bar:
        for rows in torch.arange(len(states)).split(AT_ONCE):
            walk = walk_along(world, unsaid.rows(rows))
            said = sample_goals(generator, generator.encode(walk), how, chance)
            state = base.state.sequence(walk.seen.views, walk.seen.facing)
            followed = follow_path(base, state, walk.seen, walk.actions, said)
            best = followed.log_likelihood.argmax(1, keepdim=True)
            chosen = said.gather(1, best[..., None].expand(-1, -1, said.shape[2]))[:, 0]
            words[rows, : chosen.shape[1]] = chosen.cpu()
            holds[rows] = followed.agrees.gather(1, best)[:, 0].cpu()
            bar.advance(len(rows))
    if not bool(holds.any()):
        raise UserError(
            f"practice: the base model could follow none of {len(states)} walks to the letter; "
            "train it longer (base_model.updates) or set practice.updates=0."
        )
    return data.like(words[holds], states[holds], actions[holds])
