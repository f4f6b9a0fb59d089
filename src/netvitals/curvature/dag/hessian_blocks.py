r"""Activation blocks by four methods, each with its Gauss–Newton and tensor part.

* ``closed`` (★): $H_{v,w}=\sum_u\sum_{p,q\in Pa(u)}J_{pv}^\top(\delta_u\cdot T_{u;p,q})J_{qw}$ with the loss as the
  last node u; that node's term is the Gauss–Newton part. $J_{pv}=df_p/df_v$.
* ``onesided`` (★★): $H_{v,w}=\sum_{u\in Ch(v)}[D_{uv}^\top H_{u,w}+\sum_{p\in Pa(u)}(\delta_u\cdot T_{u;v,p})J_{pw}]$.
* ``autograd``: Hessian of the loss in perturbations added to the nodes.
* ``paper``: Eq. 2 as printed for equal and incomparable nodes, with Remark 76 for comparable ones. It drops mixed
  tensors on merges reached over paths of unequal length (erratum E3). ``paper_eq2``: Eq. 2 for all pairs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.func import jacrev, vmap

from netvitals.curvature.dag.evaluation import DagEvaluation
from netvitals.curvature.dag.graph import LOSS
from netvitals.curvature.measure.exact import ExactBlock

Method = Literal["closed", "onesided", "autograd", "paper", "paper_eq2"]
Reduction = Literal["mean_block", "per_sample"]


@dataclass(frozen=True)
class BlockTable:
    """Blocks of many pairs, and where each node sits in the assembled matrix.

    Returned by :func:`blocks`.

    Attributes:
        blocks: H, GN and T by pair of names.
        index: where each node stands in the assembled matrix.
    """

    blocks: dict[tuple[str, str], ExactBlock]
    index: dict[str, slice]

    def __getitem__(self, pair: tuple[str, str]) -> ExactBlock:
        return self.blocks[pair]


def block(
    e: DagEvaluation, v: str, w: str, method: Method = "closed", reduction: Reduction = "mean_block"
) -> ExactBlock:
    r"""$H_{v,w}$, its Gauss–Newton and tensor part.

    Args:
        e: the graph at a batch.
        v: the node of the rows.
        w: the node of the columns.
        method: ``"closed"``, ``"onesided"`` and ``"autograd"`` agree; ``"paper"`` and ``"paper_eq2"`` are as printed.
        reduction: ``"mean_block"`` averages over the batch, ``"per_sample"`` keeps each example.

    Returns:
        H, GN and T, each (d_v, d_w), or (B, d_v, d_w) by sample.

    >>> from netvitals.curvature.dag import DagEvaluation
    >>> from netvitals.curvature.dag.graph import chain
    >>> graph = chain([lambda f, t: f.tanh(), lambda f, t: 2 * f], loss=lambda f, y: (f - y).square().sum())
    >>> e = DagEvaluation(graph, torch.zeros(1, 3), torch.ones(1, 3))
    >>> block(e, "out", "out").H.diag().tolist()
    [2.0, 2.0, 2.0]
    """
    for name in (v, w):
        if name not in e.values:
            raise KeyError(f"there is no node {name!r}; the nodes are {', '.join(e.values)}")
    if method == "closed":
        gn, tensor = _closed(e, v, w)
    elif method == "onesided":
        gn, tensor = _onesided(e, v, w)
    elif method == "autograd":
        gn = _closed(e, v, w)[0]
        tensor = _autograd(e, v, w) - gn
    elif method in ("paper", "paper_eq2"):
        gn = _closed(e, v, w)[0]
        tensor = _paper(e, v, w, remark76=method == "paper", cache={}) - gn
    else:
        raise ValueError(f"method= must be 'closed', 'onesided', 'autograd', 'paper' or 'paper_eq2', got {method!r}")
    if reduction == "mean_block":
        gn, tensor = gn.mean(0), tensor.mean(0)
    elif reduction != "per_sample":
        raise ValueError(f"reduction= must be 'mean_block' or 'per_sample', got {reduction!r}")
    return ExactBlock(gn + tensor, gn, tensor)


def blocks(
    e: DagEvaluation,
    pairs: Iterable[tuple[str, str]] | None = None,
    method: Method = "closed",
    reduction: Reduction = "mean_block",
) -> BlockTable:
    """The blocks of many pairs of nodes.

    Args:
        e: the graph at a batch.
        pairs: pairs (v, w) of names; None is all, in both orders.
        method: as in :func:`block`.
        reduction: as in :func:`block`.

    Returns:
        The blocks by pair, and the place of every node in the matrix over all nodes.

    >>> from netvitals.curvature.dag import DagEvaluation
    >>> from netvitals.curvature.dag.graph import chain
    >>> graph = chain([lambda f, t: f.tanh(), lambda f, t: 2 * f], loss=lambda f, y: (f - y).square().sum())
    >>> e = DagEvaluation(graph, torch.zeros(1, 3), torch.ones(1, 3))
    >>> sorted(blocks(e).blocks)
    [('0', '0'), ('0', 'out'), ('out', '0'), ('out', 'out')]
    """
    names = list(e.graph.topology.order)
    pairs = [(v, w) for v in names for w in names] if pairs is None else list(pairs)
    index, at = {}, 0
    for name in names:
        index[name] = slice(at, at + e.size(name))
        at += e.size(name)
    return BlockTable({(v, w): block(e, v, w, method, reduction) for v, w in pairs}, index)


def assembled(table: BlockTable, part: Literal["H", "GN", "T"] = "H") -> Tensor:
    """The matrix over all nodes; pairs not in the table are zero.

    Args:
        table: what :func:`blocks` returned.
        part: the Hessian ``"H"``, its Gauss–Newton part ``"GN"`` or its tensor part ``"T"``.

    Returns:
        A matrix of (d, d), d the sizes of all nodes together; (B, d, d) if the table is by sample.

    >>> from netvitals.curvature.dag import DagEvaluation
    >>> from netvitals.curvature.dag.graph import chain
    >>> graph = chain([lambda f, t: f.tanh(), lambda f, t: 2 * f], loss=lambda f, y: (f - y).square().sum())
    >>> e = DagEvaluation(graph, torch.zeros(1, 3), torch.ones(1, 3))
    >>> tuple(assembled(blocks(e)).shape)
    (6, 6)
    """
    total = max(s.stop for s in table.index.values())
    first = next(iter(table.blocks.values())).H
    out = torch.zeros(*first.shape[:-2], total, total, dtype=first.dtype)
    for (v, w), b in table.blocks.items():
        out[..., table.index[v], table.index[w]] = getattr(b, part)
    return out


def root_factors(e: DagEvaluation) -> dict[str, Tensor]:
    r"""$S_v=J_{out,v}^\top A$ with $\nabla^2\ell=AA^\top$, by $S_v=\sum_uD_{uv}^\top S_u$: $H^{GN}_{v,w}=S_vS_w^\top$.

    n factors give all n² Gauss–Newton blocks.

    Args:
        e: the graph at a batch, its loss convex in the nodes it sees (else a ``ValueError``).

    Returns:
        (B, d_v, k) by node, per sample; k is the size of all nodes that the loss sees.

    >>> from netvitals.curvature.dag import DagEvaluation
    >>> from netvitals.curvature.dag.graph import chain
    >>> graph = chain([lambda f, t: f.tanh(), lambda f, t: 2 * f], loss=lambda f, y: (f - y).square().sum())
    >>> e = DagEvaluation(graph, torch.zeros(1, 3), torch.ones(1, 3))
    >>> factors = root_factors(e)
    >>> torch.allclose(factors["0"] @ factors["out"].mT, block(e, "0", "out", reduction="per_sample").GN)
    True
    """
    seen = e.graph.loss_parents
    rows = [torch.cat([e.contracted(LOSS, a, b) for b in seen], 2) for a in seen]
    values, vectors = torch.linalg.eigh(torch.cat(rows, 1))
    if bool((values < -1e-10 * values.abs().amax()).any()):
        raise ValueError(
            "the loss is not convex in the nodes it depends on, so its Gauss–Newton matrix has no real square root"
        )
    root = vectors * values.clamp_min(0).sqrt()[:, None, :]
    at = dict(zip(seen, root.split([e.size(a) for a in seen], 1)))
    out: dict[str, Tensor] = {}
    for v in reversed(e.graph.topology.order):
        terms = [e.edge(u, v).mT @ out[u] for u in e.graph.topology.children[v]]
        if v in at:
            terms.append(at[v])
        out[v] = torch.stack(terms).sum(0)
    return out


def _closed(e: DagEvaluation, v: str, w: str) -> tuple[Tensor, Tensor]:
    top = e.graph.with_loss
    zero = e.loss.new_zeros(e.examples, e.size(v), e.size(w))
    gn, tensor = zero, zero
    reach = lambda p, a: p == a or p in top.descendants[a]
    for u in (*e.graph.topology.order, LOSS):
        inner = top.parents[u]
        for p in inner:
            for q in inner:
                if reach(p, v) and reach(q, w):
                    term = e.total(p, v).mT @ e.contracted(u, p, q) @ e.total(q, w)
                    gn, tensor = (gn + term, tensor) if u == LOSS else (gn, tensor + term)
    return gn, tensor


def _onesided(e: DagEvaluation, v: str, w: str) -> tuple[Tensor, Tensor]:
    key = ("onesided", v, w)
    return e._once(key, lambda: _onesided_step(e, v, w))


def _onesided_step(e: DagEvaluation, v: str, w: str) -> tuple[Tensor, Tensor]:
    top = e.graph.with_loss
    gn = e.loss.new_zeros(e.examples, e.size(v), e.size(w))
    tensor = gn
    for u in top.children[v]:
        if u != LOSS:
            deeper = _onesided(e, u, w)
            gn = gn + e.edge(u, v).mT @ deeper[0]
            tensor = tensor + e.edge(u, v).mT @ deeper[1]
        for p in top.parents[u]:
            if p == w or p in top.descendants[w]:
                term = e.contracted(u, v, p) @ e.total(p, w)
                gn, tensor = (gn + term, tensor) if u == LOSS else (gn, tensor + term)
    return gn, tensor


def _autograd(e: DagEvaluation, v: str, w: str) -> Tensor:
    graph = e.graph
    names = graph.inputs

    def perturbed(a: Tensor, b: Tensor, y: Tensor, *inputs: Tensor) -> Tensor:
        values = dict(zip(names, inputs))
        for name in graph.topology.order:
            node = graph.by_name[name]
            f = node.fn(*(values[p] for p in node.parents), e._theta(node))
            values[name] = f + (a if name == v else 0) + (b if name == w else 0)
        return graph.loss(*(values[p] for p in graph.loss_parents), y)

    zero = lambda name: e.loss.new_zeros(e.examples, e.size(name))
    second = jacrev(jacrev(perturbed, argnums=0), argnums=1)
    return vmap(second)(zero(v), zero(w), e.y, *(e.inputs[i] for i in names))


def _paper(e: DagEvaluation, v: str, w: str, remark76: bool, cache: dict[tuple[str, str], Tensor]) -> Tensor:
    """Eq. 2 literally, with its boundary blocks at the nodes the loss sees."""
    if (v, w) in cache:
        return cache[v, w]
    top, seen = e.graph.topology, e.graph.loss_parents
    out = e.loss.new_zeros(e.examples, e.size(v), e.size(w))
    children = top.children
    if v in seen and w in seen:
        out = out + e.contracted(LOSS, v, w)
    if remark76 and v != w and w in top.descendants[v]:
        for u in children[v]:
            out = out + e.edge(u, v).mT @ _paper(e, u, w, remark76, cache)
    elif remark76 and v != w and v in top.descendants[w]:
        out = out + _paper(e, w, v, remark76, cache).mT
    elif not children[w]:
        for u in children[v]:
            out = out + e.edge(u, v).mT @ _paper(e, u, w, remark76, cache)
    elif not children[v]:
        out = out + _paper(e, w, v, remark76, cache).mT
    else:
        for a in children[v]:
            for b in children[w]:
                out = out + e.edge(a, v).mT @ _paper(e, a, b, remark76, cache) @ e.edge(b, w)
        for u in set(children[v]) & set(children[w]):
            out = out + e.contracted(u, v, w)
    cache[v, w] = out
    return out
