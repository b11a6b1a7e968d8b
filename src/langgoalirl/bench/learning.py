"""How fast the adversarial loop is: every part of it, beside what this machine allows.

Utilisation is counted arithmetic over what the matrix products of this machine could do in the same
time. Only candidates that exist are counted. `benchmarks/plain.py`, where the sources are a
checkout, is the same update as one would write it down first.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from statistics import median, pstdev
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

import langgoalirl
from langgoalirl.bench.world import random_panoramas
from langgoalirl.demonstrations import DemonstrationSet
from langgoalirl.irl.algorithm import LangGoalIRL, Strategies, expert_table
from langgoalirl.irl.collect import collect
from langgoalirl.irl.learner import Learner, Rates
from langgoalirl.irl.networks import RewardModel
from langgoalirl.irl.recorded import Recorded
from langgoalirl.irl.relabel import Relabeller
from langgoalirl.irl.transitions import Steps
from langgoalirl.language.vocabulary import Vocabulary
from langgoalirl.memory import peak_memory
from langgoalirl.models.base_model import BaseModel
from langgoalirl.models.goal_generator import GoalGenerator
from langgoalirl.models.policy import FrozenEncoder, PolicyHead
from langgoalirl.models.sizes import Sizes
from langgoalirl.models.speaking import Sampling
from langgoalirl.pretrain import initialised
from langgoalirl.recipe import WorldChoice, open_world
from langgoalirl.rollout import STEP_LIMIT
from langgoalirl.worlds.features import write_cache
from langgoalirl.worlds.geometry import VIEWS
from langgoalirl.worlds.navgraph import NavGraph
from langgoalirl.worlds.types import Split, Tasks, World

ROUNDS = 5  # everything takes turns, so that a busy machine is unfair to nobody
DEMONSTRATIONS = 2000
WORDS = 80
WARM = 8
Work = Callable[[], Any]


@dataclass
class Bench:
    """An untrained algorithm in a world: how fast it is does not depend on what it has learned."""

    world: World
    learner: Learner
    algorithm: LangGoalIRL

    def batches(self, draw: torch.Generator) -> tuple[Steps, Steps, Steps]:
        """P+, P- and the actor-critic's batch."""
        table, b = self.algorithm.expert_steps, self.learner.rates.batch
        return table.sample(b, draw), table.sample(b, draw), table.sample(b, draw)


def prepared(
    choice: WorldChoice,
    hidden: int,
    batch: int,
    precision: str = "bf16",
    drop: float | None = None,
    episodes: int = 100,
    width: int = 0,
    device: str = "cpu",
) -> Bench:
    """Networks of the paper's kinds in a world, with demonstrations in place of trajectories; with
    random features so wide, or the world's own."""
    own = replace(choice, features="none") if width else choice
    world: NavGraph = open_world(own, "cpu" if width else device)
    split = _some(world.split("train"))
    if width:
        with TemporaryDirectory(prefix="langgoalirl-bench-") as folder:
            made = write_cache(Path(folder) / "c", width, random_panoramas(world, width), "random")
        rows = made.rows(world.houses)
        world = NavGraph(world.houses, made.values, rows, digest=made.digest, device=device)
    vocabulary = Vocabulary.build(split.tasks.goals, 5)
    data = DemonstrationSet(world, split, vocabulary, WORDS)
    sizes = Sizes(hidden=hidden)
    rates = replace(Rates(), batch=batch, precision=precision)
    rates = rates if drop is None else replace(rates, dropout=drop)
    wide, words = world.feature_width, len(vocabulary)
    base: BaseModel = initialised(1, BaseModel, wide, words, sizes).to(world.device).eval()
    speaker: GoalGenerator = initialised(2, GoalGenerator, wide, words, sizes)
    speaker = speaker.to(world.device).eval()
    head: PolicyHead = initialised(3, PolicyHead, wide, sizes).eval()
    learner: Learner = initialised(4, Learner, world, head, sizes, STEP_LIMIT, rates)
    encoder = FrozenEncoder(base)
    relabel = Relabeller(world, speaker, base, Sampling(1, limit=WORDS - 1))
    none = torch.empty(len(data), 0, WORDS, dtype=torch.long)
    table = expert_table(learner, encoder, data, none)
    strategies = Strategies(1, episodes=episodes, replay=100_000)
    algorithm = LangGoalIRL(world, encoder, learner, relabel, strategies, rates, 0, table)
    return Bench(world, learner, algorithm)


