"""How big the networks are: the paper's appendix, Hyper-parameters."""

from __future__ import annotations

from dataclasses import dataclass

from langgoalirl.config import option


@dataclass(frozen=True)
class Sizes:
    """Widths and dropout that all networks of a run share."""

    hidden: int = option(512, "width of LSTMs and MLPs; a BiLSTM has half of it per direction")
    layers: int = option(2, "layers of every MLP")
    word: int = option(300, "width of a word embedding")
    angle: int = option(32, "width of the embedding of the own heading")
    latent: int = option(128, "width of the goal generator's z")
    dropout: float = option(0.5, "dropout rate inside the networks")
    feature_dropout: float = option(0.3, "share of feature columns hidden from a trajectory")

    def __post_init__(self) -> None:
        for name in ("hidden", "layers", "word", "angle", "latent"):
            if getattr(self, name) < 1:
                raise ValueError(f"sizes.{name} must be at least 1")
        if self.hidden % 4:
            raise ValueError("sizes.hidden must be a multiple of 4, for halves of halves")
        for name in ("dropout", "feature_dropout"):
            if not 0 <= getattr(self, name) <= 0.95:
                raise ValueError(f"sizes.{name} must lie between 0 and 0.95")
