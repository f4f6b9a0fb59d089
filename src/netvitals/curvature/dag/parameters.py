r"""Parameter blocks from activation blocks, term by term (the corrected Eq. 5).

$$H_{\theta_v,\theta_w}=D_v^\top H_{v,w}D_w+1[v=w]\,\delta_v\cdot T^\theta_v
+\Big(\sum_{p\in Pa(v)}B_{v,p}J_{pw}\Big)D_w+D_v^\top\Big(\sum_{p\in Pa(w)}J_{pv}^\top B_{w,p}^\top\Big)$$
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from netvitals._help import hint
from netvitals.curvature.dag.evaluation import DagEvaluation
from netvitals.curvature.dag.hessian_blocks import block


@dataclass(frozen=True)
class ParameterBlock:
    """The five terms of a parameter block, batch averages (p_v, p_w); ``residual`` is all but the first.

    Returned by :func:`parameter_block`.

    Attributes:
        ggn: the Gauss–Newton term.
        tensor_through: curvature of later nodes, seen through both.
        pure: second derivative of the node by its own parameters.
        mixed_left: of parameters and inputs, from the rows.
        mixed_right: the same from the columns.
    """

    ggn: Tensor
    tensor_through: Tensor
    pure: Tensor
    mixed_left: Tensor
    mixed_right: Tensor

    @property
    def H(self) -> Tensor:
        return self.ggn + self.residual

    @property
    def residual(self) -> Tensor:
        return self.tensor_through + self.pure + self.mixed_left + self.mixed_right

    def norms(self) -> dict[str, float]:
        """Frobenius norm of each term."""
        names = ("ggn", "tensor_through", "pure", "mixed_left", "mixed_right")
        return {n: float(getattr(self, n).norm()) for n in names}


def parameter_block(e: DagEvaluation, v: str, w: str) -> ParameterBlock:
    """The block of two nodes' own parameters (each copy of shared parameters counts by itself).

    Args:
        e: the graph at a batch.
        v: the node of the rows; it must have parameters.
        w: the node of the columns; it must have parameters.

    Returns:
        The five terms, each (p_v, p_w), batch averages.

    >>> from netvitals.curvature.dag import DagEvaluation, Graph, GraphNode
    >>> scale = GraphNode("out", ("x",), lambda x, theta: theta * x, theta="w")
    >>> graph = Graph([scale], loss=lambda f, y: (f - y).square().sum(), parameters={"w": torch.ones(2)})
    >>> e = DagEvaluation(graph, torch.tensor([[1.0, 2.0]]), torch.zeros(1, 2))
    >>> parameter_block(e, "out", "out").H.diag().tolist()  # 2x²
    [2.0, 8.0]
    """
    for name in (v, w):
        if name not in e.graph.by_name:
            raise KeyError(f"there is no node {name!r} in this graph")
        if e.graph.by_name[name].theta is None:
            raise ValueError(f"node {name!r} has no parameters")
    dv, dw = e.parameter_edge(v), e.parameter_edge(w)
    h = block(e, v, w, reduction="per_sample")
    zero = e.loss.new_zeros(e.examples, dv.shape[2], dw.shape[2])
    top = e.graph.topology
    reach = lambda p, a: p == a or p in top.descendants[a]
    left, right = zero, zero
    for p in top.parents[v]:
        if reach(p, w):
            left = left + e.contracted_parameter(v, p) @ e.total(p, w) @ dw
    for p in top.parents[w]:
        if reach(p, v):
            right = right + dv.mT @ e.total(p, v).mT @ e.contracted_parameter(w, p).mT
    pure = e.contracted_pure(v) if v == w else zero
    terms = (dv.mT @ h.GN @ dw, dv.mT @ h.T @ dw, pure, left, right)
    return ParameterBlock(*(t.mean(0) for t in terms))


def shared_block(e: DagEvaluation, a: str, b: str) -> Tensor:
    r"""Block of two parameter vectors by key: the sum over all copies, $\sum H_{\theta_{v},\theta_{w}}$ (Remark 49).

    Args:
        e: the graph at a batch.
        a: key in ``Graph.parameters`` of the rows.
        b: key of the columns.

    Returns:
        A matrix of (p_a, p_b), the batch average.

    >>> from netvitals.curvature.dag import DagEvaluation, Graph, GraphNode
    >>> scale = GraphNode("out", ("x",), lambda x, theta: theta * x, theta="w")
    >>> graph = Graph([scale], loss=lambda f, y: (f - y).square().sum(), parameters={"w": torch.ones(2)})
    >>> e = DagEvaluation(graph, torch.tensor([[1.0, 2.0]]), torch.zeros(1, 2))
    >>> shared_block(e, "w", "w").diag().tolist()
    [2.0, 8.0]
    """
    pairs = [(v, w) for v in e.graph.copies(a) for w in e.graph.copies(b)]
    if not pairs:
        raise KeyError(f"no node of the graph uses both parameters {a!r} and {b!r}")
    return torch.stack([parameter_block(e, v, w).H for v, w in pairs]).sum(0)


def parameter_hessian(e: DagEvaluation, budget: int = 1 << 30) -> tuple[Tensor, dict[str, slice]]:
    """The whole Hessian over ``Graph.parameters`` in their order.

    Args:
        e: the graph at a batch.
        budget: bytes the matrix may take, by default 1 GiB; above it a ``MemoryError``.

    Returns:
        A matrix of (p, p), p all parameters together, and the place of each key in it.

    >>> from netvitals.curvature.dag import DagEvaluation, Graph, GraphNode
    >>> scale = GraphNode("out", ("x",), lambda x, theta: theta * x, theta="w")
    >>> graph = Graph([scale], loss=lambda f, y: (f - y).square().sum(), parameters={"w": torch.ones(2)})
    >>> e = DagEvaluation(graph, torch.tensor([[1.0, 2.0]]), torch.zeros(1, 2))
    >>> matrix, places = parameter_hessian(e)
    >>> tuple(matrix.shape), places
    ((2, 2), {'w': slice(0, 2, None)})
    """
    keys = list(e.graph.parameters)
    sizes = [e.graph.parameters[k].numel() for k in keys]
    total = sum(sizes)
    needed = total * total * e.loss.element_size()
    if needed > budget:
        raise MemoryError(
            f"a Hessian of {total} parameters needs {needed / 2**20:.4g} MiB, but the budget is {budget / 2**20:.4g} "
            f"MiB: use matrix-vector products, or raise budget= {hint('no-memory')}"
        )
    ends = torch.tensor([0, *sizes]).cumsum(0).tolist()
    index = {k: slice(a, b) for k, a, b in zip(keys, ends, ends[1:])}
    out = e.loss.new_zeros(total, total)
    for a in keys:
        for b in keys:
            out[index[a], index[b]] = shared_block(e, a, b)
    return out, index
