r"""Imbalance between neighbouring layers: $\Delta_l = \|W_{l+1}\|_F^2 - \|W_l\|_F^2 - \|b_l\|^2$.

Gradient flow keeps it constant where the activation between the two layers is homogeneous (ReLU, linear), and moves it
slowly elsewhere; growth means that one layer takes over. :mod:`netvitals.saddle` has the pairs, the identity and the
account of one step, which :class:`StepAccounting` keeps while a model trains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from netvitals._moved import moved
from netvitals.capture import Metric, ParameterView, Recorder, Vital, WatchContext
from netvitals.saddle.measure.accounting import neighbours, pair_numbers
from netvitals.saddle.measure.identity import delta_terms
from netvitals.saddle.measure.pairs import PairFinder


class Imbalance(PairFinder):
    """``imbalance`` and ``relative`` of every pair, at site ``first→second``. Pairs are found as the model runs."""

    name = "imbalance"
    title = "Imbalance"
    meaning = (
        "How far neighbouring layers have moved apart: ‖Wₗ₊₁‖² − ‖Wₗ‖², which gradient flow conserves in linear "
        "networks."
    )
    metrics: ClassVar = {
        "imbalance": Metric("‖Wₗ₊₁‖² − ‖Wₗ‖² − ‖bₗ‖²", "weight²"),
        "relative": Metric("the same over the sum of the three, between −1 and 1"),
    }
    headline = ("relative", "imbalance")
    default = True
    every = 10

    def __init__(self) -> None:
        super().__init__()
        self._signs: dict[tuple[Any, ...], tuple[list[str], Tensor]] = {}

    def parameters(self, recorder: Recorder, view: ParameterView) -> None:
        self._last = None
        if not self.pairs:
            return
        names, signs = self._matrix(view)
        if not names:
            return
        norms = torch.stack(torch._foreach_norm([view.params[n] for n in names])).to(signs.dtype)
        squares = norms * norms
        delta = signs @ squares
        table = torch.stack([delta, delta / (signs.abs() @ squares)], dim=1)
        recorder.write([f"{first}→{second}" for first, second in self.pairs], tuple(self.metrics), table)

    def _matrix(self, view: ParameterView) -> tuple[list[str], Tensor]:
        key = (tuple(self.pairs),)
        if key not in self._signs:
            terms = [delta_terms(a, b, view.params) for a, b in self.pairs]
            names = list(dict.fromkeys(n for signs in terms for n in signs))
            table = [[signs.get(n, 0.0) for n in names] for signs in terms]
            like = next(iter(view.params.values()))
            dtype = torch.float32 if like.dtype in (torch.float16, torch.bfloat16) else like.dtype
            self._signs = {key: (names, torch.tensor(table, dtype=dtype, device=like.device))}
        return self._signs[key]


class StepAccounting(Vital):
    """Change of Δ per layer pair on each measured step, and the gap to plain SGD.

    Args:
        pairs: (first, second) names of layers; left out, layers that follow each other in the model and whose sizes
            fit.
        lr: learning rate, one for all or per parameter name; left out, the rate that explains each step best.
    """

    name = "accounting"
    title = "Step accounting"
    meaning = (
        "What an optimizer step did to the imbalance of two layers, and what plain SGD would have done: momentum, Adam "
        "and weight decay open the gap."
    )
    metrics: ClassVar = {
        "delta": Metric("‖Wₗ₊₁‖² − ‖Wₗ‖² − ‖bₗ‖² after the step", "weight²"),
        "change": Metric("its change in this step", "weight²"),
        "predicted": Metric("its change under plain SGD with the same gradients", "weight²"),
        "gap": Metric("what the gradient of this step does not explain", "weight²"),
    }
    headline = ("gap", "change")
    needs = "an optimizer that steps"

    def __init__(
        self, pairs: Sequence[tuple[str, str]] | None = None, lr: float | Mapping[str, float] | None = None
    ) -> None:
        self.pairs = None if pairs is None else list(pairs)
        self.lr = lr

    def begin(self, context: WatchContext) -> None:
        if not context.training:
            raise ValueError(
                f"the vital sign {self.name!r} looks at what an optimizer step did, and a checkup makes none: "
                "ask for it in watch"
            )

    def parameters(self, recorder: Recorder, view: ParameterView) -> None:
        if not view.before or not view.grads:
            return
        if self.pairs is None:
            self.pairs = neighbours(view.modules)
        for first, second in self.pairs:
            if f"{first}.weight" in view.grads and f"{second}.weight" in view.grads:
                numbers = pair_numbers(view.before, view.params, view.grads, first, second, self.lr)
                delta, change, predicted = numbers[:3]
                recorder.write(
                    f"{first} → {second}",
                    tuple(self.metrics),
                    torch.stack([delta, change, predicted, change - predicted]),
                )


__getattr__ = moved(
    __name__,
    {
        "ChainImbalance": "netvitals.saddle.ChainImbalance",
        "Pair": "netvitals.saddle.Pair",
        "imbalances": "netvitals.saddle.measure.pairs.imbalances",
        "measure": "netvitals.saddle.chain_imbalance",
    },
)
