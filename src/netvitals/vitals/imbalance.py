r"""Imbalance between neighbouring layers: $\Delta_l = \|W_{l+1}\|_F^2 - \|W_l\|_F^2 - \|b_l\|^2$.

Gradient flow keeps it constant where the activation between the two layers is homogeneous (ReLU, linear), and moves it
slowly elsewhere; growth means that one layer takes over. :mod:`netvitals.saddle` has the pairs, the identity and the
account of one step, which :class:`StepAccounting` keeps while a model trains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
import torch

from netvitals import stats
from netvitals._help import hint
from netvitals.anatomy import Anatomy
from netvitals.capture import Metric, ParameterView, Recorder, Vital, WatchContext
from netvitals.saddle import imbalance_of, layer_pairs, named_terms, pair_numbers, pair_terms


class Imbalance(Vital):
    """``imbalance`` and ``relative`` of every pair, at site ``first→second``. The model's anatomy tells the pairs.

    >>> import netvitals, torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> seen = netvitals.checkup(net, nn.MSELoss(), (torch.randn(16, 4), torch.randn(16, 1)),
    ...                          vitals=["imbalance"], curvature=False)
    >>> sorted((r.site, r.metric) for r in seen.measurements if "→" in r.site)
    [('0→2', 'imbalance'), ('0→2', 'relative')]
    """

    name = "imbalance"
    title = "Imbalance"
    meaning = (
        "How much the squared norms of adjacent layers differ: ‖Wₗ₊₁‖² − ‖Wₗ‖². In linear networks, gradient flow "
        "keeps this difference constant."
    )
    metrics: ClassVar = {
        "imbalance": Metric("imbalance of two layers: ‖Wₗ₊₁‖² − ‖Wₗ‖² − ‖bₗ‖²", "weight²"),
        "relative": Metric("imbalance divided by ‖Wₗ₊₁‖² + ‖Wₗ‖² + ‖bₗ‖²; between −1 and 1"),
    }
    absent = (
        "no two layers are joined by nothing but an activation: layers that are called more than once, "
        "or with a sum over neighbours between them, are no pair"
    )
    headline = ("relative", "imbalance")
    default = True
    every = 10
    takes_pieces = True

    def __init__(self) -> None:
        self._anatomy: Anatomy | None = None
        self._sites: list[str] = []
        self._skipped: dict[str, str] = {}
        self._names: list[str] = []
        self._terms: list[dict[str, float]] = []

    def parameters(self, recorder: Recorder, view: ParameterView) -> None:
        if view.anatomy is None:
            return
        if self._anatomy is not view.anatomy:
            self._anatomy = view.anatomy
            self._read(view)
        recorder.skipped.update(self._skipped)
        if not self._names:
            return
        norms = torch.stack(stats.norms([view.params[n] for n in self._names]))
        recorder.on_host((norms,), partial(self._finish, recorder), view.over("norm", self._names))

    def _finish(self, recorder: Recorder, norms: np.ndarray) -> None:
        squares = dict(zip(self._names, norms * norms))
        delta = np.array([imbalance_of(terms, squares.__getitem__) for terms in self._terms])
        size = np.array([sum(squares[n] for n in terms) for terms in self._terms])
        recorder.put(self._sites, tuple(self.metrics), np.stack([delta, delta / size], axis=1))

    def _read(self, view: ParameterView) -> None:
        assert view.anatomy is not None
        pairs, refused = layer_pairs(view.anatomy)
        self._skipped = {f"{place} (imbalance)": why for place, why in refused.items()}
        kept = [(a, b) for a, b in pairs if a.weight in view.params and b.weight in view.params]
        self._terms = [{n: s for n, s in pair_terms(a, b).items() if n in view.params} for a, b in kept]
        self._sites = [f"{a.name}→{b.name}" for a, b in kept]
        self._names = list(dict.fromkeys(n for terms in self._terms for n in terms))


class StepAccounting(Vital):
    """Change of Δ per layer pair on each measured step, and the gap to plain SGD.

    Args:
        pairs: (first, second) names of layers; left out, those of the model's anatomy, as :class:`Imbalance` has them.
        lr: learning rate, one for all or per parameter name; left out, the rate that explains each step best.

    >>> import netvitals, torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> opt = torch.optim.SGD(net.parameters(), lr=0.1)
    >>> with netvitals.watch(net, opt, every=1, vitals=["accounting"]) as seen:
    ...     for _ in range(2):
    ...         loss = net(torch.randn(16, 4)).square().mean()
    ...         opt.zero_grad(); loss.backward(); opt.step()
    >>> {r.site for r in seen.measurements if r.metric == "gap" and abs(r.value) < 1e-5}  # plain SGD explains itself
    {'0 → 2'}
    """

    name = "accounting"
    title = "Step accounting"
    meaning = (
        "How an optimizer step changes the imbalance of two layers, compared with plain SGD. Momentum, Adam and "
        "weight decay make the two differ."
    )
    metrics: ClassVar = {
        "delta": Metric("imbalance ‖Wₗ₊₁‖² − ‖Wₗ‖² − ‖bₗ‖² after the step", "weight²"),
        "change": Metric("change of the imbalance in this step", "weight²"),
        "predicted": Metric("change of the imbalance that plain SGD with the same gradients would make", "weight²"),
        "gap": Metric("measured change minus the change under plain SGD", "weight²"),
    }
    headline = ("gap", "change")
    needs = "an optimizer"

    def __init__(
        self, pairs: Sequence[tuple[str, str]] | None = None, lr: float | Mapping[str, float] | None = None
    ) -> None:
        self.pairs = None if pairs is None else list(pairs)
        self.lr = lr

    def begin(self, context: WatchContext) -> None:
        if not context.training:
            raise ValueError(
                f"the vital sign {self.name!r} measures the effect of an optimizer step, but a checkup makes no step: "
                f"use it in watch {hint('needs-steps')}"
            )

    def parameters(self, recorder: Recorder, view: ParameterView) -> None:
        if not view.before or not view.grads:
            return
        terms = {f"{a} → {b}": named_terms(a, b, view.params) for a, b in self.pairs or ()}
        if self.pairs is None:
            if view.anatomy is None:
                return
            found, refused = layer_pairs(view.anatomy)
            terms = {f"{a.name} → {b.name}": pair_terms(a, b) for a, b in found}
            recorder.skipped.update({f"{place} (accounting)": why for place, why in refused.items()})
        for place, signs in terms.items():
            if all(name in view.grads for name in list(signs)[:2]):
                delta, change, predicted = pair_numbers(view.before, view.params, view.grads, signs, self.lr)[:3]
                recorder.write(place, tuple(self.metrics), torch.stack([delta, change, predicted, change - predicted]))
