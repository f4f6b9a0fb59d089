r"""The paper's inequalities as functions: what the statement compares, whether it holds, and by how much.

Where the printed form is wrong, the corrected one is the default and ``form="printed"`` gives the other. Statements
about single networks are evaluated per sample on a ``DagEvaluation``; the reported pair is the tightest of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from netvitals.curvature.advice.lowrank import truncation_error
from netvitals.curvature.dag.evaluation import DagEvaluation
from netvitals.curvature.dag.graph import LOSS
from netvitals.curvature.dag.hessian_blocks import block
from netvitals.curvature.dag.parameters import parameter_block
from netvitals.curvature.dag.paths import path_jacobian, path_terms
from netvitals.curvature.measure import metrics
from netvitals.curvature.measure.exact import ExactBlock

Form = Literal["corrected", "printed"]
ROUNDING = 1e-9


@dataclass(frozen=True)
class BoundCheck:
    """``lhs ≤ rhs``, up to rounding; ``slack`` is rhs/lhs (how loose) or NaN."""

    name: str
    lhs: float
    rhs: float
    form: str = "corrected"

    @property
    def holds(self) -> bool:
        return self.lhs <= self.rhs * (1 + ROUNDING) + 1e-300 or abs(self.lhs - self.rhs) <= ROUNDING * abs(self.rhs)

    @property
    def slack(self) -> float:
        return self.rhs / self.lhs if self.lhs else math.nan

    def __str__(self) -> str:
        return f"{self.name} ({self.form}): {self.lhs:.4g} ≤ {self.rhs:.4g} {'holds' if self.holds else 'FAILS'}"


def theorem_25(e: DagEvaluation, v: str, w: str) -> BoundCheck:
    r"""Chain, ``v`` before ``w`` in ``e``: $\|H_{v,w}\|_F\le\|H_{w,w}\|_F\|\Pi_{w\leftarrow v}\|_2$."""
    r = _norms(block(e, v, w, reduction="per_sample").H)
    bound = _norms(block(e, w, w, reduction="per_sample").H) * torch.linalg.matrix_norm(e.total(w, v), 2)
    return _tightest("Theorem 25", r, bound)


def corollary_26(e: DagEvaluation, v: str, w: str, *, strong: bool = False) -> BoundCheck:
    r"""$R_{GN}(v,w)\le\|\nabla^2L\|_F(s\rho)^{d}$ for $s\rho<1$ and nodes ``v``, ``w`` of ``e``; d the undirected
    distance, or with ``strong`` the sum of the directed distances to the output, which is never smaller.
    """
    out, top = _single_output(e), e.graph.topology
    contraction = contraction_of(e)
    if contraction >= 1:
        raise ValueError(f"the contraction factor sρ is {contraction:.3g}; this bound holds only for sρ < 1")
    d = (top.depth(v) or 0) + (top.depth(w) or 0) if strong else top.distance(v, w)
    if d is None:
        raise ValueError(f"nodes {v!r} and {w!r} are not connected in the graph, so they have no distance")
    gn = _norms(block(e, v, w, reduction="per_sample").GN)
    return _tightest(
        "Corollary 26" + (", strong" if strong else ""), gn, _norms(e.contracted(LOSS, out, out)) * contraction**d
    )


def corollary_28(e: DagEvaluation, eps: float) -> BoundCheck:
    r"""Gauss–Newton blocks of ``e`` beyond $\lceil\log\epsilon/\log(s\rho)\rceil$ are below ``eps`` of the loss
    curvature.
    """
    out, top = _single_output(e), e.graph.topology
    contraction = contraction_of(e)
    if contraction >= 1:
        raise ValueError(
            f"the contraction factor sρ is {contraction:.3g}; the bandwidth (the distance beyond which blocks are "
            "negligible) exists only for sρ < 1"
        )
    band = math.ceil(math.log(eps) / math.log(contraction))
    scale = _norms(e.contracted(LOSS, out, out))
    far = [
        _norms(block(e, v, w, reduction="per_sample").GN) / scale
        for v in top.order
        for w in top.order
        if (top.distance(v, w) or 0) > band
    ]
    return BoundCheck("Corollary 28", max((float(f.max()) for f in far), default=0.0), eps)


def corollary_29(found_off: float, found_all: float, eps: float) -> BoundCheck:
    """K-FAC's error in Frobenius norm: off-block-diagonal mass ``found_off`` against ``eps`` of the whole,
    ``found_all``. Needs the *parameter* blocks, mixed residual included (the printed version argues with
    Gauss–Newton decay only; erratum E15).
    """
    return BoundCheck("Corollary 29", found_off, eps * found_all)


def proposition_31(e: DagEvaluation, v: str, w: str) -> BoundCheck:
    r"""rank $H^{GN}_{v,w}\le d_u$ for nodes ``v``, ``w`` of ``e`` and every u that all paths from v, or all from w,
    pass; per sample (E11).
    """
    out, top = _single_output(e), e.graph.topology
    widths = [e.size(a) for a in (v, w, out)]
    widths += [e.size(u) for a in (v, w) for u in top.dominators(a, out)]
    ranks = metrics.numerical_rank(block(e, v, w, reduction="per_sample").GN, rtol=1e-10)
    return BoundCheck("Proposition 31", float(ranks.max()), float(min(widths)))


def theorem_33(e: DagEvaluation, v: str, w: str, form: Form = "corrected") -> BoundCheck:
    r"""Path sum of the Gauss–Newton block of nodes ``v``, ``w`` of ``e``, in a ``form``: relative deviation against
    rounding.

    Corrected: pairs of paths to the loss with the *direct* loss Hessian. Printed: pairs of paths to every common
    descendant c with $H_{c,c}$, which counts again what has already been counted (erratum E16).
    """
    exact = block(e, v, w, reduction="per_sample").GN
    top = e.graph.topology
    total = torch.zeros_like(exact)
    below = lambda a: top.descendants[a] | {a}
    if form == "corrected":
        meets = [(a, b, e.contracted(LOSS, a, b)) for a in e.graph.loss_parents for b in e.graph.loss_parents]
    else:
        common = below(v) & below(w)
        meets = [(c, c, block(e, c, c, reduction="per_sample").GN) for c in common]
    for a, b, curved in meets:
        for p in top.paths(v, a):
            for q in top.paths(w, b):
                total = total + path_jacobian(e, p).mT @ curved @ path_jacobian(e, q)
    return BoundCheck("Theorem 33", float((total - exact).norm() / exact.norm()), 1e-10, form)


def theorem_34(
    branches: Sequence[Tensor],
    curvature: Tensor,
    rho: float,
    k: int,
    *,
    skips: bool,
    side: Literal["upper", "lower"] = "upper",
    form: Form = "corrected",
) -> BoundCheck:
    r"""L layers with $\|D\|_2\le\rho<1$, $R(v_0,v_L)$ against its bounds.

    Without skips $R\le\|\nabla^2L\|\rho^L$. With identity skips every k layers the printed upper bound
    $\|\nabla^2L\|\rho^k$ is false (E17); correct are $\|\nabla^2L\|(1+\rho^k)^{L/k}$ above and
    $\|\nabla^2L\|(1-\rho^k)^{L/k}$ below.
    """
    product = torch.eye(branches[0].shape[1], dtype=curvature.dtype)
    for m in branches:
        product = (m + torch.eye(len(m), dtype=m.dtype) if skips else m) @ product
    r, c = float((product.mT @ curvature).norm()), float(curvature.norm())
    n = len(branches)
    if not skips:
        return BoundCheck("Theorem 34a", r, c * rho**n)
    if side == "lower":
        return BoundCheck("Theorem 34b′", c * (1 - rho**k) ** n, r)
    return BoundCheck("Theorem 34b", r, c * (rho**k if form == "printed" else (1 + rho**k) ** n), form)


def corollary_17(e: DagEvaluation, v: str, w: str) -> BoundCheck:
    r"""$\|H_{\theta_v,\theta_w}\|_F\le\overline{\|D_v\|_2\|D_w\|_2\|H_{v,w}\|_F}+$ norms of the other terms, for nodes
    ``v``, ``w`` of ``e``.
    """
    p = parameter_block(e, v, w)
    h = _norms(block(e, v, w, reduction="per_sample").H)
    top = lambda a: torch.linalg.matrix_norm(e.parameter_edge(a), 2)
    rest = sum(x for key, x in p.norms().items() if key in ("pure", "mixed_left", "mixed_right"))
    return BoundCheck("Corollary 17", float(p.H.norm()), float((top(v) * top(w) * h).mean()) + rest)


def theorem_43(
    error: float, depth: int, distance: int, eps_d: float, eps_t: float, form: Form = "corrected"
) -> BoundCheck:
    r"""Relative ``error`` of a block after perturbing edges by $\epsilon_D$ (``eps_d``) and tensors by $\epsilon_T$
    (``eps_t``).

    Corrected ``form``: twice the ``depth`` to the output times $\epsilon_D$ (a factor on either side per edge) plus
    $\epsilon_T$, to first order and unless terms cancel. Printed: the ``distance`` between the nodes, which is zero for
    v = w (erratum E19).
    """
    length = distance if form == "printed" else depth
    return BoundCheck("Theorem 43", error, length * (2 * eps_d + eps_t), form)


def theorem_44(before: ExactBlock | Tensor, after: ExactBlock | Tensor) -> BoundCheck:
    """Coupling ``before`` and ``after`` rescaling by α and 1/α: equal for positively homogeneous activations only
    (E20).
    """
    a, b = (float(x.H if isinstance(x, ExactBlock) else x) for x in (before, after))
    return BoundCheck("Theorem 44", abs(a - b), 1e-10 * abs(a))


def proposition_55(e: DagEvaluation, from_v: Sequence[str], from_w: Sequence[str]) -> BoundCheck:
    """rank of the contribution of paths ``from_v`` and ``from_w`` in ``e`` ≤ the smallest rank of an edge on either."""
    rank = lambda t: metrics.numerical_rank(t, rtol=1e-10)
    edges = [rank(e.edge(b, a)) for path in (from_v, from_w) for a, b in pairwise(path)]
    term = path_jacobian(e, from_v).mT @ e.contracted(LOSS, from_v[-1], from_w[-1]) @ path_jacobian(e, from_w)
    smallest = torch.stack([*edges, rank(e.contracted(LOSS, from_v[-1], from_w[-1]))]).amin(0)
    worst = int((rank(term) - smallest).argmax())
    return BoundCheck("Proposition 55", float(rank(term)[worst]), float(smallest[worst]))


def proposition_58(matrix: Tensor) -> tuple[BoundCheck, ...]:
    r"""$1\le d_{eff}\le r$, $1\le D\le r$ (Prop. 62), $D\le d_{eff}\le\sqrt{rD}$ with r the rank of ``matrix``."""
    rank = float(metrics.numerical_rank(matrix))
    d, eff = float(metrics.stable_rank(matrix)), float(metrics.effective_dimension(matrix))
    return (
        BoundCheck("Proposition 58", 1.0, eff),
        BoundCheck("Proposition 58", eff, rank),
        BoundCheck("Proposition 62", 1.0, d),
        BoundCheck("Proposition 62", d, rank),
        BoundCheck("D ≤ d_eff", d, eff),
        BoundCheck("d_eff ≤ √(rank·D)", eff, (rank * d) ** 0.5),
    )


def corollary_67(e: DagEvaluation, v: str, w: str) -> BoundCheck:
    """R of nodes ``v``, ``w`` of ``e`` is at most the sum of the resonances of its pairs of paths; equal only if
    aligned.
    """
    return BoundCheck("Corollary 67", float(block(e, v, w).H.norm()), sum(t.resonance for t in path_terms(e, v, w)[0]))


def theorem_69(base: ExactBlock, residual: ExactBlock, form: Form = "corrected") -> BoundCheck:
    r"""With $\|H^T\|\le\eta\|H^{GN}\|$ in both nets and a skip that only adds to GN, ``residual`` against ``base``:
    $R_{res}\ge\frac{1-\eta}{1+\eta}R_{base}$ for the whole matrix (printed ``form``: $1-\eta$, which fails for
    opposite tensor parts; erratum E22).
    """
    eta = max(float(b.T.norm() / b.GN.norm()) for b in (base, residual))
    factor = (1 - eta) if form == "printed" else (1 - eta) / (1 + eta)
    return BoundCheck("Theorem 69", factor * float(base.H.norm()), float(residual.H.norm()), form)


def theorem_83(gauss_newton: Tensor) -> BoundCheck:
    """Convex loss: no negative curvature in the matrix ``gauss_newton``. In activation space all of it comes from T; in
    parameter space also from the mixed residual, even for piecewise-linear nets (erratum E25).
    """
    scale = float(torch.linalg.eigvalsh((gauss_newton + gauss_newton.mT) / 2).abs().sum())
    return BoundCheck("Theorem 83", metrics.negative_mass(gauss_newton), 1e-9 * scale)


def theorem_93(matrix: Tensor, rank: int) -> BoundCheck:
    r"""Truncation error of ``matrix`` at ``rank`` r: $\sqrt{\sum_{i>r}\sigma_i^2}\le\sqrt{d_{min}-r}\,\sigma_{r+1}$."""
    return BoundCheck("Theorem 93", *truncation_error(torch.linalg.svdvals(matrix), rank))


def edge_norm(e: DagEvaluation) -> float:
    """ρ: the largest spectral norm of an edge of ``e`` over the batch."""
    top = e.graph.topology
    return max(float(torch.linalg.matrix_norm(e.edge(u, p), 2).max()) for u in top.order for p in top.parents[u])


def contraction_of(e: DagEvaluation) -> float:
    """sρ of ``e``, with s the largest number of children (E8)."""
    return e.graph.topology.fan_out * edge_norm(e)


def _norms(per_sample: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(per_sample)


def _tightest(name: str, lhs: Tensor, rhs: Tensor) -> BoundCheck:
    at = int((lhs / rhs.clamp_min(1e-300)).argmax())
    return BoundCheck(name, float(lhs[at]), float(rhs[at]))


def _single_output(e: DagEvaluation) -> str:
    if len(e.graph.loss_parents) != 1:
        seen = ", ".join(e.graph.loss_parents)
        raise ValueError(f"this bound holds only if the loss depends on exactly one node; this loss depends on {seen}")
    return e.graph.loss_parents[0]
