"""On a GPU an update is hundreds of short kernels, and launching them takes longer than running
them. So it is recorded once, as a CUDA graph, and played back: one launch instead of hundreds."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from langgoalirl.irl.learner import Learner
from langgoalirl.irl.transitions import Situation, Steps

WARM = 3  # updates before the recording, in which libraries take what memory they need


class Recorded:
    """`Learner.update`, the same numbers for the same batches and the same chance."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.graph: torch.cuda.CUDAGraph | None = None
        self.done = 0

    def __call__(self, *batches: Steps) -> dict[str, Tensor]:
        """Discriminator and actor-critic, from P+, P- and Q."""
        if self.done < WARM:
            self.done += 1
            return self._aside(*batches)
        if self.graph is None:
            self._record(*batches)
        for given, kept in zip(_tensors(batches), _tensors(self.inputs), strict=True):
            kept.copy_(given)
        assert self.graph is not None
        self.graph.replay()
        return {name: value.clone() for name, value in self.measured.items()}

    def _aside(self, *batches: Steps) -> dict[str, Tensor]:
        """An update as it is, on a stream of its own, as recording asks for."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            measured = self.learner.update(*batches)
        torch.cuda.current_stream().wait_stream(stream)
        return measured

    def _record(self, *batches: Steps) -> None:
        self.inputs = tuple(_copy(batch) for batch in batches)
        self.graph = torch.cuda.CUDAGraph()
        self.graph.register_generator_state(self.learner.generator)
        with torch.cuda.graph(self.graph):
            self.measured = self.learner.update(*self.inputs)


def _copy(steps: Steps) -> Steps:
    now, then = (Situation(*(part.clone() for part in s)) for s in (steps.now, steps.then))
    return Steps(now, steps.action.clone(), then, steps.last.clone())


def _tensors(batches: tuple[Steps, ...]) -> Iterator[Tensor]:
    for steps in batches:
        yield from (*steps.now, steps.action, *steps.then, steps.last)
