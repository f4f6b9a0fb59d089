r"""Where a block comes from: contributions of pairs of paths, and the route curvature takes edge by edge.

$H_{v,w}=\sum_u\sum_{p,q\in Pa(u)}\sum_{\pi:v\to p,\rho:w\to q}D_\pi^\top(\delta_u\cdot T_{u;p,q})D_\rho$; u = loss
gives the Gauss–Newton part. (The printed Theorem 33, with $H_{c,c}$ at every common descendant, over-counts; E16.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from netvitals.curvature.dag.evaluation import DagEvaluation
from netvitals.curvature.dag.graph import LOSS
from netvitals.curvature.dag.hessian_blocks import block


@dataclass(frozen=True)
class PathTerm:
    """One pair of paths that meet at ``meeting``: GN if they meet at the loss, T otherwise.

    Returned by :func:`path_terms`.

    Attributes:
        from_v: names along the path from v.
        from_w: names along the path from w.
        meeting: where they meet.
        kind: ``GN`` or ``T``.
        term: (d_v, d_w), batch average.
    """

    from_v: tuple[str, ...]
    from_w: tuple[str, ...]
    meeting: str
    kind: str
    term: Tensor

    @property
    def resonance(self) -> float:
        return float(self.term.norm())

    def __str__(self) -> str:
        return (
            f"{self.kind}: {'→'.join(self.from_v)} and {'→'.join(self.from_w)} meet at {self.meeting}, "
            f"{self.resonance:.3g}"
        )


@dataclass(frozen=True)
class DagRoute:
    """What one step of the recursion added to H_{v,w}: over an edge v→u (GN and T carried) or bent at node u.

    Returned by :func:`routing`.

    Attributes:
        v: node of the rows.
        w: node of the columns.
        via: the child over which it came, or where it bent.
        gauss_newton: norm of what was carried.
        tensor_carried: norm of the tensor part that was carried.
        tensor_added: norm of the tensor part that arose here.
    """

    v: str
    w: str
    via: str
    gauss_newton: float
    tensor_carried: float
    tensor_added: float


def path_jacobian(e: DagEvaluation, path: Sequence[str]) -> Tensor:
    r"""$D_\pi=D_{u_k,u_{k-1}}\cdots D_{u_1,u_0}$, later factors on the left (errata E1, E2).

    Args:
        e: the graph at a batch.
        path: names of nodes from the first to the last, each a parent of the next.

    Returns:
        The product of the edges by sample, (B, d_k, d_0); the identity for a path of one node.

    >>> from netvitals.curvature.dag import DagEvaluation
    >>> from netvitals.curvature.dag.graph import chain
    >>> graph = chain([lambda f, t: f.tanh(), lambda f, t: 2 * f], loss=lambda f, y: (f - y).square().sum())
    >>> e = DagEvaluation(graph, torch.zeros(1, 3), torch.ones(1, 3))
    >>> path_jacobian(e, ["0", "out"])[0].diag().tolist()
    [2.0, 2.0, 2.0]
    """
    out = e.total(path[0], path[0])
    for a, b in pairwise(path):
        out = e.edge(b, a) @ out
    return out


def path_terms(e: DagEvaluation, v: str, w: str, limit: int = 10_000) -> tuple[list[PathTerm], float]:
    """What every pair of paths from v and w contributes to their block.

    Args:
        e: the graph at a batch.
        v: where the left path starts.
        w: where the right path starts.
        limit: stop after this many pairs.

    Returns:
        The terms, largest first, and the Frobenius norm of what they miss of the exact block.

    >>> from netvitals.curvature.dag import DagEvaluation
    >>> from netvitals.curvature.dag.graph import chain
    >>> graph = chain([lambda f, t: f.tanh(), lambda f, t: 2 * f], loss=lambda f, y: (f - y).square().sum())
    >>> e = DagEvaluation(graph, torch.zeros(1, 3), torch.ones(1, 3))
    >>> terms, missed = path_terms(e, "0", "0")
    >>> terms[0].kind, terms[0].from_v, round(missed, 6)
    ('GN', ('0', 'out'), 0.0)
    """
    top = e.graph.with_loss
    terms: list[PathTerm] = []
    for u in (*e.graph.topology.order, LOSS):
        for p in top.parents[u]:
            for q in top.parents[u]:
                for a in _to(e, v, p, limit):
                    left = path_jacobian(e, a).mT @ e.contracted(u, p, q)
                    for b in _to(e, w, q, limit):
                        if len(terms) >= limit:
                            break
                        term = (left @ path_jacobian(e, b)).mean(0)
                        terms.append(PathTerm(a, b, u, kind="GN" if u == LOSS else "T", term=term))
    exact = block(e, v, w).H
    missed = exact - (torch.stack([t.term for t in terms]).sum(0) if terms else 0)
    return sorted(terms, key=lambda t: -t.resonance), float(missed.norm())


def path_resonance(e: DagEvaluation, from_v: Sequence[str], from_w: Sequence[str]) -> float:
    """Norm of the Gauss–Newton contribution of two paths that end at nodes the loss sees.

    Args:
        e: the graph at a batch.
        from_v: names along the path from v.
        from_w: names along the path from w.

    Returns:
        The Frobenius norm of the batch average.

    >>> from netvitals.curvature.dag import DagEvaluation
    >>> from netvitals.curvature.dag.graph import chain
    >>> graph = chain([lambda f, t: f.tanh(), lambda f, t: 2 * f], loss=lambda f, y: (f - y).square().sum())
    >>> e = DagEvaluation(graph, torch.zeros(1, 3), torch.ones(1, 3))
    >>> round(path_resonance(e, ["0", "out"], ["0", "out"]), 3) == round(8 * 3**0.5, 3)
    True
    """
    curved = e.contracted(LOSS, from_v[-1], from_w[-1])
    return float((path_jacobian(e, from_v).mT @ curved @ path_jacobian(e, from_w)).mean(0).norm())


def routing(e: DagEvaluation, w: str) -> list[DagRoute]:
    """How H_{v,w} is built for every v, from the loss backwards: the picture of curvature routing.

    Args:
        e: the graph at a batch.
        w: the node of the columns, held fixed.

    Returns:
        One entry for every v and each of its children, with Frobenius norms of what came that way.

    >>> from netvitals.curvature.dag import DagEvaluation
    >>> from netvitals.curvature.dag.graph import chain
    >>> graph = chain([lambda f, t: f.tanh(), lambda f, t: 2 * f], loss=lambda f, y: (f - y).square().sum())
    >>> e = DagEvaluation(graph, torch.zeros(1, 3), torch.ones(1, 3))
    >>> [(r.v, r.via) for r in routing(e, "out")]
    [('out', 'loss'), ('0', 'out')]
    """
    top = e.graph.with_loss
    out = []
    for v in reversed(e.graph.topology.order):
        for u in top.children[v]:
            bend = torch.zeros(())
            for p in top.parents[u]:
                if p == w or p in top.descendants[w]:
                    bend = bend + (e.contracted(u, v, p) @ e.total(p, w)).mean(0)
            if u == LOSS:
                out.append(DagRoute(v, w, via=u, gauss_newton=float(bend.norm()), tensor_carried=0.0, tensor_added=0.0))
                continue
            below = block(e, u, w, "onesided", "per_sample")
            carried = e.edge(u, v).mT
            out.append(
                DagRoute(
                    v,
                    w,
                    via=u,
                    gauss_newton=float((carried @ below.GN).mean(0).norm()),
                    tensor_carried=float((carried @ below.T).mean(0).norm()),
                    tensor_added=float(bend.norm()),
                )
            )
    return out


def _to(e: DagEvaluation, v: str, p: str, limit: int) -> list[tuple[str, ...]]:
    top = e.graph.topology
    return list(top.paths(v, p, limit)) if p == v or p in top.descendants[v] else []
