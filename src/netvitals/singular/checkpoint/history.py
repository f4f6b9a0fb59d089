r"""The learning coefficient over training: $\hat\lambda$ with its error at each checkpoint, beside the loss.

Stages of training that leave the loss almost flat can still change λ̂, the effective number of parameters. Early in
training a checkpoint is no minimum: the chains find lower loss, λ̂ is negative and says only that. A stronger
localisation keeps them near.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from netvitals.capture import preserved
from netvitals.capture.loss import LossFn
from netvitals.capture.result import Result, one_screen, plain
from netvitals.capture.selection import Only
from netvitals.singular.sampling.llc import LLC, learning_coefficient


@dataclass(frozen=True)
class CoefficientHistory(Result):
    """One learning coefficient per checkpoint, in the order of the steps."""

    steps: tuple[int, ...]
    coefficients: tuple[LLC, ...]

    @property
    def loss(self) -> tuple[float, ...]:
        return tuple(c.baseline for c in self.coefficients)

    @property
    def change(self) -> tuple[float, float]:
        """Last minus first, with its standard error."""
        first, last = self.coefficients[0], self.coefficients[-1]
        return last.mean - first.mean, math.hypot(first.stderr, last.stderr)

    def rows(self) -> list[dict[str, Any]]:
        """One row a checkpoint."""
        return [
            {
                "step": step,
                "lambda": plain(c.mean),
                "stderr": plain(c.stderr),
                "loss": c.baseline,
                "diverged": len(c.health.diverged),
            }
            for step, c in zip(self.steps, self.coefficients)
        ]

    def __str__(self) -> str:
        lines = [
            f"step {s}: λ = {c.mean:.4g} ± {c.stderr:.2g}, loss {c.baseline:.4g}{_doubt(c)}"
            for s, c in zip(self.steps, self.coefficients)
        ]
        return one_screen(lines)


def _doubt(c: LLC) -> str:
    words = []
    if c.health.diverged:
        words.append(f"{len(c.health.diverged)} of {len(c.trace)} chains diverged and are left out")
    if c.note:
        words.append(c.note)
    return f" ({'; '.join(words)})" if words else ""


def coefficient_history(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    checkpoints: Mapping[int, Mapping[str, Tensor]],
    only: Only = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> CoefficientHistory:
    """λ̂ at every checkpoint, with the same data and the same seeds; the model is left as it was.

    Choose one ``step_size`` for all to compare like with like; "auto" tunes each.

    Args:
        model: takes each checkpoint in turn.
        loss_fn: a function of (output, target), or a name.
        batch: what :func:`learning_coefficient` takes; a loader is read once per checkpoint.
        checkpoints: step → state dict of ``model``.
        only: names or patterns of parameters, or a function of a name; the others stay fixed.
        seed: of the chains, the same at every checkpoint.
        progress: called with (checkpoints done, all).
        options: passed to :func:`learning_coefficient`.

    Returns:
        One coefficient a checkpoint, in the order of the steps.
    """
    if not checkpoints:
        raise ValueError("a history needs at least one checkpoint: a mapping from step to state dict")
    steps = sorted(checkpoints)
    found: list[LLC] = []
    with preserved(model, parameters=True):
        for i, step in enumerate(steps):
            try:
                model.load_state_dict(checkpoints[step])
            except RuntimeError as error:
                raise ValueError(
                    f"the checkpoint of step {step} does not fit {type(model).__name__}: "
                    f"{str(error).splitlines()[-1].strip()}"
                ) from error
            found.append(learning_coefficient(model, loss_fn, batch, only=only, seed=seed, **options))
            if progress is not None:
                progress(i + 1, len(steps))
    return CoefficientHistory(tuple(steps), tuple(found))
