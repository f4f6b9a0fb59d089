"""Piecewise-linear nets: which nodes bend, how near a kink a sample sits, and the Hessians around it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from netvitals.activations import ACTIVATIONS
from netvitals.curvature.dag.evaluation import DagEvaluation
from netvitals.curvature.dag.graph import Graph
from netvitals.curvature.dag.hessian_blocks import block

_STRAIGHT = (
    nn.Linear,
    nn.modules.conv._ConvNd,
    *(kind for row in ACTIVATIONS if row.piecewise_linear for kind in row.modules),
    nn.Identity,
    nn.Flatten,
    nn.modules.pooling._MaxPoolNd,
    nn.modules.pooling._AvgPoolNd,
    nn.modules.pooling._AdaptiveAvgPoolNd,
    nn.modules.pooling._AdaptiveMaxPoolNd,
    nn.Dropout,
    nn.Embedding,
    nn.ZeroPad2d,
    nn.Upsample,
    nn.Unflatten,
)


@dataclass(frozen=True)
class Certificate:
    """Whether H = GN in activation space almost everywhere, and who prevents it.

    Returned by :func:`certificate`.

    Attributes:
        piecewise_linear: True where nothing bends.
        bending: node or module -> why.
    """

    piecewise_linear: bool
    bending: dict[str, str]

    def __str__(self) -> str:
        if self.piecewise_linear:
            return "piecewise linear: H = GN in activation space almost everywhere"
        return "bends at " + ", ".join(f"{k} ({v})" for k, v in self.bending.items())


def certificate(thing: Graph | DagEvaluation | nn.Module) -> Certificate:
    """Of a graph by its rules, of an evaluation by its contracted tensors, of a module by the kinds of its submodules.

    A module's functional calls are not detected; there use the evaluation or ``between_layers``. Normalisation and
    softmax are curved; batch normalisation is curved in train mode only.

    Args:
        thing: a graph, a graph at a batch, or a model.

    Returns:
        The verdict, and every node or module that bends with the reason.

    >>> str(certificate(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.BatchNorm1d(2)).eval()))
    'piecewise linear: H = GN in activation space almost everywhere'
    """
    if isinstance(thing, DagEvaluation):
        found = {}
        for u in thing.graph.topology.order:
            parents = thing.graph.topology.parents[u]
            size = max((float(thing.contracted(u, p, q).abs().max()) for p in parents for q in parents), default=0.0)
            if size > 0:
                found[u] = f"δ·T up to {size:.2g}"
    elif isinstance(thing, Graph):
        found = {
            n.name: "no rule says otherwise" if n.rule is None else type(n.rule).__name__
            for n in thing.nodes
            if n.rule is None or n.rule.bends
        }
    else:
        found = {
            name or "model": _why(m)
            for name, m in thing.named_modules()
            if not any(True for _ in m.children()) and _why(m)
        }
    return Certificate(not found, found)


def _why(m: nn.Module) -> str:
    if isinstance(m, nn.modules.batchnorm._BatchNorm):
        return "BatchNorm in train mode" if m.training else ""
    return "" if isinstance(m, _STRAIGHT) else type(m).__name__


def near_kinks(preactivation: Tensor, tau: float) -> Tensor:
    """Units with |z| < τ: there the derivative that autograd returns is a convention.

    Args:
        preactivation: z with the samples first, (B, ...).
        tau: the distance τ from the kink at zero, in the unit of z.

    Returns:
        Indices (sample, unit), one row a find; units are counted in the flattened shape of a sample.

    >>> near_kinks(torch.tensor([[0.001, 2.0], [-3.0, -0.002]]), tau=0.01).tolist()
    [[0, 0], [1, 1]]
    """
    if tau < 0:
        raise ValueError(f"tau= must be a distance of at least 0, got {tau}")
    return (preactivation.flatten(1).abs() < tau).nonzero()


def clarke_samples(
    graph: Graph, x: Tensor, y: Tensor, v: str, w: str, *, radius: float = 1e-3, count: int = 32, seed: int = 0
) -> Tensor:
    """Hessian blocks at random points around x: their limits span the Clarke set at a kink.

    In a smooth region all of them agree up to O(radius); where a kink passes near x they fall into clusters.

    Args:
        graph: the network.
        x: its single input, (B, ...).
        y: the targets of the batch.
        v: the node of the rows.
        w: the node of the columns.
        radius: distance of every point from x, in the Euclidean norm over the whole batch.
        count: how many points.
        seed: of the random directions.

    Returns:
        The batch-averaged blocks, (count, d_v, d_w).

    >>> from netvitals.curvature.dag.graph import chain
    >>> graph = chain([lambda f, t: f.relu(), lambda f, t: 2 * f], loss=lambda f, y: (f - y).square().sum())
    >>> tuple(clarke_samples(graph, torch.zeros(1, 3), torch.ones(1, 3), "0", "0", count=4).shape)
    (4, 3, 3)
    """
    source = torch.Generator().manual_seed(seed)
    out = []
    for _ in range(count):
        step = torch.randn(x.shape, generator=source, dtype=x.dtype)
        moved = x + radius * step / step.norm()
        out.append(block(DagEvaluation(graph, moved, y), v, w).H)
    return torch.stack(out)
