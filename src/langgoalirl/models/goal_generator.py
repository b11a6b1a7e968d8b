"""The variational goal generator (appendix): a trajectory in, an instruction out.

Where the paper leaves the latent free to collapse, z is made to count: it also enters the word
LSTM at every step, and the bound keeps a floor of free nats (docs/deviations.md).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from langgoalirl.language.vocabulary import BEGIN, END, PAD, UNKNOWN
from langgoalirl.models.base_model import FeatureMask
from langgoalirl.models.layers import MLP, BiLSTM, Dropout, attend
from langgoalirl.models.sizes import Sizes
from langgoalirl.worlds.types import Observation


class Gaussian(NamedTuple):
    """A diagonal normal distribution over z."""

    mean: Tensor
    variance: Tensor

    def sample(self, generator: torch.Generator) -> Tensor:
        """z = μ + σ ε."""
        noise = torch.empty_like(self.mean).normal_(generator=generator)
        return self.mean + self.variance.sqrt() * noise


def kl_divergence(q: Gaussian, p: Gaussian) -> Tensor:
    """D_KL(q || p) per row, in nats."""
    ratio = q.variance / p.variance
    distance = (q.mean - p.mean).square() / p.variance
    return 0.5 * (ratio + distance - 1.0 - ratio.log()).sum(-1)


class Walk(NamedTuple):
    """A trajectory as the generator sees it."""

    seen: Observation  # [B, T, …] before each action
    actions: Tensor  # [B, T] chosen candidates; padding is anything below 0
    lengths: Tensor  # [B]


class Encoded(NamedTuple):
    """A trajectory, encoded once for any number of sentences."""

    steps: Tensor  # h^o_1 … h^o_T, [B, T, H]
    is_step: Tensor  # [B, T]
    whole: Tensor  # h^o, [B, H]

    def repeat(self, times: int) -> Encoded:
        """Each row `times` times in a row, for several samples of one trajectory."""
        return Encoded(*(part.repeat_interleave(times, dim=0) for part in self))


def element_wise_max(states: Tensor, mask: Tensor) -> Tensor:
    """ElementWiseMax over the steps that exist."""
    return states.masked_fill(~mask[..., None], -torch.inf).amax(dim=1)


class GoalGenerator(nn.Module):
    """p(G | z, τ) with prior p(z | τ) and posterior q(z | τ, G)."""

    def __init__(self, feature_width: int, words: int, sizes: Sizes) -> None:
        super().__init__()
        hidden, latent, half = sizes.hidden, sizes.latent, sizes.hidden // 2
        self.act_encoder = BiLSTM(feature_width, half)
        self.view_query = nn.Linear(hidden, feature_width, bias=False)
        self.path_encoder = BiLSTM(feature_width + hidden, half)
        self.prior = nn.ModuleList(self._head(hidden, sizes) for _ in range(2))
        # Only the posterior reads whole sentences: a small reader of its own costs less than a
        # second pass of the word LSTM, which writes.
        self.reader = BiLSTM(sizes.word, half // 2)
        self.posterior = nn.ModuleList(self._head(hidden + half, sizes) for _ in range(2))
        self.embed = nn.Embedding(words, sizes.word, padding_idx=PAD)
        nn.init.normal_(self.embed.weight, std=0.1)
        self.word_lstm = nn.LSTM(sizes.word + latent, hidden, batch_first=True)
        self.step_query = nn.Linear(hidden + latent, hidden, bias=False)
        self.choose = MLP(2 * hidden + latent, hidden, words, sizes.layers, sizes.dropout)
        self.mask = FeatureMask(feature_width, sizes.feature_dropout)
        self.drop = Dropout(sizes.dropout)

    @staticmethod
    def _head(wide: int, sizes: Sizes) -> MLP:
        return MLP(wide, sizes.hidden, sizes.latent, sizes.layers, 0.0)

    def encode(self, path: Walk) -> Encoded:
        """h^o_t: what was chosen (BiLSTM), what of the views that made salient, BiLSTM again."""
        seen, actions, lengths = path
        b, t, _, wide = seen.views.shape
        index = actions.clamp_min(0)[..., None, None].expand(b, t, 1, wide)
        chosen = seen.actions.gather(2, index)[:, :, 0]  # e^a_t, zeros for *stop*
        mask = self.mask(seen.views)[:, None] if self.training else None
        chosen = chosen if mask is None else chosen * mask
        acted = self.drop(self.act_encoder(chosen, lengths))
        # The paper's index: h^a_{t-1} looks at the observations of step t.
        before = torch.cat([torch.zeros_like(acted[:, :1]), acted[:, :-1]], dim=1)
        query = self.view_query(before)
        looked, _ = attend(query if mask is None else query * mask, seen.views)
        looked = looked if mask is None else looked * mask
        steps = self.drop(self.path_encoder(torch.cat([looked, acted], dim=-1), lengths))
        is_step = torch.arange(t, device=steps.device) < lengths[:, None]
        return Encoded(steps, is_step, element_wise_max(steps, is_step))

    @staticmethod
    def _gaussian(heads: nn.ModuleList, x: Tensor) -> Gaussian:
        mean, spread = (head(x).float() for head in heads)
        return Gaussian(mean, F.softplus(spread) + 1e-4)

    def prior_of(self, encoded: Encoded) -> Gaussian:
        """p(z | τ)."""
        return self._gaussian(self.prior, encoded.whole)

    def posterior_of(self, encoded: Encoded, words: Tensor) -> Gaussian:
        """q(z | τ, G), from h^o and the element-wise maximum over the sentence's reading."""
        is_word = words != PAD
        states = self.reader(self.drop(self.embed(words)), is_word.sum(1))
        said = element_wise_max(states, is_word)
        return self._gaussian(self.posterior, torch.cat([encoded.whole, said], dim=-1))

    @property
    def latent(self) -> int:
        """The width of z."""
        return self.word_lstm.input_size - self.embed.embedding_dim

    def _read(self, words: Tensor, z: Tensor) -> Tensor:
        """h^g_n: the word LSTM, with z beside every word."""
        spoken = self.drop(self.embed(words)).to(z.dtype)
        return self.word_lstm(
            torch.cat([spoken, z[:, None].expand(-1, words.shape[1], -1)], dim=-1)
        )[0]

    def _next_word(self, states: Tensor, z: Tensor, encoded: Encoded) -> Tensor:
        """Logits of p_{n+1}(w) from h^g_n [B, N, H]: attend over h^o with [h^g; z], then MLP."""
        z = z[:, None].expand(-1, states.shape[1], -1)
        query = self.step_query(torch.cat([states, z], dim=-1))
        score = query @ encoded.steps.transpose(1, 2)
        score = score.masked_fill(~encoded.is_step[:, None], -torch.inf)
        context = torch.softmax(score.float(), dim=-1).to(states.dtype) @ encoded.steps
        return self.choose(self.drop(torch.cat([context, states, z], dim=-1)))

    def log_likelihood(
        self, encoded: Encoded, words: Tensor, z: Tensor, heard: Tensor | None = None
    ) -> Tensor:
        """log p(G | z, τ) per sentence. `heard` are the previous words, some of them dropped."""
        heard = shift(words) if heard is None else heard
        logits = self._next_word(self._read(heard, z.to(encoded.whole.dtype)), z, encoded)
        each = F.cross_entropy(
            logits.float().flatten(0, 1), words.flatten(), ignore_index=PAD, reduction="none"
        )
        return -each.view_as(words).sum(1)

    def elbo(
        self, path: Walk, words: Tensor, word_dropout: float, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """E_q[log p(G | z, τ)] and D_KL(q || p), each per sentence."""
        encoded = self.encode(path)
        q, p = self.posterior_of(encoded, words), self.prior_of(encoded)
        heard = shift(words)
        gone = torch.rand(heard.shape, generator=generator, device=heard.device) < word_dropout
        heard = heard.masked_fill(gone & (heard > BEGIN), UNKNOWN)
        z = q.sample(generator).to(encoded.whole.dtype)
        return self.log_likelihood(encoded, words, z, heard), kl_divergence(q, p)

    @torch.no_grad()
    def generate(
        self,
        encoded: Encoded,
        z: Tensor,
        limit: int,
        *,
        temperature: float = 0.0,
        nucleus: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Words [B, ≤ limit + 1] for given z: greedy at temperature 0, else sampled.

        The LSTM's state is carried from word to word, and sentences that are finished leave the
        batch.
        """
        words = torch.full((len(z), limit + 1), PAD, device=z.device)
        row = torch.arange(len(z), device=z.device)
        word = torch.full((len(z), 1), BEGIN, device=z.device)
        z = z.to(encoded.whole.dtype)
        zero = torch.zeros(1, len(z), self.word_lstm.hidden_size, dtype=z.dtype, device=z.device)
        state = (zero, zero)
        for n in range(limit + 1):
            spoken = self.embed(word).to(z.dtype)
            out, state = self.word_lstm(torch.cat([spoken, z[:, None]], dim=-1), state)
            logits = self._next_word(out, z, encoded)[:, 0].float()
            logits[:, [PAD, UNKNOWN, BEGIN]] = -torch.inf
            word = pick(logits, temperature, nucleus, generator)[:, None]
            if n == limit:
                word.fill_(END)
            words[row, n] = word[:, 0]
            going = word[:, 0] != END
            if not bool(going.any()):
                break
            if not bool(going.all()):
                row, word, z = row[going], word[going], z[going]
                encoded = Encoded(*(part[going] for part in encoded))
                state = (state[0][:, going], state[1][:, going])
        return words[:, : int((words != PAD).sum(1).max())]


def shift(words: Tensor) -> Tensor:
    """What was said before each word: BEGIN, then the words but the last."""
    return torch.cat([torch.full_like(words[:, :1], BEGIN), words[:, :-1]], dim=1)


def pick(
    logits: Tensor, temperature: float, nucleus: float, generator: torch.Generator | None
) -> Tensor:
    """A word per row: the likeliest, or a draw from the smallest set that holds `nucleus`."""
    if temperature == 0.0:
        return logits.argmax(dim=-1)
    probability = torch.softmax(logits / temperature, dim=-1)
    if nucleus < 1.0:
        ordered, place = probability.sort(dim=-1, descending=True)
        beyond = ordered.cumsum(-1) - ordered >= nucleus
        probability = torch.zeros_like(probability).scatter_(
            -1, place, ordered.masked_fill(beyond, 0.0)
        )
    return torch.multinomial(probability, 1, generator=generator)[:, 0]