def hold_policy(bench: Bench) -> None:
    """The policy goes on acting at random, so that episodes keep their lengths."""
    optimizer = bench.learner.weights["policy"].optimizer
    assert optimizer is not None
    for group in optimizer.param_groups:
        group["lr"] = 0.0


def _some(split: Split) -> Split:
    assert split.demonstrations is not None
    rows = torch.arange(min(DEMONSTRATIONS, len(split)))
    tasks: Tasks = split.tasks.rows(rows)
    demonstrations = replace(split.demonstrations, actions=split.demonstrations.actions[rows])
    return replace(split, tasks=tasks, demonstrations=demonstrations, references=None)


def plain_learner() -> Any:
    """The plain reference's class, or None where benchmarks/ is not beside the sources."""
    file = Path(langgoalirl.__file__).parents[2] / "benchmarks" / "plain.py"
    specification = importlib.util.spec_from_file_location("langgoalirl_plain", file)
    if not file.is_file() or specification is None or specification.loader is None:
        return None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module.PlainLearner


def bench_learning(
    choice: WorldChoice,
    hidden: int,
    batch: int,
    width: int = 0,
    interactions: int = 2000,
    device: str = "cpu",
) -> dict[str, Any]:
    """Milliseconds of each part, utilisation, the plain update's times, and the whole loop."""
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("highest")
    bench = prepared(choice, hidden, batch, width=width, device=device)
    hold_policy(bench)
    for _ in range(WARM):  # fills the replay; memory that is freed settles only after some updates
        list(bench.algorithm.iterate())
    parts = _parts(bench)
    counted = {name: flops(work) for name, work in parts.items()}
    works = {**parts, **_plain(bench), **_roofline(device)}
    times = milliseconds(works, now=clock(device))
    table = {name: times[name] | {"gflop": counted[name] / 1e9} for name in parts}
    peak = {
        name: 2 * prod(_SHAPES[device]) / times[name]["ms"] / 1e6
        for name in times
        if name.startswith("mm_")
    }
    for row in table.values():
        row["of_products"] = row["gflop"] / (row["ms"] * 1e-3 * peak["mm_bf16"])
    ours, some = times["update"]["ms"], _mean_candidates(bench)
    plain = {name: row for name, row in times.items() if name.startswith("plain")}
    return {
        "world": bench.world.name,
        "hidden": hidden,
        "batch": batch,
        "width": bench.world.feature_width,
        "candidates": {"mean": some, "most": bench.world.action_limit},
        "avoided_gflop": avoided(
            batch, hidden, bench.world.feature_width, bench.world.action_limit, some
        ),
        "gflops": peak,
        "copy_gb_per_second": 2 * _COPIED / times["copy"]["ms"] / 1e6,
        "device": device,
        "parts": table,
        "operations": _operations(parts["update"]),
        "plain": {n: {**row, "times": row["ms"] / ours} for n, row in plain.items()},
        "loop": loop_rates(bench, interactions),
        "peak_gb": peak_memory(),
    }


