r"""Rates of a network that was read from its anatomy: cheapest paths, with norms as shortcuts.

Backwards a dead gradient pays one power of t for every weight it crosses and takes the cheapest way (Theorem 43). A
LayerNorm hands it a live gradient of order one (the reset of erratum E8), an RMSNorm one of the order of the dead
amplitude itself: both are other ways out, and the cheapest wins. Exponents of moments are twice those of amplitudes.
"""

from __future__ import annotations

import math

from netvitals.singular.laws.prediction import Rates
from netvitals.singular.networks.graph import RateGraph, Step

_CLOSED = "behind a LayerNorm on ReLU outputs the dead channel of {} is closed for every example: zero, not a rate"
_SHIFTED = "{} is not zero at zero: the dead channel is never empty, and A has no rate behind it"
_NORMED = "behind a LayerNorm the dead channel holds the mean of the others: A has no rate there"


def network_rates(graph: RateGraph) -> Rates:
    """Exponents of every layer of a network with one dead channel on each axis, its own biases zero.

    >>> import torch
    >>> from torch import nn
    >>> from netvitals.singular.networks.graph import rate_graph
    >>> net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 2))
    >>> network_rates(rate_graph(net, torch.ones(5, 3))).G
    {'0': 0, '2': 2, '4': 0}
    """
    amplitude, notes = _forward(graph)
    closed = _closed(graph)
    cost = _backward(graph, amplitude)
    g: dict[str, float | None] = {}
    a: dict[str, float | None] = {}
    for step in graph.weights:
        g[step.name] = None if step.name in closed else 2 * cost[step.output]
        before = amplitude[step.inputs[0]]
        a[step.name] = None if before is None else 2 * before
    notes += [_CLOSED.format(name) for name in closed]
    norms = {s.norm for s in graph.steps if s.kind == "norm"}
    ways = [f"{'LayerNorm' if kind == 'layer' else 'RMSNorm'} as a way out" for kind in sorted(norms)]
    law = "shortest weighted path" + "".join(f", {way}" for way in ways)
    return Rates(G=g, A=a, stream=(amplitude[graph.output],), law=law, notes=tuple(dict.fromkeys(notes)))


def _forward(graph: RateGraph) -> tuple[dict[int, float | None], list[str]]:
    """Order of the dead amplitude of every value; None where it does not vanish as a power of t."""
    found: dict[int, float | None] = dict.fromkeys(graph.inputs, 0)
    notes = []
    for step in graph.steps:
        orders = [found[v] for v in step.inputs]
        order: float | None = None if None in orders else min(v for v in orders if v is not None)
        if step.kind == "layer" and order is not None:
            order += 1
        elif step.kind == "activation" and step.at_zero != 0:
            order = None
            notes.append(_SHIFTED.format(step.name))
        elif step.norm == "layer":
            order = None
            notes.append(_NORMED)
        found[step.output] = order
    return found, notes


def _backward(graph: RateGraph, amplitude: dict[int, float | None]) -> dict[int, float]:
    """Powers of t that the dead gradient has lost at every value."""
    cost: dict[int, float] = {graph.output: 0}

    def offer(value: int, price: float) -> None:
        cost[value] = min(cost.get(value, math.inf), price)

    homogeneous = all(s.homogeneous for s in graph.steps if s.kind in ("layer", "activation"))
    above: set[int] = set()  # values with a norm between them and the output
    for step in reversed(graph.steps):
        here = cost[step.output]
        for value in step.inputs:
            if step.kind == "layer":
                offer(value, here + 1)
            elif step.norm == "layer":
                offer(value, 0)
            elif step.norm == "rms":
                # the detour goes along x itself, which a later norm does not see in a homogeneous net
                shut = homogeneous and step.output in above
                offer(value, min(here, math.inf if shut else amplitude[value] or 0))
            else:
                offer(value, here)
            if step.kind == "norm" or step.output in above:
                above.add(value)
    return cost


def _closed(graph: RateGraph) -> list[str]:
    """Layers whose dead channel an activation shuts for every example.

    Outputs of a ReLU have a positive mean, LayerNorm takes it away, and what is left of a dead channel is negative.
    """
    positive: set[int] = set()
    negative: set[int] = set()
    writers = {s.output: s for s in graph.weights}
    found = []
    for step in graph.steps:
        (value, *more) = step.inputs
        if step.kind == "norm":
            if (value in positive and step.norm == "layer") or value in negative:
                negative.add(step.output)
        elif step.kind == "layer":
            if value in negative:
                negative.add(step.output)
        elif step.kind == "activation":
            if _one_sided(step):
                positive.add(step.output)
                if value in negative:
                    found += [writers[value].name] if value in writers else []
                    negative.add(step.output)  # zero from here on, and shut by the next ReLU as well
            elif value in negative:
                negative.add(step.output)
        elif all(v in negative for v in (value, *more)):
            negative.add(step.output)
    return found


def _one_sided(step: Step) -> bool:
    left, right = step.slopes
    return left == 0 and right > 0 and step.at_zero == 0
