"""Self-supervised learning in new environments: houses alone, and nothing that anybody said there.

π_p walks, the goal generator says what was done, and Algorithm 1 goes on with that in place of
demonstrations, without expert goal relabelling. The control does plain behaviour cloning on the
very same walks and sentences.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from langgoalirl.adversarial import learning_of, looks_of, new_learner, relabeller, run_algorithm
from langgoalirl.config import as_dict, option
from langgoalirl.demonstrations import DemonstrationSet, mix
from langgoalirl.errors import UserError, nearest
from langgoalirl.exploration import draw_starts, houses_of, random_explore, wander
from langgoalirl.irl.algorithm import LangGoalIRL, expert_table, relabel_experts
from langgoalirl.models.policy import FrozenEncoder
from langgoalirl.objectives import frozen_cloning
from langgoalirl.pretrain import (
    Ground,
    goal_agnostic,
    goal_generator,
    load_goal_agnostic,
    load_policy,
    new_policy,
)
from langgoalirl.run_folder import RunFolder, Tensors, under
from langgoalirl.stages import stage
from langgoalirl.trained import Trained
from langgoalirl.worlds.navgraph import NavGraph
from langgoalirl.worlds.types import STOP, Demonstrations, Split, Tasks

AT_ONCE = 500  # walks that are sampled together


@dataclass(frozen=True)
class Adaptation:
    """How a trained run gets to know houses that it was not trained in."""

    trajectories: int = option(15_000, "walks that are sampled and described")
    explore: str = option(
        "prior", "who walks: π_p, or RandomExplore (any unvisited neighbour)", ("prior", "random")
    )
    rounds: int = option(0, "HGS admits goals of this round G^v at most; 2 is SS_G2, 0 all")
    interactions: int = option(300_000, "steps in the new houses")
    run_seed: int = option(0, "another run on the same training")
    watch: str = option("", "splits, separated by commas, whose success is shown on the way")
    look_every: int = option(25_000, "interactions between two looks and two checkpoints")

    def __post_init__(self) -> None:
        for name in ("trajectories", "interactions", "look_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"'{name}' must be at least 1")
        if self.rounds not in (0, 2):
            raise ValueError("'rounds' must be 0 or 2")


def adapt(
    trained: Trained, houses: Tensor, how: Adaptation, name: str, control: bool = False
) -> tuple[RunFolder, dict[str, RunFolder]]:
    """A run whose policy has gone on learning in some houses; or its control, whose behaviour
    cloning has."""
    if Path(name).name != name:
        raise UserError(f"--name: '{name}' must be a plain folder name; --runs says where it goes.")
    recipe, ground = trained.learning, trained.ground
    if recipe.method in ("bc_egr", "agile", "lc_rl") and not control:
        raise UserError(f"adapt goes on with LangGoalIRL and its base, not with '{recipe.method}'.")
    run = RunFolder(ground.runs / name)
    run.begin(as_dict(recipe))
    base = trained.folder("base_model")
    walks = described_walks(ground, base, houses, how)
    data = demonstrations_of(ground, walks)
    stages = {"base_model": base, "walks": walks}
    if control:
        stages["bc"] = _cloned(ground, base, trained.folder("bc"), data, walks)
        digest = stages["bc"].status["digest"]
    else:
        stages["policy"] = _adapted(ground, base, trained.folder("policy"), data, walks, how)
        digest = stages["policy"].status["digest"]
        if "bc" in trained.stages:  # what it started from, to be compared with
            stages["bc"] = trained.folder("bc")
    found = {k: str(stage.path.relative_to(ground.runs)) for k, stage in stages.items()}
    run.finish(stages=found, digest=digest)
    return run, stages


def chosen_houses(world: NavGraph, split: str, scans: str) -> Tensor:
    """Houses by the split that they belong to, or by name."""
    if bool(split) == bool(scans):
        raise UserError("adapt needs the houses: give either --split or --scans.")
    if split:
        return houses_of(world, world.split(split))
    names = [name.strip() for name in scans.split(",") if name.strip()]
    for name in names:
        if name not in world.house_index:
            raise UserError(
                f"--scans: there is no house '{name}'.{nearest(name, world.house_index)}"
            )
    return torch.tensor(sorted(world.house_index[name] for name in names), device=world.device)


def described_walks(ground: Ground, base: RunFolder, houses: Tensor, how: Adaptation) -> RunFolder:
    """(E_new, G_new, τ_new): walks through the houses, each with a sentence by the generator."""
    speaker = goal_generator(ground)
    walker = goal_agnostic(ground) if how.explore == "prior" else None
    recipe, world = learning_of(ground), ground.world
    seed = mix(recipe.seed, how.run_seed, 30)
    inputs = {"base": base, "generator": speaker, "walker": walker}
    config = {
        "world": world.digest,
        "houses": [world.houses[i].name for i in houses.tolist()],
        "trajectories": how.trajectories,
        "explore": how.explore,
        "speaking": as_dict(recipe.speaking),
        "seed": seed,
        "word_limit": recipe.word_limit,
        "inputs": {k: stage.status["digest"] for k, stage in inputs.items() if stage},
    }

    def build(run: RunFolder) -> Tensors:
        prior = load_goal_agnostic(ground, walker) if walker else None
        generator = torch.Generator().manual_seed(seed)
        starts: list[Tensor] = []
        actions: list[Tensor] = []
        while sum(len(part) for part in starts) < how.trajectories:
            tasks = draw_starts(world, houses, AT_ONCE, generator)
            walked = (
                wander(world, prior, tasks, generator)
                if prior is not None
                else random_explore(world, tasks, generator)
            )
            # An expert moves, and says when it is there.
            last = walked.actions.gather(1, walked.lengths[:, None] - 1)[:, 0]
            kept = ((last == STOP) & (walked.lengths > 1)).cpu()
            starts.append(tasks.start[kept])
            actions.append(walked.actions.cpu()[kept])
        start = torch.cat(starts)[: how.trajectories]
        done = torch.cat(actions)[: how.trajectories]
        data = _as_demonstrations(ground, start, done)
        talk = relabeller(ground, base, speaker)
        words = relabel_experts(data, FrozenEncoder(talk.base), talk, 1, seed)[:, 0]
        return {"start": start, "actions": done.to(torch.int8), "words": words.to(torch.int32)}

    return stage(ground.runs, "walks", config, __name__, build)


def demonstrations_of(ground: Ground, walks: RunFolder) -> DemonstrationSet:
    """Described walks as if they were demonstrations."""
    kept = walks.need("final")
    data = _as_demonstrations(ground, kept["start"], kept["actions"].long())
    data.words = kept["words"].long()
    return data


def _as_demonstrations(ground: Ground, start: Tensor, actions: Tensor) -> DemonstrationSet:
    count = len(start)
    tasks = Tasks([str(i) for i in range(count)], [""] * count, start, torch.arange(count))
    split = Split("walks", tasks, Demonstrations(actions), None)
    return DemonstrationSet(ground.world, split, ground.vocabulary, ground.recipe.word_limit)


def _adapted(
    ground: Ground,
    base: RunFolder,
    source: RunFolder,
    data: DemonstrationSet,
    walks: RunFolder,
    how: Adaptation,
) -> RunFolder:
    """Algorithm 1 goes on from where it ended, with the described walks as 𝒟̃."""
    recipe = learning_of(ground)
    strategies = replace(recipe.strategies, expert_goals=0, rounds=how.rounds)
    going_on = replace(
        recipe,
        strategies=strategies,
        interactions=how.interactions,
        watch=how.watch,
        look_every=how.look_every,
    )
    config = {
        "interactions": how.interactions,
        "run_seed": how.run_seed,
        "seed": recipe.seed,
        "strategies": as_dict(strategies),
        "rates": as_dict(recipe.rates),
        "inputs": {"source": source.status["digest"], "walks": walks.status["digest"]},
    }

    def build(run: RunFolder) -> Tensors:
        checkpoint = source.load("last")
        if checkpoint is None:
            raise UserError(f"{source.path}: its last checkpoint is gone; train the run again.")
        policy = new_policy(ground, base)
        learner = new_learner(ground, policy)
        learner.load_results(source.need("final"))  # the prior, which is in no checkpoint
        learner.restore(under(checkpoint[0], "learner."))
        none = torch.empty(len(data), 0, recipe.word_limit, dtype=torch.long)
        algorithm = LangGoalIRL(
            ground.world,
            policy.encoder,
            learner,
            relabeller(ground, base, goal_generator(ground)) if strategies.relabels else None,
            strategies,
            recipe.rates,
            mix(recipe.seed, how.run_seed, 31),
            expert_table(learner, policy.encoder, data, none),
        )
        run_algorithm(run, algorithm, going_on, looks_of(ground, how.watch))
        return learner.results()

    return stage(ground.runs, f"{recipe.method}_adapted", config, __name__, build)


def _cloned(
    ground: Ground, base: RunFolder, source: RunFolder, data: DemonstrationSet, walks: RunFolder
) -> RunFolder:
    """Behaviour cloning goes on with the described walks, without the adversarial loop."""
    settings = ground.recipe.bc
    inputs = {"source": source.status["digest"], "walks": walks.status["digest"]}
    config = {"training": as_dict(settings), "seed": ground.recipe.seed, "inputs": inputs}

    def build(run: RunFolder) -> Tensors:
        policy = load_policy(ground, base, source)
        objective = frozen_cloning(ground.world, policy, data, settings)
        return ground.on(data).fit_follower(run, policy, objective, settings)

    return stage(ground.runs, "bc_adapted", config, __name__, build)
