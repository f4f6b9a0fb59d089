r"""Gradients and updates: how hard each parameter tensor is pushed, and how far it moves.

Per tensor: $\|g\|$, $\|\Delta w\|$ with $\Delta w$ what the optimizer changed on this step, and the update ratio
$\|\Delta w\| / \|w\|$ with $w$ before the step. For the model the same from the root of the sums of squares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from netvitals._moved import moved
from netvitals.capture import Metric, ParameterView, Recorder, Vital


class Gradients(Vital):
    """``grad_norm``, ``update_norm``, ``weight_norm`` and ``update_ratio`` of every parameter tensor and of the model.

    Gradients and updates are there when an optimizer is watched; without one, only the weight norm is.
    """

    name = "gradients"
    title = "Gradients"
    meaning = (
        "How hard each parameter is pushed, and how far it moves. Healthy updates are about a thousandth of the "
        "weights."
    )
    metrics: ClassVar = {
        "grad_norm": Metric("length of the gradient", "gradient"),
        "update_norm": Metric("length of the step", "weight"),
        "weight_norm": Metric("length of the weights", "weight"),
        "update_ratio": Metric("step over weights"),
    }
    headline = ("update_ratio", "grad_norm", "weight_norm")
    default = True
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


__getattr__ = moved(
    __name__,
    {"Update": "netvitals.drift.Update", "update": "netvitals.drift.update_norms"},
)
