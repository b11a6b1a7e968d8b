"""Our joint update beside others' libraries, in one run: everybody in an environment of their own,
one thread each, taking turns.

    for name in tianshou==2.0.1 imitation==1.0.1; do
        python3 -m venv .venv-${name%==*} && .venv-${name%==*}/bin/pip install torch==2.13.0 $name
    done
    .venv/bin/python benchmarks/peers.py --tianshou .venv-tianshou --imitation .venv-imitation

tianshou's DiscreteSAC is an actor and two critics on a state of the same width, with as many hidden
units and actions: no discriminator, no features of candidates. imitation's AIRL trains on CartPole
with PPO, two 32-unit layers each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, pstdev

STATE, ACTIONS, HIDDEN, BATCHES = 1024, 14, 512, (100, 256)
ROUNDS, WARM = 7, 20
Work = Callable[[], float]  # does a piece of work and says how many units of it


def tianshou_works() -> dict[str, Work]:
    """DiscreteSAC updates from a replay buffer of random transitions."""
    import gymnasium
    import numpy as np
    from tianshou.algorithm import DiscreteSAC
    from tianshou.algorithm.modelfree.discrete_sac import DiscreteSACPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Batch, ReplayBuffer
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

    draw = np.random.default_rng(0)
    buffer = ReplayBuffer(size=5000)
    for _ in range(5000):
        done = bool(draw.random() < 0.2)
        buffer.add(
            Batch(
                obs=draw.standard_normal(STATE, dtype=np.float32),
                act=int(draw.integers(ACTIONS)),
                rew=float(draw.standard_normal()),
                terminated=done,
                truncated=False,
                done=done,
                obs_next=draw.standard_normal(STATE, dtype=np.float32),
                info={},
            )
        )

    def net() -> Net:
        return Net(state_shape=STATE, hidden_sizes=[HIDDEN])

    actor = DiscreteActor(preprocess_net=net(), action_shape=ACTIONS, softmax_output=False)
    policy = DiscreteSACPolicy(actor=actor, action_space=gymnasium.spaces.Discrete(ACTIONS))
    adam = AdamOptimizerFactory(lr=1e-3)
    algorithm = DiscreteSAC(
        policy=policy,
        policy_optim=adam,
        critic=DiscreteCritic(preprocess_net=net(), last_size=ACTIONS),
        critic_optim=adam,
        critic2=DiscreteCritic(preprocess_net=net(), last_size=ACTIONS),
        critic2_optim=adam,
    )

    def work(batch: int) -> Work:
        def run() -> float:
            from tianshou.utils.torch_utils import policy_within_training_step

            with policy_within_training_step(algorithm.policy):
                algorithm.update(buffer, batch)
            return 1.0

        return run

    return {f"DiscreteSAC update, batch {batch}": work(batch) for batch in BATCHES}


def imitation_works() -> dict[str, Work]:
    """AIRL on CartPole: a thousand and twenty-four interactions at a time, its own defaults."""
    import numpy as np
    from imitation.algorithms.adversarial.airl import AIRL
    from imitation.data import rollout
    from imitation.data.wrappers import RolloutInfoWrapper
    from imitation.rewards.reward_nets import BasicShapedRewardNet
    from imitation.util.util import make_vec_env
    from stable_baselines3 import PPO

    draw, steps = np.random.default_rng(0), 1024
    venv = make_vec_env(
        "CartPole-v1",
        rng=draw,
        n_envs=8,
        post_wrappers=[lambda env, _: RolloutInfoWrapper(env)],
    )
    demonstrations = rollout.rollout(None, venv, rollout.make_sample_until(None, 20), rng=draw)
    learner = PPO("MlpPolicy", venv, n_steps=steps // 8, batch_size=64, device="cpu", seed=0)
    trainer = AIRL(
        demonstrations=demonstrations,
        demo_batch_size=256,
        gen_replay_buffer_capacity=steps,
        venv=venv,
        gen_algo=learner,
        reward_net=BasicShapedRewardNet(venv.observation_space, venv.action_space),
        allow_variable_horizon=True,
    )

    def run() -> float:
        trainer.train(total_timesteps=steps)
        return float(steps)

    return {"AIRL loop, an interaction": run}


def our_works() -> dict[str, Work]:
    """The joint update and the whole loop."""
    from langgoalirl.bench.learning import prepared
    from langgoalirl.recipe import WorldChoice

    choice = WorldChoice("r2r" if "LANGGOALIRL_R2R" in os.environ else "houses")
    works: dict[str, Work] = {}
    for batch in BATCHES:
        bench = prepared(choice, HIDDEN, batch)
        list(bench.algorithm.iterate())

        def update(bench=bench) -> float:  # type: ignore[no-untyped-def]
            given = bench.algorithm.expert_steps
            draw = bench.algorithm.chance
            batches = [given.sample(bench.learner.rates.batch, draw) for _ in range(3)]
            bench.learner.update(*batches)
            return 1.0

        def loop(bench=bench) -> float:  # type: ignore[no-untyped-def]
            before = bench.algorithm.interactions
            list(bench.algorithm.iterate())
            return float(bench.algorithm.interactions - before)

        works[f"joint update, batch {batch}"] = update
        if batch == BATCHES[-1]:
            works["LangGoalIRL loop, an interaction"] = loop
    return works


WORKERS = {"langgoalirl": our_works, "tianshou": tianshou_works, "imitation": imitation_works}


def serve(name: str) -> None:
    """Do what is asked for on standard input, one turn after another, and say how long it took."""
    import torch

    torch.set_num_threads(1)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print is not an answer
    works = WORKERS[name]()
    for work in works.values():
        began = time.process_time()
        for _ in range(WARM):
            work()
            if time.process_time() - began > 2:
                break
    print(json.dumps(list(works)), file=out, flush=True)
    for line in sys.stdin:
        work, units = works[line.strip()], 0.0
        began = time.process_time()
        while time.process_time() - began < 1.0:
            units += work()
        print(json.dumps(1e3 * (time.process_time() - began) / units), file=out, flush=True)


def main() -> None:
    """Start everybody, let them take turns, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("tianshou", "imitation"):
        parser.add_argument(f"--{name}", type=Path, metavar="VENV", help="where it is installed")
    parser.add_argument("--results", type=Path, metavar="FILE", help="write the numbers there")
    parser.add_argument("--worker", choices=WORKERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return serve(options.worker)
    pythons = {"langgoalirl": Path(sys.executable)}
    for name in ("tianshou", "imitation"):
        place = getattr(options, name)
        if place is not None:
            pythons[name] = place / "bin" / "python"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    started = {
        name: subprocess.Popen(
            [python, __file__, "--worker", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if name == "imitation" else None,  # a table a second
            text=True,
            env=environment,
        )
        for name, python in pythons.items()
    }
    turns = [(name, work) for name, p in started.items() for work in json.loads(_line(name, p))]
    found: dict[tuple[str, str], list[float]] = {turn: [] for turn in turns}
    for _ in range(ROUNDS):
        for name, work in turns:
            process = started[name]
            assert process.stdin is not None
            process.stdin.write(f"{work}\n")
            process.stdin.flush()
            found[name, work].append(json.loads(_line(name, process)))
    for process in started.values():
        process.communicate()
    rows = {
        f"{name}: {work}": {"ms": median(times), "spread": pstdev(times)}
        for (name, work), times in found.items()
    }
    for what, row in rows.items():
        print(f"{what:55} {row['ms']:8.2f} ms  ± {row['spread']:.2f}")
    if options.results:
        from langgoalirl.files import write_json
        from langgoalirl.results import provenance

        origin = provenance() | {"command": f"python {' '.join(sys.argv)}"}
        shapes = {"state": STATE, "actions": ACTIONS, "hidden": HIDDEN, "rounds": ROUNDS}
        write_json(options.results, {**origin, "config": shapes, "metrics": rows})


def _line(name: str, process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        sys.exit(f"peers.py: {name} ended early; what it said is above.")
    return line


if __name__ == "__main__":
    main()
