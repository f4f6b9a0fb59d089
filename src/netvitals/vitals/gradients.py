r"""Gradients and updates: how hard each parameter tensor is pushed, and how far it moves.

Per tensor: $\|g\|$, $\|\Delta w\|$ with $\Delta w$ what the optimizer changed on this step, and the update ratio
$\|\Delta w\| / \|w\|$ with $w$ before the step. For the model the same from the root of the sums of squares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from netvitals.capture import ParameterSight, Sheet, Vital


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
        params = {n: p for n, p in sight.params.items() if p.is_floating_point() and p.numel()}
        by_device: dict[tuple[torch.device, bool, bool], list[str]] = {}
        for name, p in params.items():
            by_device.setdefault((p.device, name in sight.grads, name in sight.before), []).append(name)
        totals: dict[str, list[Tensor]] = {}
        for (_, has_grad, has_before), names in by_device.items():
            now = [params[n] for n in names]
            before = [sight.before[n] for n in names] if has_before else now
            columns = {"weight_norm": _norms(before)}
            if has_grad:
                columns["grad_norm"] = _norms([sight.grads[n] for n in names])
            if has_before:
                columns["update_norm"] = _norms(torch._foreach_sub(now, before))
            for metric, values in columns.items():
                totals.setdefault(metric, []).append(values)
            if has_before:
                # a tensor that leaves zero has moved by all it is; one that stays there has not moved
                ratio = columns["update_norm"] / columns["weight_norm"]
                columns["update_ratio"] = torch.nan_to_num(ratio, nan=0.0, posinf=1.0)
            sheet.write(names, tuple(columns), torch.stack(list(columns.values()), dim=1))
        if len(by_device) and len({key[0] for key in by_device}) == 1:
            whole = {m: torch.linalg.vector_norm(torch.cat(v)) for m, v in totals.items()}
            if "update_norm" in whole:
                whole["update_ratio"] = whole["update_norm"] / whole["weight_norm"]
            sheet.write("model", tuple(whole), torch.stack(list(whole.values())))


def _norms(tensors: Sequence[Tensor]) -> Tensor:
    """One norm a tensor; half precision is squared in float32."""
    wide = [t.float() if t.dtype in (torch.float16, torch.bfloat16) else t for t in tensors]
    return torch.stack(torch._foreach_norm(wide))
