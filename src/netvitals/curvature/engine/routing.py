"""One product of every block of a column, edge by edge, on a model that is cut at its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from netvitals.curvature.engine.cut import CutModel, Vector, zeros

LOSS = "loss"


@dataclass(frozen=True)
class Routed:
    """What a tangent at one node brings to every node, by example.

    Attributes:
        gauss_newton: node → Gauss–Newton part of its block times the tangent.
        tensor: node → tensor part.
        edges: (v, via) → what came over the edge: Gauss–Newton, tensor part carried, tensor part that arose at via.
        weights: node → what the tangents of its parents change in the gradient of its own weights.
    """

    gauss_newton: dict[str, Vector]
    tensor: dict[str, Vector]
    edges: dict[tuple[str, str], tuple[Vector, Vector, Vector]]
    weights: dict[str, Vector]

    def vectors(self) -> Iterator[tuple[Any, Vector]]:
        """All parts by a key that says what they are."""
        for (v, via), parts in self.edges.items():
            for name, h in zip(("GN", "carried", "added"), parts):
                yield ("edge", v, via, name), h
        for v, gn in self.gauss_newton.items():
            t = self.tensor[v]
            yield ("block", v, "H"), added(gn, t)
            yield ("block", v, "GN"), gn
            yield ("block", v, "T"), t


def routed(cut: CutModel, w: str, z: Vector) -> Routed:
    """Every block with w times z, from the loss backwards."""
    tangents, bends, weights = {w: z}, {}, {}
    for u in cut.order[cut.order.index(w) + 1 :]:
        known = {p: tangents[p] for p in cut.parents[u] if p in tangents}
        if known:
            tangents[u], bends[u], weights[u] = cut.push(u, known)
    gn, t = ({v: zeros(cut.leaves[v]) for v in cut.order} for _ in range(2))
    gn |= cut.curved({s: tangents[s] for s in cut.sinks if s in tangents})
    edges = {(s, LOSS): (gn[s], zeros(gn[s]), zeros(gn[s])) for s in cut.sinks}
    for u in reversed(cut.order):
        carried = cut.carry(u, gn[u]), cut.carry(u, t[u])
        for v in cut.parents[u]:
            bend = bends[u][v] if u in bends else zeros(cut.leaves[v])
            edges[v, u] = carried[0][v], carried[1][v], bend
            gn[v] = added(gn[v], carried[0][v])
            t[v] = added(t[v], added(carried[1][v], bend))
    return Routed(gn, t, edges, weights)


def added(a: Vector, b: Vector) -> Vector:
    """a + b."""
    return [x + y for x, y in zip(a, b)]
