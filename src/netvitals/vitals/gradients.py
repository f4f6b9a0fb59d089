r"""Gradients and updates: how hard each parameter tensor is pushed, and how far it moves.

Per tensor: $\|g\|$, $\|\Delta w\|$ with $\Delta w$ what the optimizer changed on this step, and the update ratio
$\|\Delta w\| / \|w\|$ with $w$ before the step. For the model the same from the root of the sums of squares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from netvitals.capture import ParameterView, Recorder, Vital


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
    squares = [
        sum(float(t.detach().double().square().sum()) for t in tensors)
        for tensors in (
            [grads[n] for n in before if n in grads],
            [after[n] - before[n] for n in before],
            list(before.values()),
        )
    ]
    return Update(*(s**0.5 for s in squares))


class Gradients(Vital):
    """``grad_norm``, ``update_norm``, ``weight_norm`` and ``update_ratio`` of every parameter tensor and of the model.

    Gradients and updates are there when an optimizer is watched; without one, only the weight norm is.
    """

    name = "gradients"
    every = 2

    def parameters(self, recorder: Recorder, view: ParameterView) -> None:
        names = [n for n, p in view.params.items() if p.is_floating_point() and p.numel()]
        grads, before = [n for n in names if n in view.grads], [n for n in names if n in view.before]
        tensors = [view.before.get(n, view.params[n]) for n in names] + [view.grads[n] for n in grads]
        if before:
            tensors += torch._foreach_sub([view.params[n] for n in before], [view.before[n] for n in before])
        recorder.on_host(_norms(tensors), partial(self._finish, recorder, names, grads, before))

    def _finish(
        self, recorder: Recorder, names: list[str], grads: list[str], before: list[str], *norms: np.ndarray
    ) -> None:
        values = iter(np.concatenate([n.reshape(-1) for n in norms]).tolist() if norms else ())
        found = {
            metric: dict(zip(where, values))
            for metric, where in (("weight_norm", names), ("grad_norm", grads), ("update_norm", before))
        }
        weights = found["weight_norm"]
        found["update_ratio"] = {n: _ratio(u, weights[n]) for n, u in found["update_norm"].items()}
        rows: dict[tuple[str, ...], list[str]] = {}
        for name in names:
            rows.setdefault(tuple(metric for metric, known in found.items() if name in known), []).append(name)
        for metrics, where in rows.items():
            recorder.put(where, metrics, np.array([[found[m][n] for m in metrics] for n in where]))
        whole = {m: math.hypot(*known.values()) for m, known in found.items() if known and m != "update_ratio"}
        if before:
            whole["update_ratio"] = _ratio(whole["update_norm"], whole["weight_norm"])
        if whole:
            recorder.put("model", tuple(whole), np.array(list(whole.values())))


def _ratio(update: float, weight: float) -> float:
    """A tensor that leaves zero has moved by all it is; one that stays there has not moved."""
    return update / weight if weight else float(update > 0)


def _norms(tensors: Sequence[Tensor]) -> list[Tensor]:
    """One norm a tensor, together where they are on one device; half precision is squared in float32."""
    wide = [t.float() if t.dtype in (torch.float16, torch.bfloat16) else t for t in tensors]
    norms = list(torch._foreach_norm(wide)) if wide else []
    return [torch.stack(norms)] if len({(t.device, t.dtype) for t in norms}) == 1 else norms
