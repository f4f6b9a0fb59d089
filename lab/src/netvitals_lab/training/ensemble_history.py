"""What happened in the training of an ensemble, seed by seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from netvitals_lab.training.ensemble import Ensemble


@dataclass(frozen=True)
class EnsembleEvaluation:
    """Test loss and accuracy of every seed (K,) after ``step`` steps; accuracy is None for values."""

    step: int
    epoch: int
    loss: Tensor
    accuracy: Tensor | None


@dataclass(frozen=True)
class EnsembleHistory:
    """``loss`` is (steps, K); ``diverged`` says at which step the loss of a seed stopped being finite."""

    seeds: tuple[int, ...]
    loss: Tensor
    lr: tuple[float, ...]
    evaluations: tuple[EnsembleEvaluation, ...]
    steps: int
    total: int
    decay: float
    diverged: dict[int, int] = field(default_factory=dict)
    stopped: str | None = None

    @property
    def accuracy(self) -> Tensor:
        """Accuracy of every seed at the last evaluation, NaN where there is none."""
        last = self.evaluations[-1].accuracy if self.evaluations else None
        return torch.full((len(self.seeds),), torch.nan) if last is None else last

    def __str__(self) -> str:
        text = f"{len(self.seeds)} seeds, {self.steps} of {self.total} steps"
        if len(self.loss):
            text += f", loss {_summary(self.loss[0])} → {_summary(self.loss[-1])}"
        if self.evaluations and self.evaluations[-1].accuracy is not None:
            text += f", accuracy {_summary(self.accuracy)}"
        if self.diverged:
            text += "; diverged: " + ", ".join(f"seed {s} at step {t}" for s, t in self.diverged.items())
        return text if self.stopped is None else f"{text}; stopped: {self.stopped}"


@dataclass(frozen=True)
class EnsembleMoment:
    """Where an ensemble stands when a hook is called; ``epoch`` is −1 and ``loss`` None before the first step."""

    step: int
    epoch: int
    ensemble: Ensemble
    loss: Tensor | None
    evaluation: EnsembleEvaluation | None = None


def _summary(values: Tensor) -> str:
    values = values[torch.isfinite(values)]
    if len(values) < 2:
        return f"{values.mean().item():.4g}"
    return f"{values.mean().item():.4g} ± {values.std().item() / len(values) ** 0.5:.2g}"
