r"""Rates of a network that was read from its anatomy: cheapest paths, with norms as shortcuts.

Backwards a dead gradient pays one power of t for every weight it crosses and takes the cheapest way (Theorem 43). A
LayerNorm hands it a live gradient of order one (the reset of erratum E8), an RMSNorm one of the order of the dead
amplitude itself: both are other ways out, and the cheapest wins. A product multiplies with the order of its other side,
and the scores of attention with that of the keys (Theorem 67, erratum E1). Forwards a LayerNorm fills the dead channel
with the mean of the others, order zero, and every weight adds one again. Exponents of moments are twice those of
amplitudes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from netvitals.singular.laws.prediction import Rates
from netvitals.singular.networks.graph import RateGraph, Step

_CLOSED = "behind a LayerNorm on ReLU outputs the dead channel of {} is closed for every example: zero, not a rate"


@dataclass(frozen=True)
class Way:
    """An order in t, and what sets it."""

    order: float
    why: str


def network_rates(graph: RateGraph) -> Rates:
    """Exponents of every layer of a network with one dead channel on each axis, its own biases zero.

    >>> import torch
    >>> from torch import nn
    >>> from netvitals.singular.networks.graph import rate_graph
    >>> net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 2))
    >>> rates = network_rates(rate_graph(net, torch.ones(5, 3)))
    >>> rates.G, rates.A
    ({'0': 0, '2': 2, '4': 0}, {'0': 0, '2': 0, '4': 2})
    """
    closed = _closed(graph)
    forward = _forward(graph, closed)
    backward = _backward(graph, forward)
    g: dict[str, float | None] = {}
    a: dict[str, float | None] = {}
    why: dict[tuple[str, str], str] = {}
    for step in graph.weights:  # a weight that is used twice sums its moments: the lowest exponent stays
        up = None if step.output in closed else backward[step.output]
        for rates, factor, way in ((g, "G", up), (a, "A", forward[step.inputs[0]])):
            before = rates.setdefault(step.label, None)
            if way is not None and (before is None or 2 * way.order < before):
                rates[step.label], why[step.label, factor] = 2 * way.order, way.why
    notes = [_CLOSED.format(step.label) for step in graph.weights if step.output in closed]
    norms = {s.norm for s in graph.steps if s.kind == "norm"} - {"channel"}
    ways = [f"{'LayerNorm' if kind == 'layer' else 'RMSNorm'} as a way out" for kind in sorted(norms)]
    law = "shortest weighted path" + "".join(f", {way}" for way in ways)
    end = forward[graph.output]
    return Rates(
        G=g,
        A=a,
        stream=(None if end is None else end.order,),
        law=law,
        notes=tuple(dict.fromkeys(notes)),
        why=why,
    )


def _forward(graph: RateGraph, closed: set[int]) -> dict[int, Way | None]:
    """Order of the dead amplitude of every value; None where it is zero for every example."""
    found: dict[int, Way | None] = {
        v: Way(order, "an embedding tied to a weight" if order else "the input") for v, order in graph.inputs.items()
    }
    for step in graph.steps:
        ways = [found[v] for v in step.inputs]
        if step.kind == "attention":
            ways = ways[2:]
        open_ways = [w for w in ways if w is not None]
        best = min(open_ways, key=lambda w: w.order, default=None)
        if step.kind == "layer":
            best = None if best is None else Way(best.order + 1, _one_more(best.why))
        elif step.kind == "product":
            orders = sum(w.order for w in open_ways)
            best = Way(orders, f"the product {step.name}") if len(open_ways) == len(ways) else None
        elif step.at_zero != 0:
            best = Way(0, f"{step.name}, which is not zero at zero")
        elif step.norm == "layer":
            best = Way(0, f"the mean of the others, from {step.name}")
        elif step.kind == "activation" and step.inputs[0] in closed:
            best = None
        found[step.output] = best
    return found


def _one_more(why: str) -> str:
    """One weight more between a value and what sets its order."""
    head, _, rest = why.partition(" weights from ") if " weights from " in why else why.partition(" weight from ")
    return f"{int(head) + 1} weights from {rest}" if rest and head.isdigit() else f"1 weight from {why}"


def _backward(graph: RateGraph, forward: dict[int, Way | None]) -> dict[int, Way]:
    """Powers of t that the dead gradient has lost at every value, by its cheapest way."""
    cost: dict[int, Way] = {graph.output: Way(0, "the output")}

    def offer(value: int, price: float, why: str) -> None:
        if value not in cost or price < cost[value].order:
            cost[value] = Way(price, why)

    order: Callable[[int], float] = lambda v: math.inf if (way := forward[v]) is None else way.order
    homogeneous = all(s.homogeneous for s in graph.steps if s.kind in ("layer", "activation"))
    above: set[int] = set()  # values with a norm between them and the output
    for step in sorted(graph.steps, key=_depth(graph), reverse=True):
        here = cost[step.output]
        for at, value in enumerate(step.inputs):
            if step.kind == "layer":
                offer(value, here.order + 1, _one_more(here.why))
            elif step.kind == "product":
                others = sum(order(v) for k, v in enumerate(step.inputs) if k != at)
                offer(value, here.order + others, f"the other side of {step.name}, then {here.why}")
            elif step.kind == "attention" and at < 2:
                # the scores get a live gradient; a query's dead channel is multiplied with the keys' own
                price = 0 if step.mixed else order(step.inputs[1 - at])
                offer(value, price, f"the scores of {step.name}" + (", mixed by positions" if step.mixed else ""))
            elif step.norm == "layer":
                offer(value, 0, f"the live gradient of {step.name}")
            elif step.norm == "rms":
                # the detour goes along x itself, which a later norm does not see in a homogeneous net
                shut = homogeneous and step.output in above
                detour = math.inf if shut else order(value)
                if detour < here.order:
                    offer(value, detour, f"the length of the input of {step.name}")
                else:
                    offer(value, here.order, here.why)
            else:
                offer(value, here.order, here.why)
            if (step.kind == "norm" and step.norm != "channel") or step.output in above:
                above.add(value)
    return cost


def _depth(graph: RateGraph) -> Callable[[Step], int]:
    """The number of steps from an input at most: what reads a value is deeper than what makes it."""
    depth: dict[int, int] = {}
    for step in graph.steps:
        depth[step.output] = 1 + max((depth.get(v, 0) for v in step.inputs), default=0)
    return lambda step: depth[step.output]


def _closed(graph: RateGraph) -> set[int]:
    """Outputs of layers whose dead channel an activation shuts for every example, and of what follows.

    Outputs of a ReLU have a positive mean, LayerNorm takes it away, and what is left of a dead channel is negative.
    """
    positive: set[int] = set()
    negative: set[int] = set()
    found: set[int] = set()
    for step in graph.steps:
        (value, *more) = step.inputs
        if step.kind in ("product", "attention") or (step.kind == "sum" and step.at_zero):
            continue
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
                    found.add(value)
                    negative.add(step.output)  # zero from here on, and shut by the next ReLU as well
            elif value in negative:
                negative.add(step.output)
        elif all(v in negative for v in (value, *more)):
            negative.add(step.output)
    return found


def _one_sided(step: Step) -> bool:
    left, right = step.slopes
    return left == 0 and right > 0 and step.at_zero == 0
