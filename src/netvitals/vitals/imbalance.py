r"""Imbalance between neighbouring layers: $\Delta_l = \|W_{l+1}\|_F^2 - \|W_l\|_F^2 - \|b_l\|^2$.

Gradient flow keeps it constant where the activation between the two layers is homogeneous (ReLU, linear), and moves it
slowly elsewhere; growth means that one layer takes over. :mod:`netvitals.saddle` has the pairs, the identity and the
account of one step, which :class:`StepAccounting` keeps while a model trains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import ClassVar

import torch

from netvitals._moved import moved
from netvitals.anatomy.atlas import Anatomy
from netvitals.anatomy.blocks.layers import Layer
from netvitals.capture import Metric, ParameterView, Recorder, Vital, WatchContext
from netvitals.saddle.measure.accounting import neighbours, pair_numbers

# what may lie between two layers besides an activation: it is linear and mixes no channels
_BETWEEN = ("pool", "dropout", "mean", "sum")
Pair = tuple[Layer, Layer]


class Imbalance(Vital):
    """``imbalance`` and ``relative`` of every pair, at site ``first→second``. The model's anatomy tells the pairs."""

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
        self._anatomy: Anatomy | None = None
        self._sites: list[str] = []
        self._skipped: dict[str, str] = {}
        self._names: list[str] = []
        self._signs = torch.empty(0)

    def parameters(self, recorder: Recorder, view: ParameterView) -> None:
        if view.anatomy is None:
            return
        if self._anatomy is not view.anatomy:
            self._anatomy = view.anatomy
            self._read(view)
        recorder.skipped.update(self._skipped)
        if not self._names:
            return
        norms = torch.stack(torch._foreach_norm([view.params[n] for n in self._names])).to(self._signs.dtype)
        squares = norms * norms
        delta = self._signs @ squares
        table = torch.stack([delta, delta / (self._signs.abs() @ squares)], dim=1)
        recorder.write(self._sites, tuple(self.metrics), table)

    def _read(self, view: ParameterView) -> None:
        assert view.anatomy is not None
        pairs, refused = _pairs_of(view.anatomy)
        self._skipped = {f"{place} (imbalance)": why for place, why in refused.items()}
        kept = [(a, b) for a, b in pairs if a.weight in view.params and b.weight in view.params]
        terms = [{b.weight: 1.0, a.weight: -1.0} | ({a.bias: -1.0} if a.bias in view.params else {}) for a, b in kept]
        self._sites = [f"{a.name}→{b.name}" for a, b in kept]
        self._names = list(dict.fromkeys(n for signs in terms for n in signs))
        if self._names:
            like = view.params[self._names[0]]
            dtype = torch.float32 if like.dtype in (torch.float16, torch.bfloat16) else like.dtype
            table = [[signs.get(n, 0.0) for n in self._names] for signs in terms]
            self._signs = torch.tensor(table, dtype=dtype, device=like.device)


def _pairs_of(anatomy: Anatomy) -> tuple[list[Pair], dict[str, str]]:
    """Pairs of layers of which the first feeds the second, and nothing else, through elementwise activations only.

    Args:
        anatomy: of a model.

    Returns:
        The pairs in the order of the pass, and first layer → why the law does not apply to it.
    """
    pairs: list[Pair] = []
    refused: dict[str, str] = {}
    by_name = {layer.name: layer for layer in anatomy.layers}
    bending = {i for r in anatomy.regions if r.kind == "activation" for i in r.operations}
    for first, connection in zip(anatomy.layers, anatomy.connections):
        if first.role == "embedding" or not connection.readers or connection.blocked:
            continue  # other layers, the stream or the output see it as well: there is no pair to speak of
        readers = [by_name[name] for name in connection.readers if name in by_name]
        if len(readers) != 1:
            continue
        second = readers[0]
        why = _why_not(first, second) or _in_between(anatomy, first, second, bending)
        if why:
            refused[f"{first.name}→{second.name}"] = why
        else:
            pairs.append((first, second))
    return pairs, refused


def _why_not(first: Layer, second: Layer) -> str:
    for layer in (first, second):
        if layer.calls > 1:
            return f"the weight of {layer.name} is used {layer.calls} times, so that no law holds for one pair"
        if layer.frozen:
            return f"{layer.name} is frozen, so that its part of the balance cannot move"
        if layer.reparametrised:
            return f"the weight of {layer.name} is computed from other parameters"
    return ""


def _in_between(anatomy: Anatomy, first: Layer, second: Layer, bending: Set[int]) -> str:
    """What lies between two layers and takes part in the balance; empty where nothing does."""
    todo, seen = [second.input], set()
    while todo:
        value = todo.pop()
        made = anatomy.values[value].producer
        if value == first.output or made < 0 or made in seen:
            continue
        seen.add(made)
        op = anatomy.operations[made]
        if not op.inputs:
            continue  # a constant
        known = op.kind in ("view", "random") or op.name in ("clone", "detach", "_to_copy", "_unsafe_view", "alias")
        dropped = op.name.rstrip("_") in ("mul", "div") and any(_is_noise(anatomy, i) for i in op.inputs)
        if not (known or dropped or made in bending or any(word in op.name for word in _BETWEEN)):
            return f"{op.name} lies between"
        todo += op.inputs
    return ""


def _is_noise(anatomy: Anatomy, value: int) -> bool:
    for _ in range(4):
        op = anatomy.producers(value)
        if op is None or not op.inputs:
            return op is not None and op.kind == "random"
        if op.kind == "random":
            return True
        value = op.inputs[0]
    return False


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
