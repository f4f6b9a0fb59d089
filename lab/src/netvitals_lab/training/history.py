"""What happened in a training run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer


@dataclass(frozen=True)
class Evaluation:
    """Test loss, and accuracy where there are classes, after ``step`` optimiser steps."""

    step: int
    epoch: int  # last finished epoch, -1 before training
    loss: float
    accuracy: float | None
    examples: int


@dataclass(frozen=True)
class History:
    """One entry per optimiser step in ``loss``, ``lr`` (factor on the base rate) and ``grad_norm`` (with clipping).

    ``stopped`` is None for a run that did all of its ``total`` steps, else a sentence that says why it ended. When a
    loss that is not finite ended it, that loss is the last entry, one more than there were steps.
    ``decay`` is the integrated decay S of the steps that were taken.
    """

    loss: tuple[float, ...]
    lr: tuple[float, ...]
    grad_norm: tuple[float, ...]
    evaluations: tuple[Evaluation, ...]
    steps: int
    total: int
    decay: float
    stopped: str | None = None
    checkpoints: tuple[Path, ...] = field(default=(), repr=False)

    @property
    def final(self) -> Evaluation | None:
        """The last evaluation."""
        return self.evaluations[-1] if self.evaluations else None

    @property
    def accuracy(self) -> float:
        """Accuracy of the last evaluation, NaN when there is none."""
        final = self.final
        return float("nan") if final is None or final.accuracy is None else final.accuracy

    def rows(self) -> list[dict[str, Any]]:
        """Steps in long form: step, loss, lr."""
        return [{"step": i, "loss": a, "lr": b} for i, (a, b) in enumerate(zip(self.loss, self.lr))]

    def __str__(self) -> str:
        text = f"{self.steps} of {self.total} steps"
        if self.loss:
            text += f", loss {self.loss[0]:.4g} → {self.loss[-1]:.4g}"
        if self.final is not None:
            text += f", test loss {self.final.loss:.4g}"
            if self.final.accuracy is not None:
                text += f", accuracy {self.final.accuracy:.1%} of {self.final.examples}"
        return text if self.stopped is None else f"{text}; stopped: {self.stopped}"


@dataclass(frozen=True)
class Moment:
    """Where a run stands when a hook is called. ``epoch`` is −1 before the first step."""

    step: int  # optimiser steps taken
    epoch: int  # last finished epoch
    loss: float  # of the last step, NaN before the first
    model: nn.Module
    optimizer: Optimizer
    evaluation: Evaluation | None = None
