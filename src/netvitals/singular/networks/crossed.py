r"""Blocks whose dead signal comes from two places: cross-attention, and skips that carry a weight of their own.

As in :mod:`netvitals.singular.networks.architecture` every weight on the path is $\mathrm{diag}(1, \dots, 1, t)$. A
skip with a learned projection costs one power of t like any weight. Cross-attention reads queries from one stream and
keys and values from a memory, so that its dead amplitude is the memory's, whatever the stream carries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from netvitals.singular.networks.architecture import ACTIVATIONS, ArchitectureTrace

SIDES = {"both": "qkvo", "memory": "kv", "stream": "qo"}  # whose weights are on the path
_NEVER = math.inf  # order of a signal that is not there


@dataclass(frozen=True)
class ProjectedChain:
    r"""A chain in which $x_b$ also gets $P x_a$, with P on the canonical path: a shortcut that is learned.

    Attributes:
        depth: number of layers.
        width: of every layer.
        activation: name of one of the activations that the theory covers.
        projections: skips (a, b) with a weight of their own.

    >>> chain = ProjectedChain(depth=3, projections=((0, 3),))
    >>> chain.trace(0.1, torch.rand(5, 8, dtype=torch.float64)).names
    ['layer1', 'layer2', 'layer3', 'skip0-3']
    """

    depth: int = 4
    width: int = 8
    activation: str = "linear"
    projections: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation= must be one of {', '.join(ACTIVATIONS)}, got {self.activation!r}")
        if any(not 0 <= a < b <= self.depth for a, b in self.projections):
            raise ValueError(f"a projected skip connection (a, b) needs 0 ≤ a < b ≤ depth, got {self.projections}")

    @property
    def edges(self) -> dict[tuple[int, int], float]:
        """Cost by (from, to): 1 for a layer and for a projection."""
        return dict.fromkeys([*((i, i + 1) for i in range(self.depth)), *self.projections], 1)

    def trace(self, t: float, x: Tensor) -> ArchitectureTrace:
        """Inputs, pre-activations and stream at ``t`` on inputs ``x`` (examples, width)."""
        weight = torch.diag(torch.tensor([1.0] * (self.width - 1) + [t], dtype=torch.float64))
        axis, phi = torch.eye(self.width, dtype=torch.float64)[:, -1:], ACTIVATIONS[self.activation]
        stream, layers, skips = [x], [], []
        for i in range(self.depth):
            z = _leaf(stream[i] @ weight.T)
            layers.append((f"layer{i + 1}", stream[i], z))
            h = phi(z) if i < self.depth - 1 else z
            for a, b in self.projections:
                if b == i + 1:
                    p = _leaf(stream[a] @ weight.T)
                    skips.append((f"skip{a}-{b}", stream[a], p))
                    h = h + p
            stream.append(h)
        names, inputs, zs = zip(*layers, *skips)
        return ArchitectureTrace(
            output=stream[-1],
            names=list(names),
            inputs=list(inputs),
            preactivations=list(zs),
            stream=stream,
            dead=[axis] * len(names),
            dead_in=[axis] * len(names),
        )


@dataclass(frozen=True)
class CrossAttentionChain:
    """Blocks that all attend to one memory: Q from the stream, K and V from the memory, then O.

    Attributes:
        blocks: how many.
        tokens: of the stream.
        memory: tokens of the memory.
        width: of a token.
        sides: whose weights are on the path: "both", "memory" (K and V) or "stream" (Q and O); the others stay whole.
        stream_order: the stream's dead channel is of order t to this power at the input; infinity for none.
        memory_order: the same for the memory.

    >>> chain = CrossAttentionChain(blocks=1, tokens=3, memory=2, width=4)
    >>> len(chain.trace(0.1, torch.randn(2, *chain.shape, dtype=torch.float64)).stream)
    2
    """

    blocks: int = 2
    tokens: int = 6
    memory: int = 5
    width: int = 8
    sides: str = "both"
    stream_order: float = 0
    memory_order: float = 0

    def __post_init__(self) -> None:
        if self.sides not in SIDES:
            raise ValueError(f"sides= must be one of {', '.join(SIDES)}, got {self.sides!r}")
        if not (self.stream_order >= 0 and self.memory_order >= 0):
            raise ValueError(
                f"stream_order= and memory_order= must be at least 0, got {self.stream_order} and {self.memory_order}"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Of one example: the stream's tokens, then the memory's."""
        return self.tokens + self.memory, self.width

    def trace(self, t: float, x: Tensor) -> ArchitectureTrace:
        """Inputs, pre-activations and stream at ``t`` on inputs ``x`` (examples, tokens + memory, width)."""
        d, axis = self.width, torch.eye(self.width, dtype=torch.float64)[:, -1:]
        weights = {c: _scaled(torch.eye(d, dtype=torch.float64), t if c in SIDES[self.sides] else 1.0) for c in "qkvo"}
        h = _scaled(x[:, : self.tokens], _power(t, self.stream_order))
        memory = _scaled(x[:, self.tokens :], _power(t, self.memory_order))
        stream, names, inputs, zs = [h], [], [], []
        for b in range(self.blocks):
            q, k, v = (_leaf(s @ weights[c].T) for c, s in (("q", h), ("k", memory), ("v", memory)))
            mixed = (q @ k.mT / math.sqrt(d)).softmax(-1) @ v
            o = mixed @ weights["o"].T
            names += [f"block{b}.{c}" for c in "qkvo"]
            inputs += [h, memory, memory, mixed]
            zs += [q, k, v, o]
            stream.append(h := o)
        return ArchitectureTrace(
            output=h,
            names=names,
            inputs=inputs,
            preactivations=zs,
            stream=stream,
            dead=[axis] * len(names),
            dead_in=[axis] * len(names),
        )

    def exponents(self) -> tuple[dict[str, float], dict[str, float], tuple[float, ...]]:
        """Of G, A and the stream's amplitude; infinity where the dead entry is zero.

        The memory is as fresh in the last block as in the first: neither way does an order grow with depth.
        """
        w = {c: float(c in SIDES[self.sides]) for c in "qkvo"}
        key, value = w["k"] + self.memory_order, w["v"] + self.memory_order
        out = w["o"] + value  # amplitude behind a block: the value's, never the query's
        g: dict[str, float] = {}
        a: dict[str, float] = {}
        for b in range(self.blocks):
            stream = self.stream_order if b == 0 else out
            above = 0.0 if b == self.blocks - 1 else w["q"] + key  # what comes back through the scores
            g |= {f"block{b}.q": 2 * key, f"block{b}.k": 2 * (w["q"] + stream)}
            g |= {f"block{b}.v": 2 * (w["o"] + above), f"block{b}.o": 2 * above}
            a |= {f"block{b}.q": 2 * stream, f"block{b}.k": 2 * self.memory_order, f"block{b}.v": 2 * self.memory_order}
            a |= {f"block{b}.o": 2 * value}
        return g, a, (self.stream_order, *[out] * self.blocks)


def _leaf(z: Tensor) -> Tensor:
    return z if z.requires_grad else z.requires_grad_()


def _scaled(x: Tensor, by: float) -> Tensor:
    """The last channel times a number."""
    return torch.cat([x[..., :-1], by * x[..., -1:]], -1)


def _power(t: float, order: float) -> float:
    return 0.0 if order == _NEVER else t**order
