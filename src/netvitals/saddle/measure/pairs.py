r"""Pairs of neighbouring layers, and their imbalance $\Delta_l = \|W_{l+1}\|_F^2 - \|W_l\|_F^2 - \|b_l\|^2$.

A pair is two linear or convolution layers, one fed by the other through elementwise activations only (dropout and
pooling may lie between, a norm may not). What the identity says about the change of Δ is in
:mod:`netvitals.saddle.measure.identity`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from netvitals.capture import ActivationView, LinearView, Recorder, Result, TensorView, Vital, observe, undisturbed
from netvitals.saddle.measure.identity import delta_terms


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
class ChainImbalance(Result):
    """All pairs that were found in a model, in the order of the forward pass."""

    pairs: tuple[Pair, ...]

    @property
    def delta(self) -> tuple[float, ...]:
        return tuple(p.delta for p in self.pairs)

    def __str__(self) -> str:
        return "\n".join(map(str, self.pairs))


def imbalances(weights: Sequence[Tensor], biases: Sequence[Tensor | None] | None = None) -> tuple[float, ...]:
    """Δ_l of a chain given as its weights, first layer first.

    >>> import torch
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


@undisturbed
def chain_imbalance(model: nn.Module, batch: Any) -> ChainImbalance:
    """Pairs of ``model``, found by one forward pass of ``batch``, and their imbalance.

    Args:
        model: left as it was; it is run in evaluation mode.
        batch: whatever a loader yields: ``x``, ``(x, y)``, several inputs and a target, a dict.

    Returns:
        Every pair of layers with its imbalance Δ, absolute and as a share of the sizes it is made of.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 1))
    >>> [(p.first, p.second) for p in chain_imbalance(net, torch.zeros(4, 2)).pairs]
    [('0', '2')]
    """
    finder = PairFinder()
    observe(model, None, batch, vitals=[finder], mode="eval")
    if not finder.pairs:
        raise ValueError("no two linear or convolution layers of the model are joined by elementwise activations only")
    known = {
        f"{name}.{key}": value
        for name, module in model.named_modules()
        for key in ("weight", "bias")
        if isinstance(value := getattr(module, key, None), Tensor)
    }
    out = []
    for first, second in finder.pairs:
        terms = {name: (sign, _square(known[name])) for name, sign in delta_terms(first, second, known).items()}
        delta, size = sum(s * v for s, v in terms.values()), sum(v for _, v in terms.values())
        out.append(Pair(first, second, delta, delta / max(size, 1e-300)))
    return ChainImbalance(tuple(out))


def _square(t: Any) -> float:
    return float(t.detach().double().square().sum()) if isinstance(t, Tensor) else 0.0


class PairFinder(Vital):
    """Finds the pairs as the model runs, in the order of the forward pass; it writes no reading of its own."""

    name = "pairs"

    def __init__(self) -> None:
        self.pairs: list[tuple[str, str]] = []
        self._last: str | None = None  # the layer whose output, or an activation of it, is being handed on
        self._address = 0
        self._channels = 0
        self._activated = False

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
