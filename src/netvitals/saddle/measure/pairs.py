r"""Pairs of neighbouring layers, and their imbalance $\Delta_l = \|W_{l+1}\|_F^2 - \|W_l\|_F^2 - \|b_l\|^2$.

A pair is two linear or convolution layers, one fed by the other through elementwise activations only (dropout and
pooling may lie between, a norm may not). What the identity says about the change of Δ is in
:mod:`netvitals.saddle.measure.identity`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from torch import nn

from netvitals.anatomy import Anatomy, Layer, Operation, chart, find_links
from netvitals.capture import Result, in_mode, inputs_of, preserved, undisturbed

K = TypeVar("K")
V = TypeVar("V")

# what may lie between two layers besides an activation: it is linear and mixes no channels
_BETWEEN = ("pool", "dropout", "mean", "sum")


@dataclass(frozen=True)
class LayerPair:
    """Imbalance of two neighbouring layers."""

    first: str
    second: str
    delta: float  # ‖W_second‖² − ‖W_first‖² − ‖b_first‖²
    relative: float  # delta over the sum of the three terms, in [−1, 1]

    def __str__(self) -> str:
        return f"{self.first} → {self.second}: {self.delta:+.6g} ({self.relative:+.1%})"


@dataclass(frozen=True)
class ChainImbalance(Result):
    """All pairs that were found in a model, in the order of the forward pass.

    Returned by :func:`chain_imbalance`.

    Attributes:
        pairs: two layers that follow each other, with their Δ.
    """

    pairs: tuple[LayerPair, ...]

    @property
    def delta(self) -> tuple[float, ...]:
        return tuple(p.delta for p in self.pairs)

    def __str__(self) -> str:
        return "\n".join(map(str, self.pairs))


@undisturbed
def chain_imbalance(model: nn.Module, batch: Any) -> ChainImbalance:
    """Find connected pairs of layers with one forward pass of ``batch``, and measure their imbalance.

    Args:
        model: any model; it is run in evaluation mode and not changed.
        batch: one batch as a data loader yields it: ``x``, ``(x, y)``, several inputs and a target, a dict.

    Returns:
        Every pair of layers with its imbalance Δ, absolute and as a share of the sizes it is made of.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 1))
    >>> [(p.first, p.second) for p in chain_imbalance(net, torch.zeros(4, 2)).pairs]
    [('0', '2')]
    """
    task = inputs_of(model, batch)
    with preserved(model), in_mode(model, "eval"):
        pairs, _ = layer_pairs(chart(model, task.inputs, keep_tensors=False), frozen=True)
    if not pairs:
        raise ValueError(
            "the model has no two linear or convolution layers that are connected only by elementwise activations"
        )
    known = dict(model.named_parameters(remove_duplicate=False))
    out = []
    for first, second in pairs:
        terms = pair_terms(first, second)
        square = lambda name: float(known[name].detach().double().square().sum())
        delta, size = imbalance_of(terms, square), sum(square(name) for name in terms)
        out.append(LayerPair(first=first.name, second=second.name, delta=delta, relative=delta / max(size, 1e-300)))
    return ChainImbalance(tuple(out))


def layer_pairs(anatomy: Anatomy, *, frozen: bool = False) -> tuple[list[tuple[Layer, Layer]], dict[str, str]]:
    """Pairs of layers of which the first feeds the second, and nothing else, through elementwise activations only."""
    pairs: list[tuple[Layer, Layer]] = []
    refused: dict[str, str] = {}
    by_name = {layer.name: layer for layer in anatomy.layers}
    bending = {i for r in anatomy.regions if r.kind == "activation" for i in r.operations}
    links = find_links(anatomy)
    for connection in anatomy.connections:
        first = by_name[connection.writer]
        if first.role == "embedding" or connection.blocked or len(connection.readers) != 1:
            continue  # other layers, the stream or the output see it as well: there is no pair to speak of
        second = by_name[connection.readers[0]]
        still = [layer.name for layer in (first, second) if layer.frozen and not frozen]
        why = f"{still[0]} is frozen, so its part of the imbalance cannot change" if still else ""
        why = links.skipped.get(first.name, "") or why or _in_between(anatomy, first, second, bending)
        if why:
            refused[f"{first.name}→{second.name}"] = why
        else:
            pairs.append((first, second))
    return pairs, refused


def pair_terms(first: Layer, second: Layer) -> dict[str, float]:
    """The terms of Δ of two layers of an anatomy."""
    return balance_terms(second.weight, first.weight, first.bias)


def balance_terms(after: str, before: str, bias: str = "") -> dict[str, float]:
    r"""$\Delta=\lVert W_B\rVert^2-\lVert W_A\rVert^2-\lVert b_A\rVert^2$ as a sign for each parameter in it.

    >>> balance_terms("b.weight", "a.weight", "a.bias")
    {'b.weight': 1.0, 'a.weight': -1.0, 'a.bias': -1.0}
    """
    signs: dict[str, float] = {}
    for name, sign in ((after, 1.0), (before, -1.0), (bias, -1.0)):
        if name:
            signs[name] = signs.get(name, 0.0) + sign  # a tied weight is on both sides
    return signs


def imbalance_of(terms: Mapping[K, float], square: Callable[[K], V]) -> V:
    """Δ: squared norms by their signs. Every Δ of this package, and every change of one, is added up here.

    >>> imbalance_of({"b.weight": 1.0, "a.weight": -1.0}, {"a.weight": 3.0, "b.weight": 4.0}.__getitem__)
    1.0
    """
    total: Any = sum(sign * cast(Any, square(name)) for name, sign in terms.items())
    return total


def _called(op: Operation, anatomy: Anatomy) -> str:
    """An operation as its author knows it: the module of torch's that runs it, or the function."""
    kind = anatomy.modules.get(op.module, "")
    return f"{kind} {op.module}" if kind and op.module and hasattr(nn, kind) else op.name


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
        signal = [i for i in op.inputs if i not in anatomy.noise]
        known = op.kind in ("view", "random") or op.name in ("clone", "detach", "_to_copy", "_unsafe_view", "alias")
        dropped = op.name.rstrip("_") in ("mul", "div") and len(signal) < len(op.inputs)
        if not (known or dropped or made in bending or any(word in op.name for word in _BETWEEN)):
            return f"{_called(op, anatomy)} lies between"
        todo += signal
    return ""
