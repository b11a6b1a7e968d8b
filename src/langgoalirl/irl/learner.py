"""One update of everything that learns: discriminator, twin critics, policy, temperature."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from langgoalirl.config import option
from langgoalirl.irl.losses import (
    absorbed_values,
    discriminator_loss,
    policy_loss,
    q_loss,
    smoothed_cross_entropy,
    soft_value,
    temperature_loss,
)
from langgoalirl.irl.networks import (
    ActionValue,
    AddedPolicy,
    Choices,
    RewardModel,
    StateValue,
    policy_logits,
    unpacked,
)
from langgoalirl.irl.transitions import Situation, Steps, join
from langgoalirl.models.layers import masked_log_softmax, use_generator
from langgoalirl.models.policy import PolicyHead
from langgoalirl.models.sizes import Sizes
from langgoalirl.training import precision
from langgoalirl.worlds.types import STOP, World

FLOOR = -10.0
"""Log-probabilities below this are all the same to reward, critics and discriminator."""

FORMS = ("added", "dot")


@dataclass(frozen=True)
class Rates:
    """How the networks of the adversarial loop are updated."""

    batch: int = option(256, "steps in each of the batches P+, P- and Q")
    reward_rate: float = option(1e-3, "step size of the discriminator")
    critic_rate: float = option(1e-3, "step size of the critics")
    policy_rate: float = option(1e-3, "step size of the policy")
    gamma: float = option(0.99, "discount factor γ")
    smoothing: float = option(0.05, "label smoothing ℓ: labels are 1 - ℓ and ℓ")
    target_rate: float = option(0.005, "share of the critics that target networks take over")
    alpha: float = option(1.0, "temperature α, or its first value where it is tuned")
    entropy: float = option(0.0, "wanted entropy in nats, by which α is tuned; 0 keeps α")
    reward: str = option("f", "what the critics learn from: f, with shaping, or g", ("f", "g"))
    policy: str = option(
        "added", "π's form: a network like Q's added to where it starts, or e^a · MLP alone", FORMS
    )
    layers: int = option(2, "layers of discriminator, critics and what is added to the policy")
    dropout: float = option(0.15, "dropout rate inside them")
    decay: float = option(0.0, "weight decay of discriminator and critics")
    precision: str = option("bf16", "of encodings and matrix products", ("bf16", "fp32"))
    average: float = option(0.998, "decay of the averaged policy weights that are kept")

    def __post_init__(self) -> None:
        for name in ("batch", "layers"):
            if getattr(self, name) < (least := 2 if name == "batch" else 1):
                raise ValueError(f"rates.{name} must be at least {least}")
        for name in ("reward_rate", "critic_rate", "policy_rate", "alpha"):
            if getattr(self, name) <= 0:
                raise ValueError(f"rates.{name} must be above 0")
        for name in ("gamma", "target_rate", "average"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"rates.{name} must lie between 0 and 1")
        if not 0 <= self.smoothing < 0.5:
            raise ValueError("rates.smoothing must lie between 0 and 0.5")


class Learner(nn.Module):
    """Policy π, its prior, critics Q and reward f (or AGILE's goal-state discriminator).

    Q and g are what must be added to log π of the prior, which is behaviour cloning's policy. At
    the optimum f = log π_E and V = 0, so when π starts there too, all of them agree at the start
    and nothing pulls the policy away before the critics know what it is worth.
    """

    def __init__(
        self,
        world: World,
        head: PolicyHead,
        sizes: Sizes,
        horizon: int,
        rates: Rates,
        *,
        from_prior: bool = True,
        agile: bool = False,
    ) -> None:
        super().__init__()
        self.world, self.rates, self.horizon, self.agile = world, rates, horizon, agile
        self.dtype, self.autocast = precision(rates.precision, world.device)
        wide, sizes = (
            world.feature_width,
            replace(sizes, layers=rates.layers, dropout=rates.dropout),
        )
        self.prior = copy.deepcopy(head).eval().requires_grad_(False) if from_prior else None
        self.policy: PolicyHead | AddedPolicy = head
        if rates.policy == "added":
            self.policy = AddedPolicy(copy.deepcopy(self.prior), wide, sizes, horizon)
        self.kept = copy.deepcopy(self.policy).eval().requires_grad_(False)
        self.reward: RewardModel | GoalState = (
            GoalState(sizes, horizon) if agile else RewardModel(wide, sizes, horizon, rates.gamma)
        )
        self.q = ActionValue(wide, sizes, horizon, heads=2)
        self.q_target = copy.deepcopy(self.q).eval().requires_grad_(False)
        self.log_alpha = nn.Parameter(torch.tensor(math.log(rates.alpha)))
        self.to(world.device)
        self.optimizers = {
            "reward": _adam(self.reward.parameters(), rates.reward_rate, rates.decay),
            "critic": _adam(self.q.parameters(), rates.critic_rate, rates.decay),
            "policy": _adam(
                [p for p in self.policy.parameters() if p.requires_grad], rates.policy_rate, 0.0
            ),
            "temperature": _adam([self.log_alpha], rates.policy_rate, 0.0),
        }
        self.generator = torch.Generator(world.device)
        use_generator(self, self.generator)
        self.eval()

    @property
    def alpha(self) -> Tensor:
        """The temperature."""
        return self.log_alpha.detach().exp()

    def choices(self, key: Tensor) -> Choices:
        """The candidates of some states, gathered once for all networks."""
        embedding, mask = self.world.candidates(key)
        # By way of float32: from float16 to bfloat16 directly is ten times slower on a CPU.
        embedding = embedding.float().to(self.dtype)
        return Choices.of(embedding, mask)

    def log_pi(self, net: PolicyHead | AddedPolicy, at: Situation, choices: Choices) -> Tensor:
        """log π [B, K]; -inf where there is no candidate."""
        return masked_log_softmax(policy_logits(net, at, choices), choices.mask)

    def log_prior(self, at: Situation, choices: Choices) -> Tensor:
        """What Q and g start from, [B, K]: zero without a prior, and where there is nothing."""
        if self.prior is None:
            return torch.zeros_like(choices.mask, dtype=torch.float32)
        log_prior = self.log_pi(self.prior, at, choices).clamp_min(FLOOR)
        return torch.where(choices.mask, log_prior, 0.0)

    def values(self, net: ActionValue, at: Situation, choices: Choices, prior: Tensor) -> Tensor:
        """[heads, B, K] of all candidates, zero where there is nothing."""
        return unpacked(net(at, choices.row, choices.packed), choices.mask) + prior

    def f(self, steps: Steps, choices: Choices, prior: Tensor) -> tuple[Tensor, Tensor]:
        """f and g [b] of the actions that were taken."""
        assert isinstance(self.reward, RewardModel)
        row = torch.arange(len(steps.action), device=prior.device)
        taken = choices.embedding[row, steps.action]
        g = self.reward.g(steps.now, row, taken)[0] + prior[row, steps.action]
        return g + self.reward.shaping(steps.now, steps.then, steps.last), g

    def update_discriminator(self, positive: Steps, negative: Steps) -> dict[str, Tensor]:
        """L(θ, φ) with label smoothing."""
        if isinstance(self.reward, GoalState):
            loss, details = self.reward.loss(positive, negative, self.rates.smoothing)
        else:
            both = join([positive, negative])
            with torch.no_grad():
                choices = self.choices(both.now.key)
                prior = self.log_prior(both.now, choices)
                log_pi = self.log_pi(self.policy, both.now, choices).clamp_min(FLOOR)
                log_pi = log_pi.gather(1, both.action[:, None])[:, 0]
            self.reward.train()
            f, _ = self.f(both, choices, prior)
            self.reward.eval()
            logit, smoothing = f - log_pi, self.rates.smoothing
            b, stopped = len(positive.action), both.action == STOP
            time, absorbed = both.now.time, self.reward.absorbed
            loss = discriminator_loss(logit[:b], stopped[:b], time[:b], absorbed, 1 - smoothing)
            loss = loss + discriminator_loss(logit[b:], stopped[b:], time[b:], absorbed, smoothing)
            details = {
                "d_positive": (logit[:b] > 0).float().mean(),
                "d_negative": (logit[b:] < 0).float().mean(),
                "f_positive": f[:b].mean(),
                "f_negative": f[b:].mean(),
            }
        self._step("reward", loss)
        return {"d_loss": loss.detach(), **{k: v.detach() for k, v in details.items()}}

    def update_policy(self, steps: Steps) -> dict[str, Tensor]:
        """One soft actor-critic update; the reward is the current discriminator's."""
        rates, alpha = self.rates, self.alpha
        with torch.no_grad():
            here, there = self.choices(steps.now.key), self.choices(steps.then.key)
            prior_here = self.log_prior(steps.now, here)
            prior_there = self.log_prior(steps.then, there)
            reward, absorbed = self.paid(steps, here, prior_here)
            log_pi_there = self.log_pi(self.policy, steps.then, there)
            q_there = self.values(self.q_target, steps.then, there, prior_there).amin(0)
            value = soft_value(log_pi_there.clamp_min(-100), q_there, there.mask, alpha)
            stopped = steps.action == STOP
            after = torch.where(stopped, absorbed[steps.now.time + 1], value)
            after = torch.where(steps.last & ~stopped, 0.0, after)  # nothing beyond the horizon
            target = reward + rates.gamma * after

        self.q.train()
        q = self.values(self.q, steps.now, here, prior_here)
        chosen = q.gather(2, steps.action.expand(len(q), -1)[..., None])[..., 0]
        critic_loss = q_loss(chosen, target)
        self._step("critic", critic_loss)
        self.q.eval()

        with torch.no_grad():
            q_here = self.values(self.q, steps.now, here, prior_here).amin(0)
        self.policy.train()
        log_pi = self.log_pi(self.policy, steps.now, here).clamp_min(-100)
        actor_loss = policy_loss(log_pi, q_here, here.mask, alpha)
        self._step("policy", actor_loss)
        self.policy.eval()

        with torch.no_grad():
            entropy = soft_value(log_pi, torch.zeros_like(q_here), here.mask, 1.0)
            self._follow()
        if rates.entropy > 0:
            self._step("temperature", temperature_loss(self.log_alpha, entropy, rates.entropy))
        return {
            "q_loss": critic_loss.detach(),
            "pi_loss": actor_loss.detach(),
            "entropy": entropy.mean(),
            "alpha": alpha,
            "reward": reward.mean(),
            "q": q_here.masked_fill(~here.mask, -torch.inf).amax(1).mean(),
        }

    def paid(self, steps: Steps, here: Choices, prior: Tensor) -> tuple[Tensor, Tensor]:
        """r [b] by the discriminator as it is now, and what having stopped is worth from each
        time on, [horizon + 1]."""
        if isinstance(self.reward, GoalState):
            return self.reward.paid(steps), torch.zeros(self.horizon + 1, device=prior.device)
        f, g = self.f(steps, here, prior)
        absorbed = absorbed_values(self.reward.absorbed, self.rates.gamma)
        return (f if self.rates.reward == "f" else g), absorbed

    def _step(self, name: str, loss: Tensor) -> None:
        optimizer = self.optimizers[name]
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for group in optimizer.param_groups:
            nn.utils.clip_grad_norm_(group["params"], 5.0)
        optimizer.step()

    def results(self) -> dict[str, Tensor]:
        """What is left when training is over: the averaged policy, its prior and the reward."""
        parts = {"policy": self.kept, "reward": self.reward}
        if self.prior is not None:
            parts["prior"] = self.prior
        return {f"{k}.{n}": v for k, part in parts.items() for n, v in part.state_dict().items()}

    def _follow(self) -> None:
        """Target critics and kept policy move a little towards the current ones."""
        for slow, fast, share in (
            (self.q_target, self.q, self.rates.target_rate),
            (self.kept, self.policy, 1 - self.rates.average),
        ):
            torch._foreach_lerp_(list(slow.parameters()), list(fast.parameters()), share)


def _adam(parameters: Iterable[Tensor], rate: float, decay: float) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=rate, weight_decay=decay, fused=True)


class GoalState(nn.Module):
    """AGILE's discriminator: is this state the goal state of this instruction? The reward is
    binary: one for stopping where the answer is yes."""

    def __init__(self, sizes: Sizes, horizon: int) -> None:
        super().__init__()
        self.score = StateValue(sizes, horizon)

    def loss(
        self, positive: Steps, negative: Steps, smoothing: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Cross entropy; positives are the experts' last states."""
        self.train()
        goal, other = self.score(positive.now), self.score(negative.now)
        self.eval()
        loss = smoothed_cross_entropy(goal, 1 - smoothing).mean()
        loss = loss + smoothed_cross_entropy(other, smoothing).mean()
        return loss, {
            "d_positive": (goal > 0).float().mean(),
            "d_negative": (other < 0).float().mean(),
        }

    def paid(self, steps: Steps) -> Tensor:
        """[b] one where the agent stops in what looks like the goal."""
        return ((self.score(steps.now) > 0) & (steps.action == STOP)).float()
