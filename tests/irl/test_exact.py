"""A world small enough to be solved exactly: what is learned against soft value iteration."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
import torch
from tiny import (
    EXACT,
    TinyWorld,
    encoder,
    episodes_of,
    new_learner,
    padded,
    situation,
    steps,
    walks,
    words_of,
)
from torch import Tensor

from langgoalirl.irl.algorithm import LangGoalIRL, Strategies
from langgoalirl.irl.learner import Learner
from langgoalirl.irl.networks import RewardModel, policy_logits
from langgoalirl.irl.relabel import Goals
from langgoalirl.irl.transitions import Steps, Transitions
from langgoalirl.models.layers import masked_log_softmax
from langgoalirl.worlds.types import STOP, Choices

WAYS = [[1, 2], [0, 3], [3], [1]]
WORLD = TinyWorld(WAYS)
HORIZON, START, GOALS = 3, 0, (4, 5)
HIDDEN = 64
DEVICE = torch.device("cpu")
RATES = replace(EXACT, critic_rate=1e-2, policy_rate=5e-3, target_rate=0.2)


def true_reward(goal: int) -> Tensor:
    """[nodes, K] what the expert is after: one node to stop at, and tastes on the way."""
    draw = torch.Generator().manual_seed(goal)
    taste = torch.randn(WORLD.mask.shape, generator=draw)
    taste[3 if goal == 4 else 2, STOP] += 1.5
    return taste


@dataclass(frozen=True)
class Solved:
    """Soft-optimal values and probabilities, [horizon, nodes, K] each; nothing where no action."""

    q: Tensor
    pi: Tensor


def solve(goal: int, alpha: float, gamma: float) -> Solved:
    """Soft value iteration backwards from the horizon: the reference that shares no code."""
    reward = true_reward(goal).double()
    value = [0.0] * WORLD.nodes
    q = torch.full((HORIZON, *WORLD.mask.shape), -math.inf, dtype=torch.float64)
    for t in reversed(range(HORIZON)):
        for node, targets in enumerate(WAYS):
            q[t, node, STOP] = reward[node, STOP]  # and nothing ever after
            for action, target in enumerate(targets, start=1):
                q[t, node, action] = reward[node, action] + gamma * value[target]
        value = (alpha * torch.logsumexp(q[t] / alpha, dim=-1)).tolist()
    return Solved(q, torch.softmax(q / alpha, dim=-1))


def reached() -> Tensor:
    """[n, 2] the (time, node) that can be reached from the start."""
    found, front = [], {START}
    for t in range(HORIZON):
        found += [(t, node) for node in sorted(front)]
        front = {target for node in front for target in WAYS[node]}
    return torch.tensor(found)


TIME, NODE = reached().T
EVERY = walks(WORLD, HORIZON, START)
ACTIONS = padded(EVERY, HORIZON)


def expert_counts(solved: Solved, about: int) -> Tensor:
    """How often each walk is taken in `about` demonstrations, without the noise of sampling."""
    counts = []
    for actions in EVERY:
        node, p = START, 1.0
        for t, action in enumerate(actions):
            p *= float(solved.pi[t, node, action])
            node = int(WORLD.to[node, action])
        counts.append(round(about * p))
    return torch.tensor(counts)


def expert_data(made: Learner, about: int, gamma: float) -> tuple[Goals, Transitions]:
    """𝒟̃ of both goals' experts."""
    pool = Goals(2 * about + 100, 2, DEVICE)
    table = Transitions(2 * about * HORIZON, HIDDEN, WORLD.action_limit, 1, DEVICE, torch.float32)
    for goal in GOALS:
        actions = ACTIONS.repeat_interleave(expert_counts(solve(goal, 1.0, gamma), about), 0)
        goals = torch.full((len(actions),), goal)
        pool.add(torch.full_like(goals, START), words_of(goals))
        table.add(episodes_of(made, encoder(WORLD.nodes, HIDDEN), START, actions, goals))
    return pool, table


def occupancy(goal: int, gamma: float) -> Tensor:
    """[n, K] how often the expert takes each action that it can come to."""
    counts = expert_counts(solve(goal, 1.0, gamma), 100_000)
    total = torch.zeros(HORIZON, *WORLD.mask.shape)
    for actions, count in zip(EVERY, counts.tolist(), strict=True):
        node = START
        for t, action in enumerate(actions):
            total[t, node, action] += count / 100_000
            node = int(WORLD.to[node, action])
    return total[TIME, NODE]


def answers(made: Learner, goal: int) -> tuple[Tensor, Tensor]:
    """Q of the first critic and π of the kept policy, [n, K] each."""
    at = situation(made, HIDDEN, NODE, TIME, torch.full_like(NODE, goal))
    with torch.no_grad():
        choices = made.choices(NODE)
        q = made.values(made.q, at, choices)[0]
        return q, masked_log_softmax(policy_logits(made.kept, at, choices), choices.mask).exp()


