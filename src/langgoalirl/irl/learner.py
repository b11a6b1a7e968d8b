"""One update of everything that learns: discriminator, twin critics, policy, temperature."""

from __future__ import annotations

import copy
import math
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
    FLOOR,
    ActionValue,
    Prior,
    RewardModel,
    StateValue,
    policy_logits,
)
from langgoalirl.irl.transitions import Situation, Steps, join
from langgoalirl.irl.weights import Weights
from langgoalirl.models.layers import masked_log_softmax, use_generator
from langgoalirl.models.policy import PolicyHead
from langgoalirl.models.sizes import Sizes
from langgoalirl.run_folder import Tensors, under
from langgoalirl.training import precision
from langgoalirl.worlds.types import STOP, Choices, World

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
    dropout: float = option(0.3, "dropout rate before their last layers")
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
        self.dtype, _ = precision(rates.precision, world.device)
        wide = world.feature_width
        sizes = replace(sizes, layers=rates.layers, dropout=rates.dropout)
        start = copy.deepcopy(head).requires_grad_(False) if from_prior else None
        self.prior = Prior(start)
        self.policy: PolicyHead | ActionValue = head
        if rates.policy == "added":
            self.policy = ActionValue(wide, sizes, horizon, heads=1)
        self.kept = copy.deepcopy(self.policy).requires_grad_(False)
        self.reward: RewardModel | GoalState = (
            GoalState(sizes, horizon) if agile else RewardModel(wide, sizes, horizon, rates.gamma)
        )
        self.q = ActionValue(wide, sizes, horizon, heads=2)
        self.q_target = copy.deepcopy(self.q).requires_grad_(False)
        self.log_alpha = nn.Parameter(torch.tensor([math.log(rates.alpha)]))
        self.to(world.device)
        half, exact, decay = self.dtype, torch.float32, rates.decay
        self.weights = {
            "reward": Weights(self.reward, half, rates.reward_rate, decay),
            "q": Weights(self.q, half, rates.critic_rate, decay),
            "q_target": Weights(self.q_target, half),
            "policy": Weights(self.policy, half, rates.policy_rate),
            "kept": Weights(self.kept, exact),
        }
        self.temperature = torch.optim.AdamW(
            [self.log_alpha],
            rates.policy_rate,
            weight_decay=0.0,
            fused=True,
            capturable=self.log_alpha.is_cuda,
        )
        self.generator = torch.Generator(world.device)
        use_generator(self, self.generator)
        self.eval()

    @property
    def alpha(self) -> Tensor:
        """The temperature."""
        return self.log_alpha.detach()[0].exp()

    def choices(self, key: Tensor) -> Choices:
        """The candidates of some states, gathered once for all networks."""
        return self.world.choices(key, self.dtype)

    def log_pi(self, at: Situation, choices: Choices) -> Tensor:
        """log π [B, K]; -inf where there is no candidate."""
        return masked_log_softmax(policy_logits(self.policy, at, choices), choices.mask)

    def log_prior(self, key: Tensor, state: Tensor, goal: Tensor) -> Tensor:
        """What Q, g and π start from in the states [..., hidden], [..., K]."""
        choices = self.world.choices(key.flatten(), torch.float32)
        encoded = torch.cat([state, goal], dim=-1).flatten(0, -2).float()
        return self.prior(encoded, choices).view(*key.shape, -1)

    def values(self, net: ActionValue, at: Situation, choices: Choices) -> Tensor:
        """[heads, B, K] of all candidates, zero where there is nothing."""
        return choices.unpacked(net(at, choices.row, choices.embedding)) + at.prior

    def f(self, steps: Steps, choices: Choices) -> tuple[Tensor, Tensor]:
        """f and g [b] of the actions that were taken."""
        assert isinstance(self.reward, RewardModel)
        taken = choices.embedding.index_select(0, choices.first + steps.action)
        g = self.reward.g(steps.now, None, taken)[0] + _taken(steps.now.prior, steps.action)
        return g + self.reward.shaping(steps.now, steps.then, steps.last), g

    def update(self, positive: Steps, negative: Steps, batch: Steps) -> dict[str, Tensor]:
        """All that learns, once: P+ and P- for the discriminator, Q for the actor-critic."""
        return self.update_discriminator(positive, negative) | self.update_policy(batch)

    def update_discriminator(self, positive: Steps, negative: Steps) -> dict[str, Tensor]:
        """L(θ, φ) with label smoothing."""
        if isinstance(self.reward, GoalState):
            loss, details = self.reward.loss(positive, negative, self.rates.smoothing)
        else:
            both = join([positive, negative])
            with torch.no_grad():
                choices = self.choices(both.now.key)
                log_pi = _taken(self.log_pi(both.now, choices), both.action).clamp_min(FLOOR)
            self.reward.train()
            f, _ = self.f(both, choices)
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
        loss.backward()
        self.weights["reward"].step()
        return {"d_loss": loss.detach(), **{k: v.detach() for k, v in details.items()}}

    def update_policy(self, steps: Steps) -> dict[str, Tensor]:
        """One soft actor-critic update; the reward is the current discriminator's."""
        rates, alpha, now = self.rates, self.alpha, steps.now
        with torch.no_grad():
            here, there = self.choices(now.key), self.choices(steps.then.key)
            reward, absorbed = self.paid(steps, here)
            log_pi_there = self.log_pi(steps.then, there)
            q_there = self.values(self.q_target, steps.then, there).amin(0)
            value = soft_value(log_pi_there.clamp_min(-100), q_there, there.mask, alpha)
            stopped = steps.action == STOP
            after = torch.where(stopped, absorbed[now.time + 1], value)
            after = torch.where(steps.last & ~stopped, 0.0, after)  # nothing beyond the horizon
            target = reward + rates.gamma * after

        self.q.train()
        taken = here.embedding.index_select(0, here.first + steps.action)
        critic_loss = q_loss(self.q(now, None, taken) + _taken(now.prior, steps.action), target)
        self.q.eval()
        critic_loss.backward()
        self.weights["q"].step()
        self.weights["q_target"].follow(self.weights["q"], rates.target_rate)

        with torch.no_grad():
            q_here = self.values(self.q, now, here).amin(0)
        self.policy.train()
        log_pi = self.log_pi(now, here).clamp_min(-100)
        self.policy.eval()
        actor_loss = policy_loss(log_pi, q_here, here.mask, alpha)
        actor_loss.backward()
        self.weights["policy"].step()
        self.weights["kept"].follow(self.weights["policy"], 1 - rates.average)
        with torch.no_grad():
            entropy = soft_value(log_pi, torch.zeros_like(q_here), here.mask, 1.0)
        if rates.entropy > 0:
            temperature_loss(self.log_alpha, entropy, rates.entropy).backward()
            self.temperature.step()
            self.temperature.zero_grad()
        return {
            "q_loss": critic_loss.detach(),
            "pi_loss": actor_loss.detach(),
            "entropy": entropy.mean(),
            "alpha": alpha,
            "reward": reward.mean(),
            "q": q_here.masked_fill(~here.mask, -torch.inf).amax(1).mean(),
        }

    def paid(self, steps: Steps, here: Choices) -> tuple[Tensor, Tensor]:
        """r [b] by the discriminator as it is now, and what having stopped is worth from each
        time on, [horizon + 1]."""
        if isinstance(self.reward, GoalState):
            return self.reward.paid(steps), torch.zeros(self.horizon + 1, device=here.mask.device)
        f, g = self.f(steps, here)
        absorbed = absorbed_values(self.reward.absorbed, self.rates.gamma)
        return (f if self.rates.reward == "f" else g), absorbed

    def results(self) -> Tensors:
        """What is left when training is over: the averaged policy, its prior and the reward."""
        parts = {"policy": self.weights["kept"].named(), "reward": self.weights["reward"].named()}
        parts["prior"] = self.prior.state_dict()
        return {f"{k}.{n}": v for k, part in parts.items() for n, v in part.items()}

    def load_results(self, results: Tensors) -> None:
        """A learner whose policy and reward are those that `results` gave."""
        for name in ("policy", "kept"):
            self.weights[name].load(under(results, "policy."))
        self.weights["reward"].load(under(results, "reward."))
        self.prior.load_state_dict(under(results, "prior."))

    def state(self) -> Tensors:
        """What a checkpoint keeps."""
        kept = {f"{k}.{n}": v for k, w in self.weights.items() for n, v in w.state().items()}
        moments = self.temperature.state.get(self.log_alpha, {})
        return (
            kept
            | {"log_alpha": self.log_alpha.detach()}
            | {f"temperature.{k}": v for k, v in moments.items()}
        )

    @torch.no_grad()
    def restore(self, tensors: Tensors) -> None:
        """Back to what `state` gave."""
        for name, weights in self.weights.items():
            weights.restore(under(tensors, f"{name}."))
        self.log_alpha.copy_(tensors["log_alpha"])
        if moments := under(tensors, "temperature."):
            groups = self.temperature.state_dict()["param_groups"]
            self.temperature.load_state_dict({"state": {0: moments}, "param_groups": groups})


def _taken(values: Tensor, action: Tensor) -> Tensor:
    """[b] the entries of [b, K] that belong to the actions."""
    return values.gather(1, action[:, None])[:, 0]


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
