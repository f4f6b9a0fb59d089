"""Nodes by name: linear, activations, norms, softmax, products, attention, pooling, recurrence, noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from netvitals.activations import ACTIVATIONS
from netvitals.curvature.dag.graph import GraphNode
from netvitals.curvature.dag.rules import Dense, Elementwise, Hadamard, Linear, MatMul, Normalised, SoftmaxRule

PIECEWISE = {function for row in ACTIVATIONS if row.piecewise_linear for function, _ in row.callables()}


def dense(
    name: str, parents: Sequence[str], width: int, f: Callable[[Tensor], Tensor] | None = None, theta: str | None = None
) -> GraphNode:
    """σ(Wx + b) over the concatenated parents; θ = (W, b) flat under the key ``theta`` (default: the node's name)."""
    rule = Dense(width, f, bends=f is not None and f not in PIECEWISE)
    return GraphNode(name, tuple(parents), rule, theta or name, rule=rule)


def dense_parameters(width: int, inputs: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Random flat (W, b) for ``dense``, scaled by the square root of the number of inputs."""
    g = torch.Generator().manual_seed(seed)
    w = torch.randn(width, inputs, generator=g, dtype=dtype) / inputs**0.5
    return torch.cat([w.reshape(-1), 0.3 * torch.randn(width, generator=g, dtype=dtype)])


def activation(name: str, parent: str, f: Callable[[Tensor], Tensor]) -> GraphNode:
    """σ(x), entry by entry; functions known to be piecewise linear have no second derivative in the rule."""
    rule = Elementwise(f, bends=f not in PIECEWISE)
    return GraphNode(name, (parent,), rule, rule=rule)


def norm(name: str, parent: str, kind: str = "layer", eps: float = 1e-5) -> GraphNode:
    """LayerNorm or RMSNorm without affine."""
    if kind not in ("layer", "rms"):
        raise ValueError(f"kind= must be 'layer' or 'rms', got {kind!r}")
    rule = Normalised(kind == "layer", eps)
    return GraphNode(name, (parent,), rule, rule=rule)


def softmax(name: str, parent: str) -> GraphNode:
    """softmax(x) over all coordinates of the parent."""
    rule = SoftmaxRule()
    return GraphNode(name, (parent,), rule, rule=rule)


def hadamard(name: str, a: str, b: str) -> GraphNode:
    """a ⊙ b, entry by entry."""
    rule = Hadamard()
    return GraphNode(name, (a, b), rule, rule=rule)


def matmul(name: str, a: str, b: str, m: int, k: int, n: int) -> GraphNode:
    """(m, k) times (k, n), all flat."""
    rule = MatMul(m, k, n)
    return GraphNode(name, (a, b), rule, rule=rule)


def add(name: str, parents: Sequence[str], scale: float = 1.0) -> GraphNode:
    """``scale`` times the sum of the parents."""
    return _linear(name, parents, lambda *xs: scale * sum(xs[1:], xs[0]))


def concat(name: str, parents: Sequence[str]) -> GraphNode:
    """The parents one after another, as one vector."""
    return _linear(name, parents, lambda *xs: torch.cat(xs))


def scale(name: str, parent: str, factor: Tensor | float) -> GraphNode:
    """Multiply by a constant: an affine γ, an eval-mode batch norm, a residual weight."""
    return _linear(name, [parent], lambda x: factor * x)


def convolution(
    name: str, parent: str, weight: Tensor, shape: Sequence[int], stride: int = 1, padding: int = 0
) -> GraphNode:
    """A convolution with fixed weights on a flat image of (channels, height, width)."""
    apply = lambda x: F.conv2d(x.reshape(1, *shape), weight, stride=stride, padding=padding)
    return _linear(name, [parent], lambda x: apply(x).reshape(-1))


def average_pool(name: str, parent: str, shape: Sequence[int], size: int) -> GraphNode:
    """Means over ``size`` × ``size`` windows of a flat image of (channels, height, width)."""
    return _linear(name, [parent], lambda x: F.avg_pool2d(x.reshape(1, *shape), size).reshape(-1))


def max_pool(name: str, parent: str, shape: Sequence[int], size: int) -> GraphNode:
    """Piecewise linear: the rule takes the Jacobian where it is and no second derivative."""
    return _linear(name, [parent], lambda x: F.max_pool2d(x.reshape(1, *shape), size).reshape(-1))


def batch_norm(name: str, parent: str, mean: Tensor, variance: Tensor, eps: float = 1e-5) -> GraphNode:
    """Eval mode: affine with the running statistics, one per coordinate."""
    return GraphNode(name, (parent,), lambda x, theta: (x - mean) / (variance + eps).sqrt())


def batch_norm_train(name: str, parent: str, samples: int, eps: float = 1e-5) -> GraphNode:
    """Train mode couples samples: the whole batch is one vector (samples · channels) of a graph with batch size one."""

    def fn(x: Tensor, theta: Tensor | None) -> Tensor:
        rows = x.reshape(samples, -1)
        c = rows - rows.mean(0)
        return (c / (c.square().mean(0) + eps).sqrt()).reshape(-1)

    return GraphNode(name, (parent,), fn)


def embedding(name: str, tokens: str, width: int, theta: str | None = None) -> GraphNode:
    """Rows of a table (vocabulary · width, flat) for integer inputs, concatenated."""
    return GraphNode(name, (tokens,), lambda t, table: table.reshape(-1, width)[t].reshape(-1), theta or name)


def attention(
    name: str, q: str, k: str, v: str, positions: int, width: int, heads: int = 1, softmaxed: bool = True
) -> GraphNode:
    """softmax(QKᵀ/√d)V per head on flat (positions, width); fan-in three. ``softmaxed=False`` is QKᵀV/√d."""
    d = width // heads

    def fn(fq: Tensor, fk: Tensor, fv: Tensor, theta: Tensor | None) -> Tensor:
        split = lambda x: x.reshape(positions, heads, d).transpose(0, 1)
        z = split(fq) @ split(fk).mT / d**0.5
        a = torch.softmax(z, -1) if softmaxed else z
        return (a @ split(fv)).transpose(0, 1).reshape(-1)

    return GraphNode(name, (q, k, v), fn)


def unrolled(
    name: str, steps: int, width: int, state: str, f: Callable[[Tensor], Tensor] = torch.tanh, theta: str = "cell"
) -> list[GraphNode]:
    """A recurrence h ← σ(Wh + b), unrolled; every step is a node and all share one parameter vector."""
    names = [f"{name}{i}" for i in range(steps)]
    return [dense(n, [p], width, f, theta) for n, p in zip(names, [state, *names])]


def noisy(name: str, parent: str, noise: str, scale_of: Callable[[Tensor], Tensor]) -> GraphNode:
    """A reparameterised stochastic node f = h + s(h)·ε, with ε an input of the graph."""
    return GraphNode(name, (parent, noise), lambda h, eps, theta: h + scale_of(h) * eps)


def _linear(name: str, parents: Sequence[str], f: Callable[..., Tensor]) -> GraphNode:
    rule = Linear(f)
    return GraphNode(name, tuple(parents), rule, rule=rule)
