"""One optimizer step in three norms: the gradient, the update, and the weights it moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Update:
    """Norms of one step, of one tensor or of a whole model."""

    grad_norm: float
    update_norm: float
    weight_norm: float

    @property
    def ratio(self) -> float:
        return self.update_norm / self.weight_norm if self.weight_norm else float("nan")

    def __str__(self) -> str:
        return f"gradient {self.grad_norm:.3e}, update {self.update_norm:.3e} = {self.ratio:.2e} of the weights"


def update_norms(before: Mapping[str, Tensor], after: Mapping[str, Tensor], grads: Mapping[str, Tensor]) -> Update:
    """Gradient, update and weight norm over all tensors that are named in ``before``.

    >>> before, after = {"w": torch.tensor([3.0, 4.0])}, {"w": torch.tensor([3.0, 3.5])}
    >>> print(update_norms(before, after, {"w": torch.tensor([0.0, 5.0])}))
    gradient 5.000e+00, update 5.000e-01 = 1.00e-01 of the weights
    """
    missing = sorted(set(before) - set(after))
    if missing:
        raise ValueError(f"parameters {missing} are known before the step and not after it")
    squares = [
        sum(float(t.detach().double().square().sum()) for t in tensors)
        for tensors in (
            [grads[n] for n in before if n in grads],
            [after[n] - before[n] for n in before],
            list(before.values()),
        )
    ]
    return Update(*(s**0.5 for s in squares))
