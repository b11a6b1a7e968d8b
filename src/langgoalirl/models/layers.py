"""The few layers that every network here is made of."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """Dropout that draws from a generator of our own, so that a run can be repeated and resumed.

    Eight decisions come out of each random number: several times as fast as one by one on a CPU.
    The rate is therefore rounded to 256ths, and the scale follows the rounded rate.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.kept = 256 - round(256 * rate)
        self.generator: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Zero a share of the entries and scale the others up; nothing outside training."""
        if not self.training or self.kept == 256:
            return x
        return x * self.mask(x)

    def mask(self, x: Tensor) -> Tensor:
        """What a tensor like `x` is multiplied with: zeros, and the others' scale."""
        if self.generator is None:
            raise RuntimeError("training with dropout needs use_generator(model, generator) first")
        numbers = torch.empty((x.numel() + 7) // 8, dtype=torch.int64, device=x.device)
        bytes_ = numbers.random_(-(2**63), None, generator=self.generator).view(torch.uint8)
        keep = (bytes_[: x.numel()] < self.kept).view(x.shape)
        return keep.to(x.dtype).mul_(256 / self.kept)


def use_generator(model: nn.Module, generator: torch.Generator) -> None:
    """Let every dropout of a model draw from one generator."""
    for module in model.modules():
        if isinstance(module, Dropout):
            module.generator = generator


class MLP(nn.Sequential):
    """Hidden layers with ReLU and dropout, then a linear layer to `out`."""

    def __init__(self, wide: int, hidden: int, out: int, layers: int, dropout: float) -> None:
        parts: list[nn.Module] = []
        for i in range(layers - 1):
            parts += [nn.Linear(wide if i == 0 else hidden, hidden), nn.ReLU(), Dropout(dropout)]
        super().__init__(*parts, nn.Linear(hidden if layers > 1 else wide, out))


def attend(query: Tensor, keys: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Softmax attention: the weighted sum of `keys` and the weights.

    query [..., D], keys [..., V, D], mask [..., V] true where there is something to look at.
    """
    score = (keys @ query.unsqueeze(-1)).squeeze(-1)
    if mask is not None:
        score = score.masked_fill(~mask, -torch.inf)
    weight = torch.softmax(score.float(), dim=-1).to(keys.dtype)
    return (weight.unsqueeze(-2) @ keys).squeeze(-2), weight


def masked_log_softmax(logits: Tensor, mask: Tensor) -> Tensor:
    """Log-probabilities over the candidates that exist; -inf for the others."""
    return torch.log_softmax(logits.float().masked_fill(~mask, -torch.inf), dim=-1)


class BiLSTM(nn.Module):
    """Two LSTMs, one of which reads each sequence from its own end."""

    def __init__(self, wide: int, hidden: int) -> None:
        super().__init__()
        self.forwards = nn.LSTM(wide, hidden, batch_first=True)
        self.backwards = nn.LSTM(wide, hidden, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """[B, T, wide] and lengths [B] to [B, T, 2 hidden]; padded steps hold no meaning."""
        turned = reverse(x, lengths)
        ahead = self.forwards(x)[0]
        behind = reverse(self.backwards(turned)[0], lengths)
        return torch.cat([ahead, behind], dim=-1)


def reverse(x: Tensor, lengths: Tensor) -> Tensor:
    """Each sequence of [B, T, D] backwards within its own length; padding stays where it is."""
    step = torch.arange(x.shape[1], device=x.device)
    mirrored = lengths[:, None] - 1 - step
    index = torch.where(mirrored >= 0, mirrored, step)
    return x.gather(1, index[..., None].expand_as(x))
