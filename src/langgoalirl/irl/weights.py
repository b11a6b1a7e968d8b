"""A network's parameters end to end in one row: one copy, one norm, one optimiser step for all.

    exact   fp32  | matrices …                    | vectors … |   what is learned
    half    bf16  | matrices …                    |               what is multiplied with

The network's own parameters are views of these rows. Matrices are multiplied with in half
precision and learn in fp32, where small steps are not lost; the few vectors stay fp32 altogether.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from langgoalirl.run_folder import Tensors

LARGEST_NORM = 5.0


class Weights:
    """The parameters of `net` in rows; with a step size also their gradients and AdamW."""

    def __init__(
        self, net: nn.Module, dtype: torch.dtype, rate: float = 0.0, decay: float = 0.0
    ) -> None:
        self.names, places = [], []
        for name, parameter, matrix in sorted(_parameters(net), key=lambda found: not found[2]):
            self.names.append(name)
            places.append((parameter, matrix and dtype != torch.float32))
        self.sizes = [parameter.numel() for parameter, _ in places]
        self.shapes = [parameter.shape for parameter, _ in places]
        self.exact = torch.cat([p.detach().flatten() for p, _ in places])
        self.halves = sum(p.numel() for p, half in places if half)
        self.half = self.exact[: self.halves].to(dtype)
        self.parameters = [parameter for parameter, _ in places]
        begin = 0
        for parameter, half in places:
            part = slice(begin, begin + parameter.numel())
            parameter.data = (self.half if half else self.exact)[part].view(parameter.shape)
            begin = part.stop
        self.optimizer = None
        if rate > 0:
            self.exact.grad = torch.zeros_like(self.exact)
            self._slopes = [
                part.view(shape)
                for part, shape in zip(self.exact.grad.split(self.sizes), self.shapes, strict=True)
            ]
            self.optimizer = torch.optim.AdamW(
                [self.exact],
                lr=rate,
                weight_decay=decay,
                fused=True,
                capturable=self.exact.is_cuda,  # so that the update can be recorded
            )

    def step(self) -> None:
        """One step down the gradient that the last `backward` left."""
        assert self.optimizer is not None
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        torch._foreach_copy_(self._slopes, gradients)  # complains where one is missing
        self._clip()
        self.optimizer.step()
        self.half.copy_(self.exact[: self.halves])
        for parameter in self.parameters:
            parameter.grad = None

    def _clip(self) -> None:
        """Shorten a gradient that is longer than LARGEST_NORM."""
        slope = self.exact.grad
        assert slope is not None
        norm = torch.linalg.vector_norm(slope)
        # Seldom needed: a CPU can look. A GPU would have to wait for the answer.
        if slope.is_cuda or norm > LARGEST_NORM:
            slope.mul_((LARGEST_NORM / (norm + 1e-6)).clamp_max(1.0))

    def follow(self, other: Weights, share: float) -> None:
        """A little towards another network's."""
        self.exact.lerp_(other.exact, share)
        self.half.copy_(self.exact[: self.halves])

    def named(self) -> Tensors:
        """Every parameter by its name, in fp32."""
        parts = self.exact.split(self.sizes)
        return {n: p.view(s) for n, p, s in zip(self.names, parts, self.shapes, strict=True)}

    def load(self, tensors: Tensors) -> None:
        """Take over what `named` gave."""
        for name, part in self.named().items():
            part.copy_(tensors[name])
        self.half.copy_(self.exact[: self.halves])

    def state(self) -> Tensors:
        """What a checkpoint keeps: parameters and the optimiser's moments."""
        kept = {"exact": self.exact}
        if self.optimizer is not None:
            kept |= {f"adam.{k}": v for k, v in self.optimizer.state[self.exact].items()}
        return kept

    def restore(self, tensors: Tensors) -> None:
        """Back to what `state` gave."""
        self.exact.copy_(tensors["exact"])
        self.half.copy_(self.exact[: self.halves])
        moments = {k[5:]: v for k, v in tensors.items() if k.startswith("adam.")}
        if self.optimizer is not None and moments:
            groups = self.optimizer.state_dict()["param_groups"]
            self.optimizer.load_state_dict({"state": {0: moments}, "param_groups": groups})


def _parameters(net: nn.Module) -> Iterator[tuple[str, nn.Parameter, bool]]:
    """Every parameter that learns, by name, and whether it belongs to a matrix product."""
    for place, module in net.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            matrix = parameter.ndim > 1 or isinstance(module, nn.Linear)
            yield f"{place}.{name}".lstrip("."), parameter, matrix
