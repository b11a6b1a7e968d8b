"""The training loop of everything that is trained before the adversarial one. One page.

What an update does depends on its number and the seed alone, so a run that was cut off goes on
from its last checkpoint and ends with the same bytes as one that wasn't.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from langgoalirl.config import option
from langgoalirl.demonstrations import Batch, mix
from langgoalirl.models.layers import use_generator
from langgoalirl.progress import Board, Progress
from langgoalirl.run_folder import RunFolder, Tensors, under

Numbers = dict[str, float]
Objective = Callable[[Batch, int, torch.Generator], tuple[Tensor, dict[str, Tensor]]]


@dataclass(frozen=True)
class Training:
    """How long and how a stage is trained."""

    updates: int = option(6000, "gradient updates")
    batch: int = option(100, "demonstrations in an update")
    learning_rate: float = option(1e-4, "Adam's step size")
    decay: bool = option(False, "let the step size fall to zero along half a cosine")
    clip: float = option(5.0, "largest norm of the gradient")
    average: float = option(0.0, "decay of the averaged weights that are kept; 0 keeps the last")
    mirror: bool = option(False, "show half of the demonstrations with left and right exchanged")
    validate_every: int = option(500, "updates between two looks at the selection split")
    precision: str = option("bf16", "of matrix products in training", ("bf16", "fp32"))

    def __post_init__(self) -> None:
        for name in ("updates", "batch", "validate_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"'{name}' must be at least 1")
        if self.learning_rate <= 0 or self.clip <= 0:
            raise ValueError("'learning_rate' and 'clip' must be above 0")
        if not 0 <= self.average < 1:
            raise ValueError("'average' must lie between 0 and 1, 1 excluded")


@dataclass(frozen=True)
class GeneratorTraining(Training):
    """What the goal generator's training has beyond the others'."""

    word_dropout: float = option(0.25, "share of previous words that are hidden")
    kl_updates: int = option(50_000, "updates over which the KL multiplier λ grows from 0 to 1")
    free_nats: float = option(5.0, "nats per sentence that the KL term leaves unpunished")
    dropout: float = option(0.5, "dropout rate inside the goal generator")
    feature_dropout: float = option(0.0, "share of feature columns hidden from its trajectories")


def precision(kind: str, device: torch.device) -> tuple[torch.dtype, AbstractContextManager]:
    """The dtype that observations come in, and the context that products run in."""
    half = kind == "bf16"
    dtype = torch.bfloat16 if half else torch.float32
    return dtype, torch.autocast(device.type, dtype=torch.bfloat16, enabled=half)


def fit(
    run: RunFolder,
    model: nn.Module,
    objective: Objective,
    batches: Callable[[int], Batch],
    settings: Training,
    seed: int,
    validate: Callable[[Any], Numbers] | None = None,
    select: str = "",
) -> Tensors:
    """Train, resume, validate; gives the weights of the best validation (or the last ones).

    `validate` returns numbers, of which `select` names the one that is to be as large as possible.
    """
    device = next(model.parameters()).device
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=settings.learning_rate, fused=True)
    averaged = Average(model, settings.average)
    generator = torch.Generator(device)
    use_generator(model, generator)
    progress = _resume(run, model, averaged, optimizer)
    _, autocast = precision(settings.precision, device)
    started, first, before = time.perf_counter(), progress.update, progress.seconds
    logged: Numbers = {}

    with Progress(run.path.name, settings.updates, first) as bar, Board(run.path, first) as board:
        while progress.update < settings.updates:
            model.train()
            generator.manual_seed(mix(seed, progress.update, 3))
            with autocast:
                loss, details = objective(batches(progress.update), progress.update, generator)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, settings.clip)
            for group in optimizer.param_groups:
                group["lr"] = settings.learning_rate * step_size_factor(settings, progress.update)
            optimizer.step()
            progress.update += 1
            averaged.follow(model)

            if progress.update % 50 == 0 or progress.update == settings.updates:
                logged = {"loss": loss.item(), **{k: v.item() for k, v in details.items()}}
                seconds = time.perf_counter() - started
                run.log(progress.update, **logged, seconds=round(before + seconds, 1))
                board.show(progress.update, logged)
                bar.show(**logged, per_second=(progress.update - first) / seconds)
            bar.advance()
            if progress.update % settings.validate_every == 0:
                if validate is not None:
                    with averaged.applied(model):
                        numbers = validate(model.eval())
                    run.log(progress.update, **numbers)
                    board.show(progress.update, numbers)
                    bar.show(**logged, **{select: numbers[select]})
                    if numbers[select] > progress.best:
                        progress.best, progress.best_update = numbers[select], progress.update
                        run.save("best", averaged.state(model), {"update": progress.update})
                progress.seconds = before + time.perf_counter() - started
                _checkpoint(run, model, averaged, optimizer, progress)
    if validate is not None and progress.best_update > 0:
        return run.need("best")
    return averaged.state(model)


def step_size_factor(settings: Training, update: int) -> float:
    """The factor on the step size: 1, or half a cosine down to 0."""
    if not settings.decay:
        return 1.0
    return 0.5 * (1.0 + float(torch.cos(torch.tensor(torch.pi * update / settings.updates))))


@dataclass
class Position:
    """How far a run is."""

    update: int = 0
    best: float = -float("inf")
    best_update: int = 0
    seconds: float = 0.0  # of training so far, whatever sittings it took


class Average:
    """Weights averaged over the last updates; a decay of 0 keeps no average."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.values = {k: v.clone() for k, v in model.state_dict().items()} if decay else {}
        self.updates = 0

    def follow(self, model: nn.Module) -> None:
        """Move a little towards the current weights."""
        if self.decay:
            self.updates += 1
            # Young averages forget faster, else the random start would stay in them for long.
            weight = 1.0 - min(self.decay, self.updates / (self.updates + 10))
            current = list(model.state_dict().values())
            torch._foreach_lerp_(list(self.values.values()), current, weight)

    def state(self, model: nn.Module) -> Tensors:
        """The weights to keep."""
        return dict(self.values) if self.decay else model.state_dict()

    def applied(self, model: nn.Module) -> AbstractContextManager:
        """The model with the averaged weights in place, for as long as it is evaluated."""
        return _Applied(model, self.values)