def _parts(bench: Bench) -> dict[str, Work]:
    """Everything that an iteration consists of."""
    learner, algorithm, world = bench.learner, bench.algorithm, bench.world
    draw = torch.Generator(world.device).manual_seed(0)
    start, words, _ = algorithm._goals()
    done = collect(world, algorithm.actor, start, words, learner.horizon, algorithm.chance)
    turns = [bench.batches(draw) for _ in range(8)]
    assert isinstance(learner.reward, RewardModel)
    state = {"turn": 0}

    def batches() -> tuple[Steps, Steps, Steps]:
        state["turn"] = (state["turn"] + 1) % len(turns)
        return turns[state["turn"]]

    def forward(work: Callable[[Steps], Tensor]) -> Work:
        def run() -> None:
            with torch.no_grad():
                work(batches()[2])

        return run

    def both(work: Callable[[Steps], Tensor], name: str) -> Work:
        def run() -> None:
            work(batches()[2]).sum().backward()
            for parameter in learner.weights[name].parameters:
                parameter.grad = None

        return run

    def f(steps: Steps) -> Tensor:
        return learner.f(steps, learner.choices(steps.now.key))[0]

    def pi(steps: Steps) -> Tensor:
        return learner.log_pi(steps.now, learner.choices(steps.now.key)).clamp_min(-100)

    def q(steps: Steps) -> Tensor:
        return learner.values(learner.q, steps.now, learner.choices(steps.now.key))

    def optimise() -> None:
        for name in ("reward", "q", "policy"):
            weights = learner.weights[name]
            for parameter in weights.parameters:
                parameter.grad = torch.zeros_like(parameter)
            weights.step()
        learner.weights["q_target"].follow(learner.weights["q"], 0.005)
        learner.weights["kept"].follow(learner.weights["policy"], 0.002)

    recorded: dict[str, Work] = {}
    if world.device.type == "cuda":
        play = Recorded(learner)
        recorded["update, recorded"] = lambda: play(*bench.batches(draw))
    return {
        **recorded,
        "one step of all episodes": lambda: world.observe(
            world.step(start, torch.ones_like(start))
        ),
        "rollout": lambda: collect(
            world, algorithm.actor, start, words, learner.horizon, algorithm.chance
        ),
        "goal encoding": lambda: algorithm.encoder.goal(done.state, words),
        "goal generation": lambda: algorithm.relabel(done, algorithm.chance),  # type: ignore[misc]
        "replay sampling": lambda: bench.batches(draw),
        "candidates": lambda: learner.choices(batches()[2].now.key),
        "f forward": forward(f),
        "f forward and backward": both(f, "reward"),
        "Q forward": forward(q),
        "Q forward and backward": both(q, "q"),
        "π forward": forward(pi),
        "π forward and backward": both(pi, "policy"),
        "optimisers and averages": optimise,
        "discriminator update": lambda: learner.update_discriminator(*batches()[:2]),
        "actor-critic update": lambda: learner.update_policy(batches()[2]),
        "update": lambda: learner.update(*bench.batches(draw)),
    }


def _plain(bench: Bench) -> dict[str, Work]:
    """The plain update at each precision, where it is to be had."""
    made = plain_learner()
    if made is None or bench.world.device.type != "cpu":
        return {}
    draw = torch.Generator().manual_seed(0)
    exact = initialised(
        4,
        Learner,
        bench.world,
        initialised(3, PolicyHead, bench.world.feature_width, Sizes(bench.learner.q.hidden)),
        Sizes(bench.learner.q.hidden),
        STEP_LIMIT,
        replace(bench.learner.rates, precision="fp32"),
    )

    def work(precision: str) -> Work:
        plain = made(exact, precision)

        def run() -> None:
            plain.update(*bench.batches(draw))
            torch.set_float32_matmul_precision("highest")

        return run

    return {f"plain_{precision}": work(precision) for precision in ("highest", "medium", "bf16")}


_COPIED = 256 * 2**20  # bytes: more than caches hold
_SHAPES = {"cpu": (1400, 512, 512), "cuda": (8192, 8192, 8192)}


def _roofline(device: str) -> dict[str, Work]:
    """What this machine does at best: a matrix product at each precision, and a copy."""
    draw, (n, k, m) = torch.Generator(device).manual_seed(0), _SHAPES[device]
    a = torch.randn(n, k, generator=draw, device=device)
    b = torch.randn(k, m, generator=draw, device=device)
    half = a.bfloat16(), b.bfloat16()
    copied = torch.ones(_COPIED, dtype=torch.uint8, device=device)
    into = torch.empty_like(copied)

    def medium() -> None:
        torch.set_float32_matmul_precision("medium")
        a @ b
        torch.set_float32_matmul_precision("highest")

    return {
        "mm_fp32": lambda: a @ b,
        "mm_medium": medium,
        "mm_bf16": lambda: half[0] @ half[1],
        "copy": lambda: into.copy_(copied),
    }


def clock(device: str) -> Callable[[], float]:
    """CPU seconds; for a GPU the wall clock's, once it has done all that it was given."""
    if device == "cpu":
        return time.process_time

    def now() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return now


