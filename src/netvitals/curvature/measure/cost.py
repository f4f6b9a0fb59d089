"""What a measurement will cost, before it runs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from netvitals.capture import LossFn, Mode, Result, undisturbed
from netvitals.curvature.engine.nodes import Choice
from netvitals.curvature.engine.probes import draw, generator
from netvitals.curvature.engine.products import Products
from netvitals.curvature.engine.tape import Space, recorded


@dataclass(frozen=True, kw_only=True)
class CostEstimate(Result):
    """Products, gradient-equivalents, bytes and seconds; the seconds come from one timed product on this machine.

    Returned by :func:`plan`.

    Attributes:
        nodes: that would be measured.
        chosen: how they were chosen.
        products: Hessian-vector products.
        gradients: what they cost, in gradients of the batch.
        graph_bytes: that the recorded graph takes.
        block_bytes: of the dense blocks, if exact.
        probes_at_once: products that fit into memory together.
        seconds: estimated from one timed product.
        skipped: node that would be left out → reason.
    """

    nodes: tuple[str, ...]
    chosen: str
    products: int
    gradients: float
    graph_bytes: int
    block_bytes: int
    probes_at_once: int
    seconds: float
    skipped: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"{self.chosen}; {self.products} products ({self.gradients:.0f} gradient-equivalents, about "
            f"{self.seconds:.2g} s), {self.graph_bytes / 2**20:.3g} MiB for the graph, {self.probes_at_once} "
            f"probes at once, {self.block_bytes / 2**20:.3g} MiB for dense blocks"
        )


@undisturbed
def cost(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    mode: Mode = "as_is",
    nodes: Choice = None,
    method: str = "stochastic",
    probes: int = 30,
    space: Space = "activation",
    dtype: torch.dtype | None = None,
    memory: int = 2 << 30,
) -> CostEstimate:
    """Estimate the cost of ``between_layers`` with the same arguments, from one forward pass and one product.

    Args:
        model: any module; it is not changed.
        loss_fn: ``loss_fn(output, target)``, its name, or None for the model's own ``output.loss``.
        batch: one batch as a data loader yields it: ``(x, y)``, several inputs and a target, or a dict.
        mode: ``"as_is"``, ``"train"`` (batch statistics, dropout off) or ``"eval"``.
        nodes: names or glob patterns of submodules, a function ``(name, module) -> bool``, or None for the model's
            blocks.
        method: ``"stochastic"`` or ``"exact"``, which needs a product for every coordinate of every node.
        probes: products spent on each node by the stochastic method.
        space: ``"activation"`` or ``"parameter"``.
        dtype: measure a copy of the model in this dtype. Default: float64 if exact, else the model's own.
        memory: memory budget in bytes for graph, products and blocks.

    Returns:
        Products, gradient-equivalents, bytes and seconds.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    >>> cost(net, nn.MSELoss(), (torch.randn(8, 3), torch.randn(8, 2)), probes=10).products
    4
    """
    if method == "exact" and dtype is None:
        dtype = torch.float64
    with recorded(model, loss_fn, batch, nodes=nodes, space=space, dtype=dtype, mode=mode, memory=memory) as tape:
        products = Products(tape, memory=memory, planned=probes)
        sizes = [products.size(v) for v in range(len(tape.nodes))]
        count = sum(sizes) if method == "exact" else sum(min(d, probes) for d in sizes)
        w = len(sizes) // 2
        m = min(products.chunk, probes)
        z = draw(m, products.leaves[w], generator(0, products.flat[0].device))
        products.require_symmetric()
        before = products.cost.gradients
        products.column(w, z)  # warm: first calls compile and allocate
        spent = products.cost.gradients
        began = time.perf_counter()
        products.column(w, z)
        each = (time.perf_counter() - began) / m
        per = (products.cost.gradients - spent) / m
        item = products.flat[0].element_size()
        return CostEstimate(
            nodes=tuple(n.name for n in tape.nodes),
            chosen=tape.chosen,
            products=count,
            # the first product at a node also looks whether anything after it bends
            gradients=before + per * count + (spent - before - per * m) * len(sizes),
            graph_bytes=3 * tape.kept_bytes,
            block_bytes=2 * sum(sizes) ** 2 * item if method == "exact" else 0,
            probes_at_once=products.chunk,
            seconds=each * count,
            skipped=tape.skipped,
        )
