"""`train`: a method of the paper as a stage with a folder, on top of what pretraining left.

The loop itself is `irl.algorithm`; here it gets its parts, its checkpoints and its learning curve.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from langgoalirl.config import as_dict, option
from langgoalirl.demonstrations import mix
from langgoalirl.errors import UserError
from langgoalirl.evaluate import validation
from langgoalirl.irl.algorithm import LangGoalIRL, Strategies, expert_table, relabel_experts
from langgoalirl.irl.collect import Actor
from langgoalirl.irl.learner import Learner, Rates
from langgoalirl.irl.relabel import Relabeller
from langgoalirl.memory import peak_memory
from langgoalirl.models.policy import FrozenEncoder, Policy
from langgoalirl.pretrain import (
    Ground,
    base_model,
    behaviour_cloning,
    goal_generator,
    load_base_model,
    load_goal_generator,
    new_policy,
)
from langgoalirl.progress import Board, Progress
from langgoalirl.recipe import Pretraining
from langgoalirl.rollout import STEP_LIMIT, Follower
from langgoalirl.run_folder import RunFolder, Tensors, under
from langgoalirl.stages import stage

METHODS = ("bc_egr", "langgoalirl", "langgoalirl_base", "lc_rl", "agile", "her")


@dataclass(frozen=True)
class Learning(Pretraining):
    """A method of the paper, and the pretraining that it stands on."""

    method: str = option("langgoalirl", "what is trained", METHODS)
    interactions: int = option(300_000, "steps in the world")
    start: str = option("bc", "what the policy starts from", ("bc", "scratch"))
    run_seed: int = option(0, "beside the seed: another run on the same pretraining")
    watch: str = option("", "splits, separated by commas, whose success is shown while training")
    look_every: int = option(25_000, "interactions between two looks and two checkpoints")
    strategies: Strategies = option(Strategies, "what is relabelled and sampled")
    rates: Rates = option(Rates, "how the networks are updated")

    def __post_init__(self) -> None:
        for name in ("interactions", "look_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"'{name}' must be at least 1")
        if self.strategies.replay < self.strategies.episodes * STEP_LIMIT:
            raise ValueError("strategies.replay must hold all steps of strategies.episodes")


def train(recipe: Learning, runs: Path, name: str) -> tuple[RunFolder, dict[str, RunFolder]]:
    """Train a method and whatever it needs; gives the run's folder and the stages'."""
    if Path(name).name != name:
        raise UserError(f"--name: '{name}' must be a plain folder name; --runs says where it goes.")
    ground = Ground(recipe, runs)
    run = RunFolder(runs / name)
    run.begin(as_dict(recipe))
    base = base_model(ground)
    stages = {"base_model": base}
    start = None
    if recipe.method != "bc_egr" and recipe.start == "bc":
        attention = recipe.method != "lc_rl"
        start = behaviour_cloning(ground, base, attention)
        stages["bc" if attention else "bc_concat"] = start
    generated = torch.empty(len(ground.data), 0, recipe.word_limit, dtype=torch.long)
    speaker = None
    if recipe.strategies.expert_goals or recipe.strategies.relabels:
        stages["goal_generator"] = speaker = goal_generator(ground)
    if speaker is not None and recipe.strategies.expert_goals:
        stages["expert_goals"] = goals = expert_goals(ground, base, speaker)
        generated = goals.need("final")["words"].long()
    if recipe.method == "bc_egr":
        policy = behaviour_cloning(_augmented(ground, generated), base)
    else:
        policy = adversarial(ground, base, start, speaker, generated)
    stages["policy"] = policy
    found = {k: str(stage.path.relative_to(runs)) for k, stage in stages.items()}
    run.finish(stages=found, digest=policy.status["digest"])
    return run, stages


def expert_goals(ground: Ground, base: RunFolder, speaker: RunFolder) -> RunFolder:
    """EGR's goals, generated once and shared by all runs that ask for as many."""
    recipe = learning_of(ground)
    count = recipe.strategies.expert_goals
    config = {
        "goals": count,
        "speaking": as_dict(recipe.speaking),
        "seed": recipe.seed,
        "word_limit": recipe.word_limit,
        "inputs": {"base": base.status["digest"], "generator": speaker.status["digest"]},
        "data": ground.config(recipe.bc)["data"],
    }

    def build(run: RunFolder) -> Tensors:
        relabel = relabeller(ground, base, speaker)
        encoder = FrozenEncoder(relabel.base)
        words = relabel_experts(ground.data, encoder, relabel, count, recipe.seed)
        return {"words": words.to(torch.int32)}

    return stage(ground.runs, "expert_goals", config, __name__, build)


def adversarial(
    ground: Ground,
    base: RunFolder,
    start: RunFolder | None,
    speaker: RunFolder | None,
    generated: Tensor,
) -> RunFolder:
    """Algorithm 1 from 𝒟̃ and the pretrained parts to a policy and a reward."""
    recipe = learning_of(ground)
    chosen = ("method", "interactions", "start", "run_seed", "strategies", "rates", "speaking")
    inputs = {"base": base, "start": start, "generator": speaker}
    known = {name: stage.status["digest"] for name, stage in inputs.items() if stage is not None}
    config = ground.config(recipe.bc, **known)
    config |= {k: v for k, v in as_dict(recipe).items() if k in chosen}

    def build(run: RunFolder) -> Tensors:
        policy = new_policy(ground, base, attention=recipe.method != "lc_rl")
        if start is not None:
            policy.load_state_dict(start.need("final"))
        learner = new_learner(ground, policy)
        algorithm = LangGoalIRL(
            ground.world,
            policy.encoder,
            learner,
            relabeller(ground, base, speaker) if speaker is not None else None,
            recipe.strategies,
            recipe.rates,
            mix(recipe.seed, recipe.run_seed),
            expert_table(learner, policy.encoder, ground.data, generated),
        )
        run_algorithm(run, algorithm, recipe, looks_of(ground, recipe.watch))
        return learner.results()

    return stage(ground.runs, recipe.method, config, __name__, build)


