r"""Hessian-vector products by tangents through the graph, with the Gauss–Newton and tensor part kept apart.

Forward: $\dot f_v=\sum_pD_{vp}\dot f_p+D_vr_v+e_v$. Backward, from $\dot\delta=\nabla^2\ell\,\dot f$ at the loss:
$\dot\delta_v=\sum_{u\in Ch(v)}[D_{uv}^\top\dot\delta_u+\sum_p(\delta_u\cdot T_{u;v,p})\dot f_p+B_{u,v}^\top r_u]$.
The printed Eq. 6 and App. I omit the injections $e_v$ and the mixed terms (erratum E27).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from netvitals.curvature.dag.evaluation import DagEvaluation
from netvitals.curvature.dag.graph import LOSS


@dataclass(frozen=True)
class DagProducts:
    """H r split in two; ``nodes`` by node (activation rows), ``parameters`` by node copy (parameter rows).

    Returned by :func:`product`.

    Attributes:
        nodes: H r by node.
        nodes_gn: its Gauss–Newton part.
        parameters: H r by node copy.
        parameters_gn: its Gauss–Newton part.
    """

    nodes: dict[str, Tensor]
    nodes_gn: dict[str, Tensor]
    parameters: dict[str, Tensor]
    parameters_gn: dict[str, Tensor]

    def tensor(self, v: str) -> Tensor:
        """What Gauss–Newton leaves out of the product at node ``v``."""
        return self.nodes[v] - self.nodes_gn[v]


def product(
    e: DagEvaluation, r: Mapping[str, Tensor] | None = None, injections: Mapping[str, Tensor] | None = None
) -> DagProducts:
    """H times a direction, by one forward and one backward sweep over the graph, whatever the number of blocks.

    Args:
        e: the graph at a batch.
        r: by node copy, the direction in its parameters (p_v,); None is zero.
        injections: by node, the direction in its output (d_v,); None is zero.

    Returns:
        The product by node and by node copy, and its Gauss–Newton part; batch averages.

    >>> from netvitals.curvature.dag import DagEvaluation
    >>> from netvitals.curvature.dag.graph import chain
    >>> graph = chain([lambda f, t: f.tanh(), lambda f, t: 2 * f], loss=lambda f, y: (f - y).square().sum())
    >>> e = DagEvaluation(graph, torch.zeros(1, 3), torch.ones(1, 3))
    >>> product(e, injections={"out": torch.ones(3)}).nodes["0"].tolist()
    [4.0, 4.0, 4.0]
    """
    r, injections = dict(r or {}), dict(injections or {})
    top = e.graph.with_loss
    tangent: dict[str, Tensor] = {}
    for v in e.graph.topology.order:
        t = torch.zeros_like(e.values[v])
        for p in e.graph.topology.parents[v]:
            t = t + torch.einsum("buv,bv->bu", e.edge(v, p), tangent[p])
        if v in r:
            t = t + e.parameter_edge(v) @ r[v]
        if v in injections:
            t = t + injections[v]
        tangent[v] = t
    full: dict[str, Tensor] = {}
    gn: dict[str, Tensor] = {}
    for v in reversed(e.graph.topology.order):
        a, b = torch.zeros_like(e.values[v]), torch.zeros_like(e.values[v])
        for u in top.children[v]:
            bend = sum(
                (torch.einsum("bvp,bp->bv", e.contracted(u, v, p), tangent[p]) for p in top.parents[u]),
                torch.zeros_like(a),
            )
            if u == LOSS:
                a, b = a + bend, b + bend
                continue
            back = e.edge(u, v).mT
            a = a + torch.einsum("bvu,bu->bv", back, full[u]) + bend
            b = b + torch.einsum("bvu,bu->bv", back, gn[u])
            if u in r:
                a = a + torch.einsum("bkv,k->bv", e.contracted_parameter(u, v), r[u])
        full[v], gn[v] = a, b
    rows, rows_gn = {}, {}
    for v in e.graph.topology.order:
        if e.graph.by_name[v].theta is None:
            continue
        d = e.parameter_edge(v)
        rows_gn[v] = torch.einsum("bvk,bv->bk", d, gn[v]).mean(0)
        total = torch.einsum("bvk,bv->bk", d, full[v])
        if v in r:
            total = total + e.contracted_pure(v) @ r[v]
        for p in e.graph.topology.parents[v]:
            total = total + torch.einsum("bkp,bp->bk", e.contracted_parameter(v, p), tangent[p])
        rows[v] = total.mean(0)
    mean = lambda table: {k: t.mean(0) for k, t in table.items()}
    return DagProducts(mean(full), mean(gn), rows, rows_gn)
