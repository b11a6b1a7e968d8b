"""Several sentences for one path: draw them, keep them different, choose the one followed best."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from langgoalirl.config import option
from langgoalirl.language.vocabulary import PAD
from langgoalirl.models.base_model import BaseModel
from langgoalirl.models.goal_generator import Encoded, Gaussian, GoalGenerator
from langgoalirl.models.layers import masked_log_softmax
from langgoalirl.worlds.types import NO_ACTION, STOP, Observation


@dataclass(frozen=True)
class Sampling:
    """How sentences are drawn: z from the prior, words greedy unless a temperature is given."""

    samples: int = option(5, "sentences per path")
    draws: int = option(
        1, "drawn per sentence; of several, those are kept that share fewest word pairs"
    )
    temperature: float = option(0.0, "of the words; 0 takes the likeliest")
    nucleus: float = option(1.0, "draw from the likeliest words of this mass")
    spread: float = option(1.0, "of z around the prior's mean, in its standard deviations")
    limit: int = option(60, "words of a sentence")

    def __post_init__(self) -> None:
        if self.samples < 1 or self.draws < 1 or self.limit < 1:
            raise ValueError("'samples', 'draws' and 'limit' must be at least 1")
        if self.temperature < 0 or self.spread < 0 or not 0 < self.nucleus <= 1:
            raise ValueError(
                "'temperature' and 'spread' must not be below 0, 'nucleus' between 0 and 1"
            )


@torch.no_grad()
def sample_goals(
    model: GoalGenerator, encoded: Encoded, how: Sampling, generator: torch.Generator
) -> Tensor:
    """[B, samples, N] sentences for encoded paths. The first is a plain draw of z."""
    count = how.samples * how.draws
    repeated = encoded.repeat(count)
    prior = model.prior_of(repeated)
    z = Gaussian(prior.mean, how.spread**2 * prior.variance).sample(generator)
    words = model.generate(
        repeated,
        z,
        how.limit,
        temperature=how.temperature,
        nucleus=how.nucleus,
        generator=generator,
    ).view(len(encoded.whole), count, -1)
    if how.draws == 1:
        return words
    kept = most_different(words, how.samples)
    return words.gather(1, kept[..., None].expand(-1, -1, words.shape[2]))


def most_different(words: Tensor, count: int) -> Tensor:
    """[B, count] of the sentences [B, C, N]: the first, then always the one whose word pairs are
    least to be found in any one that was kept before."""
    shared = shared_pairs(words)
    kept = [torch.zeros(len(words), dtype=torch.long, device=words.device)]
    worst = shared[:, :, 0]
    for _ in range(count - 1):
        worst.scatter_(1, kept[-1][:, None], torch.inf)  # nothing is kept twice
        kept.append(worst.argmin(1))
        row = torch.arange(len(words), device=words.device)
        worst = torch.maximum(worst, shared[row, :, kept[-1]])
    return torch.stack(kept, dim=1)


def shared_pairs(words: Tensor) -> Tensor:
    """[B, C, C] which share of sentence i's neighbouring words are neighbours in sentence j."""
    pair = words[..., :-1] * (words.max() + 1) + words[..., 1:]
    real = words[..., 1:] != PAD
    pair = torch.where(real, pair, -1)
    columns = []
    for j in range(words.shape[1]):
        found = (pair[..., None] == pair[:, j, None, None, :]).any(-1) & real
        columns.append(found.sum(-1) / real.sum(-1).clamp_min(1))
    return torch.stack(columns, dim=2)


@torch.no_grad()
def path_log_likelihood(
    base: BaseModel, state: Tensor, seen: Observation, actions: Tensor, words: Tensor
) -> Tensor:
    """[B, S] log p(path | sentence) for S sentences [B, S, N] per path: how well the base model
    would be led along it. The states h^s [B, T, hidden] are the same for all sentences."""
    b, s, n = words.shape

    def each(x: Tensor) -> Tensor:
        return x.repeat_interleave(s, 0)

    logits = base.scores(each(state), base.read(words.view(b * s, n)), each(seen.actions))
    log_p = masked_log_softmax(logits, each(seen.mask))
    done = each(actions)
    chosen = log_p.gather(-1, done.clamp_min(STOP)[..., None])[..., 0]
    return torch.where(done != NO_ACTION, chosen, 0.0).sum(-1).view(b, s)