def learned_f(made: Learner, goal: int) -> Tensor:
    """[n, K] g + γ h′ - h of every action that exists."""
    found = torch.zeros(len(NODE), WORLD.action_limit)
    row, action = WORLD.mask[NODE].nonzero().T
    columns = (NODE[row], TIME[row], action, torch.full_like(row, goal))
    taken = steps(made, HORIZON, HIDDEN, list(zip(*(c.tolist() for c in columns), strict=True)))
    with torch.no_grad():
        found[row, action], _ = made.f(taken, made.choices(taken.now.key))
    return found


def exact(solved: Solved) -> tuple[Tensor, Tensor]:
    """Q* and π* at what can be reached."""
    return solved.q[TIME, NODE].float(), solved.pi[TIME, NODE].float()


class Told(Learner):
    """Soft actor-critic alone: the reward is the true one, and nothing is paid after *stop*."""

    def paid(self, steps: Steps, here: Choices) -> tuple[Tensor, Tensor]:
        table = torch.stack([true_reward(goal) for goal in GOALS])
        goal = steps.now.goal.argmax(-1) - GOALS[0]
        return table[goal, steps.now.key, steps.action], torch.zeros(HORIZON + 1)


def slow_down(made: Learner, names: tuple[str, ...], factor: float) -> None:
    """Step sizes as a share of what they are at first, so that what is noise settles."""
    for name in names:
        optimizer = made.weights[name].optimizer
        assert optimizer is not None
        for group in optimizer.param_groups:
            group["lr"] = factor * group.setdefault("first", group["lr"])


@pytest.mark.parametrize(("alpha", "gamma"), [(1.0, 1.0), (0.5, 0.9)])
def test_soft_actor_critic_reaches_the_soft_optimal_values(alpha: float, gamma: float) -> None:
    """Off policy, from walks of every kind; within 1 % of the range of the values."""
    rates = replace(RATES, alpha=alpha, gamma=gamma, policy_rate=1e-2, average=0.9)
    made = new_learner(WORLD, HORIZON, HIDDEN, rates, Told, from_prior=False)
    table = Transitions(2 * ACTIONS.numel(), HIDDEN, WORLD.action_limit, 1, DEVICE, torch.float32)
    for goal in GOALS:
        goals = torch.full((len(ACTIONS),), goal)
        table.add(episodes_of(made, encoder(WORLD.nodes, HIDDEN), START, ACTIONS, goals))
    draw = torch.Generator().manual_seed(0)
    for update in range(800):
        slow_down(made, ("q", "policy"), 1 - update / 800)
        made.update_policy(table.sample(128, draw))
    exists = WORLD.mask[NODE]
    for goal in GOALS:
        q, pi = answers(made, goal)
        wanted_q, wanted_pi = exact(solve(goal, alpha, gamma))
        span = wanted_q[exists].max() - wanted_q[exists].min()
        assert ((q - wanted_q)[exists].abs().max() / span).item() < 0.01
        assert (pi - wanted_pi).abs().max().item() < 0.02


@pytest.mark.parametrize(("reward", "gamma"), [("f", 1.0), ("g", 0.9)])
def test_the_policy_becomes_the_experts_and_f_its_advantage(reward: str, gamma: float) -> None:
    """From scratch, by Algorithm 1 itself. At the optimum f = log π_E, which is the expert's soft
    advantage: g and h apart are known up to shaping only, and nothing is known of what the expert
    hardly ever does. Having stopped is worth nothing any more."""
    rates = replace(RATES, batch=256, gamma=gamma, reward=reward, reward_rate=3e-3, average=0.99)
    made = new_learner(WORLD, HORIZON, HIDDEN, rates, from_prior=False)
    settings = Strategies(0, hgr=False, hgs=False, episodes=128, sampled=10.0, replay=800)
    data = expert_data(made, 3000, gamma)
    irl = LangGoalIRL(WORLD, encoder(WORLD.nodes, HIDDEN), made, None, settings, rates, 0, data)
    wanted = {goal: exact(solve(goal, 1.0, gamma))[1] for goal in GOALS}
    weight = {goal: occupancy(goal, gamma) for goal in GOALS}

    def apart(goal: int) -> float:
        """The total variation between both policies where the expert comes to."""
        distance = (answers(made, goal)[1] - wanted[goal]).abs().sum(1) / 2
        here = weight[goal].sum(1)
        return ((distance * here).sum() / here.sum()).item()

    assert min(map(apart, GOALS)) > 0.3
    for i in range(300):
        slow_down(made, ("reward", "q", "policy"), min(1.0, 2 - i / 150))
        for measured in irl.iterate():
            assert all(bool(value.isfinite()) for value in measured.values())
    for goal in GOALS:
        assert apart(goal) < 0.06
        often = weight[goal] > 0.03
        wrong = (learned_f(made, goal) - wanted[goal].log())[often].abs()
        assert wrong.mean().item() < 0.18
        assert wrong.max().item() < 0.5
    assert isinstance(made.reward, RewardModel)
    assert made.reward.absorbed.abs().max().item() < 0.2