class _Applied(AbstractContextManager):
    def __init__(self, model: nn.Module, values: Tensors) -> None:
        self.model, self.values = model, values

    def __enter__(self) -> None:
        if self.values:
            self.own = {k: v.clone() for k, v in self.model.state_dict().items()}
            self.model.load_state_dict(self.values)

    def __exit__(self, *error: object) -> None:
        if self.values:
            self.model.load_state_dict(self.own)


def _checkpoint(
    run: RunFolder,
    model: nn.Module,
    averaged: Average,
    optimizer: torch.optim.Optimizer,
    progress: Position,
) -> None:
    """Everything that the rest of the run depends on, in one atomic file."""
    tensors = {f"model.{k}": v for k, v in model.state_dict().items()}
    tensors |= {f"average.{k}": v for k, v in averaged.values.items()}
    for i, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{i}.{name}": value for name, value in state.items()}
    run.save("last", tensors, {**vars(progress), "averaged": averaged.updates})


def _resume(
    run: RunFolder, model: nn.Module, averaged: Average, optimizer: torch.optim.Optimizer
) -> Position:
    """Go back to the last checkpoint, or stay at the start."""
    loaded = run.load("last")
    if loaded is None:
        run.rewind(0)
        return Position()
    tensors, state = loaded
    averaged.updates = state.pop("averaged")
    model.load_state_dict(under(tensors, "model."))
    for name, value in under(tensors, "average.").items():
        averaged.values[name].copy_(value)
    slots: dict[int, Tensors] = {}
    for name, value in under(tensors, "optimizer.").items():
        i, _, key = name.partition(".")
        slots.setdefault(int(i), {})[key] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": slots})
    run.rewind(state["update"])
    return Position(**state)
