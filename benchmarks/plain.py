"""The joint update as one would write it down first, to measure ours against.

The same equations: inputs concatenated for every candidate, those that do not exist included;
nothing stored that can be worked out again; one network and one optimiser after another. A test
holds its losses and what it learns equal to `langgoalirl.irl.learner`'s.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from langgoalirl.irl.learner import Learner
from langgoalirl.irl.networks import FLOOR, ActionValue, RewardModel, StateValue
from langgoalirl.irl.transitions import Situation, Steps
from langgoalirl.worlds.types import STOP

PRECISIONS = ("highest", "medium", "bf16")


class Scores(nn.Module):
    """MLP([h^s; g; time; e^a]): a number for every candidate."""

    def __init__(self, like: ActionValue, head: int) -> None:
        super().__init__()
        own = slice(head * like.hidden, (head + 1) * like.hidden)
        with torch.no_grad():
            first = [like.state.weight[own], like.time.weight.T[own], like.action.weight[own]]
            self.first = nn.Linear(sum(part.shape[1] for part in first), like.hidden)
            self.first.weight.copy_(torch.cat(first, dim=1))
            self.first.bias.copy_(like.state.bias[own])
            self.last = nn.Linear(like.hidden, 1)
            self.last.weight.copy_(like.out[head : head + 1])
            self.last.bias.copy_(like.bias[head : head + 1])
        self.drop = nn.Dropout(1 - like.drop.kept / 256)
        self.horizon = like.time.num_embeddings

    def forward(self, at: Situation, actions: Tensor) -> Tensor:
        """[B, K] for candidates [B, K, D]."""
        time = F.one_hot(at.time, self.horizon)
        state = torch.cat([at.encoded.float(), time.float()], dim=-1)
        state = state[:, None].expand(-1, actions.shape[1], -1)
        hidden = self.drop(torch.relu(self.first(torch.cat([state, actions], dim=-1))))
        return self.last(hidden)[..., 0].float()


class PlainLearner:
    """Discriminator, twin critics and policy, updated as in Algorithm 1."""

    def __init__(self, learner: Learner, precision: str = "highest") -> None:
        """The weights of a learner in fp32 that was never updated, with two-layer networks."""
        assert isinstance(learner.policy, ActionValue)
        assert isinstance(learner.reward, RewardModel)
        self.world, self.rates, self.horizon = learner.world, learner.rates, learner.horizon
        self.precision = precision
        self.prior = copy.deepcopy(learner.prior.head)
        self.policy = Scores(learner.policy, 0)
        self.g = Scores(learner.reward.g, 0)
        self.h: StateValue = copy.deepcopy(learner.reward.h)
        for drop in (module for module in self.h.mlp if hasattr(module, "generator")):
            drop.generator = torch.Generator()
        self.absorbed = nn.Parameter(learner.reward.absorbed.detach().clone())
        self.q = nn.ModuleList(Scores(learner.q, head) for head in range(2))
        self.target = copy.deepcopy(self.q)
        self.kept = copy.deepcopy(self.policy)
        rates = self.rates
        discriminator = [*self.g.parameters(), *self.h.parameters(), self.absorbed]
        self.optimizers = {
            "reward": _adam(discriminator, rates.reward_rate),
            "q": _adam(self.q.parameters(), rates.critic_rate),
            "policy": _adam(self.policy.parameters(), rates.policy_rate),
        }

    def products(self) -> AbstractContextManager:
        """The precision of matrix products."""
        torch.set_float32_matmul_precision("medium" if self.precision == "medium" else "highest")
        return torch.autocast("cpu", torch.bfloat16) if self.precision == "bf16" else nullcontext()

    def log_prior(self, at: Situation, actions: Tensor, mask: Tensor) -> Tensor:
        """log π_BC, worked out anew."""
        if self.prior is None:
            return torch.zeros_like(mask, dtype=torch.float32)
        with torch.no_grad():
            wanted = self.prior.mlp(at.encoded.float())
            logits = (actions @ wanted.float()[..., None])[..., 0]
            log_pi = torch.log_softmax(logits.float().masked_fill(~mask, -torch.inf), dim=-1)
            return torch.where(mask, log_pi.clamp_min(FLOOR), 0.0)

    def log_pi(self, at: Situation, actions: Tensor, mask: Tensor, prior: Tensor) -> Tensor:
        """log π of the current policy."""
        logits = prior + self.policy(at, actions)
        return torch.log_softmax(logits.masked_fill(~mask, -torch.inf), dim=-1)

    def look(self, at: Situation) -> tuple[Tensor, Tensor, Tensor]:
        """Candidates, which exist, and the prior."""
        seen = self.world.observe(at.key)
        actions = seen.actions.float()
        return actions, seen.mask, self.log_prior(at, actions, seen.mask)

    def f(self, steps: Steps, actions: Tensor, prior: Tensor) -> Tensor:
        """g + γ h′ - h of the actions that were taken."""
        g = _at(self.g(steps.now, actions) + prior, steps.action)
        after = torch.where(steps.last, 0.0, self.h(steps.then))
        return g + self.rates.gamma * after - self.h(steps.now)

    def update(self, positive: Steps, negative: Steps, batch: Steps) -> dict[str, float]:
        """Discriminator, then soft actor-critic; gives the three losses."""
        with self.products():
            losses = {"d_loss": self._discriminator(positive, negative)}
            return losses | self._actor_critic(batch)

    def _discriminator(self, positive: Steps, negative: Steps) -> float:
        rates, loss = self.rates, torch.zeros(())
        for network in (self.g, self.h):
            network.train()
        for steps, label in ((positive, 1 - rates.smoothing), (negative, rates.smoothing)):
            actions, mask, prior = self.look(steps.now)
            with torch.no_grad():
                log_pi = self.log_pi(steps.now, actions, mask, prior)
            logit = self.f(steps, actions, prior) - _at(log_pi, steps.action).clamp_min(FLOOR)
            # Whoever stopped stays absorbed until the horizon, and is judged there too.
            later = torch.arange(self.horizon) > steps.now.time[:, None]
            later = later & (steps.action == STOP)[:, None]
            absorbed = self.absorbed.expand(len(logit), -1)[later]
            every = torch.cat([logit, absorbed])
            target = torch.full_like(every, label)
            loss = loss + F.binary_cross_entropy_with_logits(every, target)
        for network in (self.g, self.h):
            network.eval()
        self._step("reward", loss)
        return loss.item()

    def _actor_critic(self, steps: Steps) -> dict[str, float]:
        rates = self.rates
        alpha = rates.alpha
        here, mask, prior = self.look(steps.now)
        there, mask_there, prior_there = self.look(steps.then)
        with torch.no_grad():
            reward = self.f(steps, here, prior)
            worth = torch.zeros(self.horizon + 1)
            for t in reversed(range(self.horizon)):
                worth[t] = self.absorbed[t] + rates.gamma * worth[t + 1]
            log_pi = self.log_pi(steps.then, there, mask_there, prior_there)
            q = torch.stack([net(steps.then, there) + prior_there for net in self.target]).amin(0)
            log_pi = log_pi.masked_fill(~mask_there, 0.0)
            value = (log_pi.exp() * (q - alpha * log_pi) * mask_there).sum(-1)
            stopped = steps.action == STOP
            after = torch.where(stopped, worth[steps.now.time + 1], value)
            after = torch.where(steps.last & ~stopped, 0.0, after)
            target = reward + rates.gamma * after
        self.q.train()
        q_loss = torch.zeros(())
        for net in self.q:
            q_loss = q_loss + F.smooth_l1_loss(
                _at(net(steps.now, here) + prior, steps.action), target
            )
        self.q.eval()
        self._step("q", q_loss)

        with torch.no_grad():
            q = torch.stack([net(steps.now, here) + prior for net in self.q]).amin(0)
        self.policy.train()
        log_pi = self.log_pi(steps.now, here, mask, prior).masked_fill(~mask, 0.0)
        self.policy.eval()
        pi_loss = (log_pi.exp() * (alpha * log_pi - q) * mask).sum(-1).mean()
        self._step("policy", pi_loss)
        for slow, fast, share in (
            (self.target, self.q, rates.target_rate),
            (self.kept, self.policy, 1 - rates.average),
        ):
            for old, new in zip(slow.parameters(), fast.parameters(), strict=True):
                old.data.lerp_(new.data, share)
        return {"q_loss": q_loss.item(), "pi_loss": pi_loss.item()}

    def _step(self, name: str, loss: Tensor) -> None:
        optimizer = self.optimizers[name]
        optimizer.zero_grad()
        loss.backward()
        for group in optimizer.param_groups:
            nn.utils.clip_grad_norm_(group["params"], 5.0)
        optimizer.step()


def _at(values: Tensor, action: Tensor) -> Tensor:
    return values.gather(1, action[:, None])[:, 0]


def _adam(parameters: Iterable[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0)