def milliseconds(
    works: dict[str, Work], seconds: float = 0.15, now: Callable[[], float] = time.process_time
) -> dict[str, dict[str, float]]:
    """Time of each work: median and spread over rounds in which all take turns."""
    count: dict[str, int] = {}
    for name, work in works.items():
        work()
        began = now()
        work()
        count[name] = max(1, round(seconds / max(1e-6, now() - began)))
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            work()
            began = now()
            for _ in range(count[name]):
                work()
            found[name].append(1e3 * (now() - began) / count[name])
    return {name: {"ms": median(each), "spread": pstdev(each)} for name, each in found.items()}


def flops(work: Work) -> float:
    """Floating-point operations in matrix products, LSTMs left out."""

    def in_place(into: Any, a: Any, b: Any, *more: Any, **_: Any) -> int:
        return 2 * a[0] * a[1] * b[1]

    counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.addmm_: in_place})
    with counter:
        work()
    return float(counter.get_total_flops())


def _operations(work: Work, times: int = 30, most: int = 14) -> dict[str, float]:
    """Milliseconds that a work spends in each of torch's operations, the longest ones."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it says when it starts and stops
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for _ in range(times):
            work()
    spent = {each.key: each.self_cpu_time_total / 1e3 / times for each in profiled.key_averages()}
    named = {name.removeprefix("aten::"): ms for name, ms in spent.items() if "::" in name}
    longest = sorted(named, key=lambda name: -named[name])[:most]
    return {name: named[name] for name in longest}


def _mean_candidates(bench: Bench) -> float:
    key = bench.batches(torch.Generator(bench.world.device).manual_seed(0))[0].now.key
    return bench.learner.choices(key).mask.sum(1).float().mean().item()


def avoided(batch: int, hidden: int, wide: int, most: int, some: float) -> dict[str, float]:
    """GFLOP of matrix products in one update that a plain one has and ours has not, by reason."""
    state = 2 * hidden + STEP_LIMIT  # h^s, g and the time
    # Batches · heads in which all candidates are looked at: log π of the discriminator's batches,
    # π′, both Q′, both Q, and π twice over, because it learns.
    all_of_them = 2 + 1 + 2 + 2 + 2
    # … and in which the action that was taken would do: g twice over in two batches, the reward,
    # and both critics twice over.
    one_would_do = 4 + 1 + 4
    times = 2e-9 * batch * hidden
    prior = state - STEP_LIMIT + wide + most * wide / hidden
    words, steps = 29, 5  # of a usual instruction, before a usual step
    reading = words * 4 * (300 + hidden) + steps * (4 * (wide + 32 + hidden) + 2 * VIEWS)
    return {
        "the state, multiplied for every candidate": times
        * state
        * (most - 1)
        * (all_of_them + one_would_do),
        "candidates that do not exist": times * wide * (most - some) * (all_of_them + one_would_do),
        "candidates that were not taken, where one would do": times
        * wide
        * (some - 1)
        * one_would_do,
        "log π of the start, worked out anew": times * prior * 4,
        "h^s and g, worked out anew": times * reading * 6,
    }


def loop_rates(bench: Bench, interactions: int) -> dict[str, float]:
    """Interactions per second of whole iterations, with as many updates as the paper has."""
    algorithm, now = bench.algorithm, clock(bench.world.device.type)
    before, updates, began = algorithm.interactions, algorithm.updates, now()
    learning, iterations = 0.0, 0
    while algorithm.interactions - before < interactions:
        iterations += 1
        first, last = True, 0.0
        for _ in algorithm.iterate():
            here = now()
            learning += 0.0 if first else here - last
            first, last = False, here
    seconds = now() - began
    done, updates = algorithm.interactions - before, algorithm.updates - updates
    per_update = learning / max(1, updates - iterations)  # an iteration's first one is not seen
    return {
        "interactions": done,
        "interactions_per_second": done / seconds,
        "minutes_per_million": 1e6 * seconds / done / 60,
        "update_ms": 1e3 * per_update,
        "without_updates": done / (seconds - updates * per_update),
        "episodes_at_a_time": algorithm.strategies.episodes,
    }
