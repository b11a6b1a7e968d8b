"""Worlds of a few nodes, in which everything is known: what the adversarial tests stand on.

A state's encoding is the one-hot of (time, node) and a goal's the one-hot of its only word, so that
networks with one hidden layer can hold any table over them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from langgoalirl.irl.learner import Learner, Rates
from langgoalirl.irl.transitions import Episodes, Situation, Steps
from langgoalirl.language.vocabulary import END, PAD
from langgoalirl.models.policy import PolicyHead
from langgoalirl.models.sizes import Sizes
from langgoalirl.worlds.types import NO_ACTION, STOP, Choices, Observation, Split, Tasks

torch.set_num_threads(1)

CPU = torch.device("cpu")
GARBAGE = 3.0  # in the embeddings of candidates that are not there
EXACT = Rates(batch=64, policy="dot", dropout=0.0, precision="fp32")


class TinyWorld:
    """Nodes with edges: `ways[n]` are the nodes that actions 1, 2, … lead to from n."""

    view_count = 1

    def __init__(self, ways: list[list[int]], padding: int = 0) -> None:
        self.name, self.device, self.digest = "tiny", CPU, ""
        most = max(map(len, ways))
        self.nodes, self.action_limit = len(ways), 1 + most + padding
        self.feature_width = max(most, len(ways))
        self.to = torch.arange(self.nodes)[:, None].repeat(1, self.action_limit)
        self.mask = torch.zeros(self.nodes, self.action_limit, dtype=torch.bool)
        self.mask[:, STOP] = True
        for node, targets in enumerate(ways):
            self.to[node, 1 : 1 + len(targets)] = torch.tensor(targets)
            self.mask[node, 1 : 1 + len(targets)] = True
        action = torch.zeros(self.action_limit, self.feature_width)
        action[1 : 1 + most, :most] = torch.eye(most)
        self.embedding = torch.where(self.mask[..., None], action, GARBAGE)

    def reset(self, tasks: Tasks) -> Tensor:
        return tasks.start

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        return self.to[state, action]

    def choices(self, state: Tensor, dtype: torch.dtype) -> Choices:
        return Choices.of(self.embedding[state].to(dtype), self.mask[state])

    def observe(self, state: Tensor) -> Observation:
        views = one_hot(state, self.feature_width).float()[:, None]
        heading = torch.zeros(len(state), 4)
        return Observation(views, self.embedding[state], self.mask[state], heading)

    def split(self, name: str) -> Split:
        raise NotImplementedError


class Clock:
    """In place of the base model's state encoder: h^s says what time it is and where one is."""

    def __init__(self, nodes: int, hidden: int) -> None:
        self.nodes, self.hidden = nodes, hidden

    def start(self, views: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros(len(views), self.hidden), torch.zeros(len(views), dtype=torch.long)

    def __call__(self, views: Tensor, facing: Tensor, memory: Any) -> tuple[Tensor, Tensor]:
        time = memory[1]
        return self.at(views[:, 0].argmax(-1), time), time + 1

    def at(self, node: Tensor, time: Tensor) -> Tensor:
        """h^s of a node at a time."""
        return one_hot(time * self.nodes + node, self.hidden).float()


class Encoder:
    """In place of the frozen encoder: g is the one-hot of the first word."""

    attention = True

    def __init__(self, nodes: int, hidden: int) -> None:
        self.base, self.state, self.hidden = self, Clock(nodes, hidden), hidden

    def read(self, words: Tensor) -> tuple[Tensor, Tensor]:
        return one_hot(words % self.hidden, self.hidden).float(), words != PAD

    def attended_goal(self, state: Tensor, encoded: tuple[Tensor, Tensor]) -> Tensor:
        return encoded[0][:, :1].expand(-1, state.shape[1], -1)

    def goal(self, state: Tensor, words: Tensor) -> Tensor:
        return self.attended_goal(state, self.read(words))


def encoder(nodes: int, hidden: int) -> Any:
    """An `Encoder`, where a `FrozenEncoder` is asked for."""
    return Encoder(nodes, hidden)


def sizes(hidden: int) -> Sizes:
    """Networks without any dropout."""
    return Sizes(hidden=hidden, word=4, angle=2, latent=4, dropout=0.0, feature_dropout=0.0)


def new_learner(
    world: TinyWorld,
    horizon: int,
    hidden: int = 8,
    rates: Rates = EXACT,
    kind: type = Learner,
    **more: Any,
) -> Any:
    """A learner whose first weights are always the same ones."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        head = PolicyHead(world.feature_width, sizes(hidden)).eval()
        return kind(world, head, sizes(hidden), horizon, rates, **more)


def stirred(module: torch.nn.Module, seed: int = 0) -> None:
    """Small random numbers in all weights, those that begin at zero included."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=draw))


def words_of(goal: Tensor) -> Tensor:
    """[B, 2] sentences of one word, which is the goal's number."""
    return torch.stack([goal, torch.full_like(goal, END)], dim=1)


def situation(learner: Learner, hidden: int, node: Tensor, time: Tensor, goal: Tensor) -> Situation:
    """Nodes at some times under some goals, and what a learner starts from there."""
    state = Clock(learner.world.nodes, hidden).at(node, time)  # type: ignore[attr-defined]
    told = one_hot(goal, hidden).float()
    prior = learner.log_prior(node, state, told)
    return Situation(node, time, torch.cat([state, told], dim=-1), prior)


def steps(
    learner: Learner, horizon: int, hidden: int, rows: list[tuple[int, int, int, int]]
) -> Steps:
    """Steps (node, time, action, goal) as the table would give them."""
    node, time, action, goal = torch.tensor(rows).T
    last = (action == STOP) | (time == horizon - 1)
    world = learner.world
    now = situation(learner, hidden, node, time, goal)
    then_node = torch.where(last, node, world.step(node, action))
    then = situation(learner, hidden, then_node, torch.where(last, time, time + 1), goal)
    return Steps(now, action, then, last)


def walks(world: TinyWorld, horizon: int, start: int) -> list[tuple[int, ...]]:
    """The actions of every episode that there can be from a node on."""
    done: list[tuple[int, ...]] = []

    def walk(node: int, actions: tuple[int, ...]) -> None:
        if len(actions) == horizon or (actions and actions[-1] == STOP):
            done.append(actions)
            return
        for action in world.mask[node].nonzero()[:, 0].tolist():
            walk(int(world.to[node, action]), (*actions, action))

    walk(start, ())
    return done


def episodes_of(
    learner: Learner, encoder: Encoder, start: int, actions: Tensor, *goals: Tensor
) -> Episodes:
    """Episodes [B, T] from a node on under one or several goals [B]."""
    world, keys = learner.world, [torch.full((len(actions),), start)]
    for action in actions.T[:-1]:
        keys.append(world.step(keys[-1], action.clamp_min(STOP)))
    key, time = torch.stack(keys, dim=1), torch.arange(actions.shape[1])
    state = encoder.state.at(key, time.expand_as(key))
    encoded = tuple(encoder.goal(state, words_of(goal)) for goal in goals)
    priors = tuple(learner.log_prior(key, state, goal) for goal in encoded)
    return Episodes(key, actions, state, encoded, priors)


def padded(rows: list[tuple[int, ...]], horizon: int) -> Tensor:
    """Action sequences as [B, horizon]."""
    return torch.tensor([[*row, *[NO_ACTION] * (horizon - len(row))] for row in rows])