def new_learner(ground: Ground, policy: Policy) -> Learner:
    """Untrained critics and reward around a policy."""
    recipe = learning_of(ground)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(mix(recipe.seed, recipe.run_seed, 14))
        return Learner(
            ground.world,
            copy.deepcopy(policy.head),
            recipe.sizes,
            STEP_LIMIT,
            recipe.rates,
            from_prior=recipe.start == "bc",
            agile=recipe.method == "agile",
        )


def learning_of(ground: Ground) -> Learning:
    assert isinstance(ground.recipe, Learning)
    return ground.recipe


def relabeller(ground: Ground, base: RunFolder, speaker: RunFolder) -> Relabeller:
    recipe = learning_of(ground)
    return Relabeller(
        ground.world,
        load_goal_generator(ground, speaker),
        load_base_model(ground, base),
        replace(recipe.speaking, limit=recipe.word_limit - 1),
    )


def _augmented(ground: Ground, generated: Tensor) -> Ground:
    """The same ground with EGR's goals among its demonstrations."""
    data, times = copy.copy(ground.data), 1 + generated.shape[1]
    wide = max(data.words.shape[1], generated.shape[2])
    words = torch.zeros(len(data), times, wide, dtype=data.words.dtype)
    words[:, 0, : data.words.shape[1]] = data.words
    words[:, 1:, : generated.shape[2]] = generated
    data.words = words.flatten(0, 1)
    for name in ("actions", "states", "route"):
        setattr(data, name, getattr(ground.data, name).repeat_interleave(times, 0))
    return ground.on(data)


Look = Callable[[Follower], dict[str, float]]


def looks_of(ground: Ground, watch: str) -> dict[str, Look]:
    """What the learning curve shows: success on the splits that are watched."""
    splits = [name.strip() for name in watch.split(",") if name.strip()]
    return {
        name: validation(ground.world, split, ground.words(split), torch.float32)
        for name in splits
        for split in [ground.world.split(name)]
    }


def run_algorithm(
    run: RunFolder, algorithm: LangGoalIRL, recipe: Learning, looks: dict[str, Look]
) -> None:
    """Iterate until enough steps were taken, with a look and a checkpoint now and then."""
    spent, learner = _resume(run, algorithm), algorithm.learner
    if algorithm.interactions >= recipe.interactions:
        return  # it was cut off behind its last checkpoint
    began, first = time.perf_counter() - spent, algorithm.interactions
    next_look = (first // recipe.look_every + 1) * recipe.look_every if first else 0
    totals: dict[str, Tensor] = {}
    count = 0
    with (
        Progress(run.path.name, recipe.interactions, first) as bar,
        Board(run.path, algorithm.updates) as board,
    ):
        while True:
            if algorithm.interactions >= min(next_look, recipe.interactions):
                numbers = {k: v.item() / count for k, v in totals.items()}
                totals, count = {}, 0
                policy = Actor(algorithm.encoder, learner.kept, learner.prior)
                for name, look in looks.items():
                    numbers |= {f"{key}_{name}": value for key, value in look(policy).items()}
                seconds = time.perf_counter() - began
                run.log(
                    algorithm.updates,
                    interactions=algorithm.interactions,
                    **numbers,
                    seconds=round(seconds, 1),
                    peak_gb=round(peak_memory(), 2),
                )
                board.show(algorithm.interactions, numbers)
                bar.show(**{k: v for k, v in numbers.items() if k.startswith(("sr_", "d_"))})
                while next_look <= algorithm.interactions:
                    next_look += recipe.look_every
                if algorithm.interactions > first:
                    _checkpoint(run, algorithm, seconds)
            if algorithm.interactions >= recipe.interactions:
                return
            before = algorithm.interactions
            for measured in algorithm.iterate():
                totals = {k: totals.get(k, torch.zeros(())) + v for k, v in measured.items()}
                count += 1
            bar.advance(algorithm.interactions - before)


def _checkpoint(run: RunFolder, algorithm: LangGoalIRL, seconds: float) -> None:
    """Everything that the rest of the run depends on, in one atomic file."""
    learner = algorithm.learner
    tensors = {f"learner.{k}": v for k, v in learner.state().items()}
    tensors |= {f"replay.{k}": v for k, v in algorithm.replay.tensors().items()}
    tensors |= {f"pool.{k}": v for k, v in algorithm.pool.tensors().items()}
    state = {
        **{k: getattr(algorithm, k) for k in _COUNTS},
        "replay_head": algorithm.replay.head,
        "pool_head": algorithm.pool.head,
        "seconds": seconds,
    }
    run.save("last", tensors, state)


_COUNTS = ("iteration", "interactions", "episodes", "updates")


def _resume(run: RunFolder, algorithm: LangGoalIRL) -> float:
    """Back to the last checkpoint, if there is one; gives the seconds that were spent by then."""
    loaded = run.load("last")
    if loaded is None:
        run.rewind(-1)
        return 0.0
    tensors, state = loaded
    learner = algorithm.learner
    learner.restore(under(tensors, "learner."))
    algorithm.replay.restore(under(tensors, "replay."), state["replay_head"])
    algorithm.pool.restore(under(tensors, "pool."), state["pool_head"])
    for name in _COUNTS:
        setattr(algorithm, name, state[name])
    run.rewind(algorithm.updates)
    return float(state["seconds"])
