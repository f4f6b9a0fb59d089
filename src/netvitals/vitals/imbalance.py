r"""Imbalance between neighbouring layers: $\Delta_l = \|W_{l+1}\|_F^2 - \|W_l\|_F^2 - \|b_l\|^2$.

Gradient flow keeps it constant where the activation between the two layers is homogeneous (ReLU, linear), and moves it
slowly elsewhere; growth means that one layer takes over. A pair is two linear or convolution layers, one fed by the
other through elementwise activations only (dropout and pooling may lie between, a norm may not).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.capture import ActivationView, LinearView, ParameterView, Recorder, TensorView, Vital, observe
from netvitals.saddle.measure.identity import delta_terms

METRICS = ("imbalance", "relative")


@dataclass(frozen=True)
class Pair:
    """Imbalance of two neighbouring layers."""

    first: str
    second: str
    delta: float  # ‖W_second‖² − ‖W_first‖² − ‖b_first‖²
    relative: float  # delta over the sum of the three terms, in [−1, 1]

    def __str__(self) -> str:
        return f"{self.first} → {self.second}: {self.delta:+.6g} ({self.relative:+.1%})"


@dataclass(frozen=True)
class ChainImbalance:
    """All pairs that were found in a model, in the order of the forward pass."""

    pairs: tuple[Pair, ...]

    @property
    def delta(self) -> tuple[float, ...]:
        return tuple(p.delta for p in self.pairs)

    def __str__(self) -> str:
        return "\n".join(map(str, self.pairs))


def imbalances(weights: Sequence[Tensor], biases: Sequence[Tensor | None] | None = None) -> tuple[float, ...]:
    """Δ_l of a chain given as its weights, first layer first.

    >>> imbalances([torch.ones(2, 2), 2 * torch.ones(1, 2)], [torch.ones(2), None])
    (2.0,)
    """
    if len(weights) < 2:
        raise ValueError(f"a chain has at least two layers, got {len(weights)}")
    biases = [None] * len(weights) if biases is None else biases
    if len(biases) != len(weights):
        raise ValueError(f"got {len(weights)} weights and {len(biases)} biases: give None where a layer has none")
    square = [_square(w) for w in weights]
    return tuple(square[i + 1] - square[i] - _square(biases[i]) for i in range(len(weights) - 1))


def measure(model: nn.Module, batch: Any) -> ChainImbalance:
    """Pairs of ``model``, found by one forward pass of ``batch``, and their imbalance.

    >>> net = nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 1))
    >>> [(p.first, p.second) for p in measure(net, torch.zeros(4, 2)).pairs]
    [('0', '2')]
    """
    vital = Imbalance()
    observe(model, None, batch, vitals=[vital], mode="eval")
    if not vital.pairs:
        raise ValueError("no two linear or convolution layers of the model are joined by elementwise activations only")
    known = {
        f"{name}.{key}": value
        for name, module in model.named_modules()
        for key in ("weight", "bias")
        if isinstance(value := getattr(module, key, None), Tensor)
    }
    out = []
    for first, second in vital.pairs:
        terms = {name: (sign, _square(known[name])) for name, sign in delta_terms(first, second, known).items()}
        delta, size = sum(s * v for s, v in terms.values()), sum(v for _, v in terms.values())
        out.append(Pair(first, second, delta, delta / max(size, 1e-300)))
    return ChainImbalance(tuple(out))


def _square(t: Any) -> float:
    return float(t.detach().double().square().sum()) if isinstance(t, Tensor) else 0.0


class Imbalance(Vital):
    """``imbalance`` and ``relative`` of every pair, at site ``first→second``. Pairs are found as the model runs."""

    name = "imbalance"
    every = 10

    def __init__(self) -> None:
        self.pairs: list[tuple[str, str]] = []
        self._last: str | None = None  # the layer whose output, or an activation of it, is being handed on
        self._address = 0
        self._channels = 0
        self._activated = False
        self._signs: dict[tuple[Any, ...], tuple[list[str], Tensor]] = {}

    def linear(self, recorder: Recorder, view: LinearView) -> None:
        name, x = view.site.module, view.x
        channel = -1 if isinstance(view.module, nn.Linear) else 1
        if (
            self._last is not None
            and (self._last, name) not in self.pairs
            and (x.data_ptr() == self._address or (self._activated and x.shape[channel] % self._channels == 0))
        ):
            self.pairs.append((self._last, name))
        self._last, self._address, self._activated = name, view.y.data_ptr(), False
        self._channels = view.y.shape[channel]

    def activation(self, recorder: Recorder, view: ActivationView) -> None:
        # an activation that works in place is shown a copy of its input, and its output has the old address
        if self._address in (view.x.data_ptr(), view.a.data_ptr()):
            self._address, self._activated = view.a.data_ptr(), True
        else:
            self._last = None

    def tensor(self, recorder: Recorder, view: TensorView) -> None:
        if view.site.kind != "stream" or view.value.data_ptr() != self._address:
            self._last = None

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
        recorder.write([f"{first}→{second}" for first, second in self.pairs], METRICS, table)

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
