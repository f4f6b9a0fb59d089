r"""Gradients and updates: how hard each parameter tensor is pushed, and how far it moves.

Per tensor: $\|g\|$, $\|\Delta w\|$ with $\Delta w$ what the optimizer changed on this step, and the update ratio
$\|\Delta w\| / \|w\|$ with $w$ before the step. For the model the same from the root of the sums of squares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from netvitals.capture import ParameterSight, Sheet, Vital
from netvitals.vitals._tables import tables


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


def update(before: Mapping[str, Tensor], after: Mapping[str, Tensor], grads: Mapping[str, Tensor]) -> Update:
    """Gradient, update and weight norm over all tensors that are named in ``before``.

    >>> print(update({"w": torch.tensor([3.0, 4.0])}, {"w": torch.tensor([3.0, 3.5])}, {"w": torch.tensor([0.0, 5.0])}))
    gradient 5.000e+00, update 5.000e-01 = 1.00e-01 of the weights
    """
    missing = sorted(set(before) - set(after))
    if missing:
        raise ValueError(f"parameters {missing} are known before the step and not after it")
    squares = [sum(float(t.detach().double().square().sum()) for t in tensors)
               for tensors in ([grads[n] for n in before if n in grads], [after[n] - before[n] for n in before],
                               list(before.values()))]
    return Update(*(s ** 0.5 for s in squares))


class Gradients(Vital):
    """``grad_norm``, ``update_norm``, ``weight_norm`` and ``update_ratio`` of every parameter tensor and of the model.

    Gradients and updates are there when an optimizer is watched; without one, only the weight norm is.
    """

    name = "gradients"

    def parameters(self, sheet: Sheet, sight: ParameterSight) -> None:
        norms: dict[str, list[Tensor]] = {}
        for table in tables(sight):
            columns = {"weight_norm": table.norm_before}
            if table.has_grads:
                columns["grad_norm"] = table.grad_norm
            if table.has_before:
                columns["update_norm"] = table.update_norm
            for metric, values in columns.items():
                norms.setdefault(metric, []).append(values)
            if table.has_before:
                columns["update_ratio"] = table.update_norm / table.norm_before
            sheet.write(table.names, tuple(columns), torch.stack(list(columns.values()), dim=1))
        totals = {metric: torch.linalg.vector_norm(torch.cat(values)) for metric, values in norms.items()}
        if "update_norm" in totals:
            totals["update_ratio"] = totals["update_norm"] / totals["weight_norm"]
        if totals:
            sheet.write("model", tuple(totals), torch.stack(list(totals.values())))
