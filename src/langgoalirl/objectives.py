"""What each stage of pretraining minimises, for a batch of demonstrations."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from langgoalirl.demonstrations import Batch, DemonstrationSet, observe_along
from langgoalirl.models.goal_generator import GoalGenerator, Walk
from langgoalirl.models.layers import masked_log_softmax
from langgoalirl.models.policy import Frozen, FrozenEncoder, Policy
from langgoalirl.training import GeneratorTraining, Objective, Training, precision
from langgoalirl.worlds.types import NO_ACTION, STOP, World


def imitation_loss(logits: Tensor, mask: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """L_base = CrossEntropy(p^a, y^a) per step of the expert, and how often p^a agrees with it."""
    log_probability = masked_log_softmax(logits, mask)
    real = actions != NO_ACTION
    chosen = log_probability.gather(-1, actions.clamp_min(STOP)[..., None])[..., 0]
    loss = -torch.where(real, chosen, 0.0).sum() / real.sum()
    agrees = (log_probability.argmax(-1) == actions) & real
    return loss, agrees.sum() / real.sum()


def cloning(world: World, model: nn.Module, settings: Training) -> Objective:
    """Teacher forcing along the demonstrations."""
    dtype, _ = precision(settings.precision, world.device)

    def objective(
        batch: Batch, update: int, generator: torch.Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        seen = observe_along(world, batch, dtype)
        logits = model(batch.words.to(world.device), seen)
        loss, agreement = imitation_loss(logits, seen.mask, batch.actions.to(world.device))
        return loss, {"agreement": agreement}

    return objective


def frozen_cloning(
    world: World, policy: Policy, data: DemonstrationSet, settings: Training
) -> Objective:
    """Cross entropy of the policy head alone, on encodings that were worked out once."""
    frozen = FrozenDemonstrations(world, data, policy.encoder, settings.mirror)
    dtype, _ = precision(settings.precision, world.device)

    def objective(
        batch: Batch, update: int, generator: torch.Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        seen = observe_along(world, batch, dtype)
        logits = policy.head(frozen.of(batch, dtype), seen.actions)
        loss, agreement = imitation_loss(logits, seen.mask, batch.actions.to(world.device))
        return loss, {"agreement": agreement}

    return objective


class FrozenDemonstrations:
    """h^s and g of every step of every demonstration, in half precision."""

    def __init__(
        self, world: World, data: DemonstrationSet, encoder: FrozenEncoder, mirror: bool
    ) -> None:
        hidden = encoder.base.state.hidden
        shape = (2 if mirror else 1, *data.actions.shape, hidden)
        self.parts = Frozen(
            *(torch.zeros(shape, dtype=torch.bfloat16, device=world.device) for _ in range(2))
        )
        for side in range(shape[0]):
            for rows in torch.arange(len(data)).split(500):
                batch = data.rows(rows, torch.full((len(rows),), bool(side)))
                seen = observe_along(world, batch, torch.float32)
                frozen = encoder.along(batch.words.to(world.device), seen)
                for part, values in zip(self.parts, frozen, strict=True):
                    part[side, rows, : values.shape[1]] = values.to(part.dtype)

    def of(self, batch: Batch, dtype: torch.dtype) -> Frozen:
        """The encodings [B, T, hidden] of a batch."""
        side, steps = batch.mirrored.long(), batch.actions.shape[1]
        return Frozen(*(part[side, batch.rows, :steps].to(dtype) for part in self.parts))


def lower_bound(world: World, model: GoalGenerator, settings: GeneratorTraining) -> Objective:
    """-E_q[log p(G | z, τ)] + λ max(KL, free nats), per sentence."""
    dtype, _ = precision(settings.precision, world.device)

    def objective(
        batch: Batch, update: int, generator: torch.Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        words = batch.words.to(world.device)
        walk = walk_along(world, batch, dtype)
        likelihood, kl = model.elbo(walk, words, settings.word_dropout, generator)
        reconstruction, divergence = -likelihood.mean(), kl.mean()
        weight = min(1.0, update / max(1, settings.kl_updates))
        loss = reconstruction + weight * divergence.clamp_min(settings.free_nats)
        return loss, {"reconstruction": reconstruction, "kl": divergence}

    return objective


def walk_along(world: World, batch: Batch, dtype: torch.dtype = torch.float32) -> Walk:
    """A batch of demonstrations as the goal generator sees it."""
    seen = observe_along(world, batch, dtype)
    return Walk(seen, batch.actions.to(world.device), batch.lengths.to(world.device))
