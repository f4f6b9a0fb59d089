r"""A pre-norm transformer with one block on the singular path: six components, each with its distance to the stream.

$x \leftarrow x + W_O\,\mathrm{attention}(\mathrm{LN}(x))$, then $x \leftarrow x + W_2\,\varphi(W_1 \mathrm{LN}(x))$. In
the probe block all six weights are $\mathrm{diag}(1, \dots, 1, t)$, those of the others are drawn at random. As t → 0
the slope of a component's dead gradient is twice the number of dead weights between it and the stream, as without norms
(Remark 62); in a window of larger t it is shifted, by component (§9.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from netvitals.capture import Result
from netvitals.singular.networks.architecture import ACTIVATIONS, ArchitectureTrace, normed
from netvitals.singular.orders.rates import rate_fit

f64 = torch.float64
COMPONENTS = ("q", "k", "v", "o", "fc1", "fc2")


@dataclass(frozen=True)
class PreNormTransformer:
    """Blocks of attention and a feedforward net, each behind a LayerNorm, one of them on the path.

    Attributes:
        blocks: how many.
        probe: the one on the path, counted from 0.
        tokens: of a sequence.
        width: of a token.
        activation: of the feedforward nets.
        norm: with LayerNorms; without, the same stack as the reference.
        seed: of the weights that are not on the path.

    >>> net = PreNormTransformer(blocks=2, tokens=3, width=4)
    >>> net.trace(0.1, torch.randn(2, 3, 4, dtype=f64)).names
    ['q', 'k', 'v', 'o', 'fc1', 'fc2']
    """

    blocks: int = 2
    probe: int = 0
    tokens: int = 6
    width: int = 8
    activation: str = "gelu"
    norm: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.probe < self.blocks:
            raise ValueError(f"probe= is the index of a block and must lie in 0 … {self.blocks - 1}, got {self.probe}")

    @property
    def distances(self) -> dict[str, float]:
        """Dead weights between a component and the stream; those of queries and keys go through the scores."""
        return {"q": 1, "k": 1, "v": 1, "o": 0, "fc1": 1, "fc2": 0}

    @property
    def predicted(self) -> dict[str, float]:
        """Slopes as t → 0: twice the distance."""
        return {name: 2 * d for name, d in self.distances.items()}

    def inputs(self, samples: int, generator: torch.Generator) -> Tensor:
        """Gaussian tokens."""
        return torch.randn(samples, self.tokens, self.width, generator=generator, dtype=f64)

    def trace(self, t: float, x: Tensor) -> ArchitectureTrace:
        """Inputs and pre-activations of the probe block's components at ``t``."""
        gen = torch.Generator().manual_seed(self.seed)
        d, phi = self.width, ACTIVATIONS[self.activation]
        dead = torch.diag(torch.tensor([1.0] * (d - 1) + [t], dtype=f64))
        norm = lambda h: normed(h, "layer") if self.norm else h
        h, zs, inputs = x, [], []
        for b in range(self.blocks):
            drawn = [torch.randn(d, d, generator=gen, dtype=f64) / math.sqrt(d) for _ in COMPONENTS]
            q_w, k_w, v_w, o_w, first, second = [dead] * 6 if b == self.probe else drawn
            source = norm(h)
            if b == self.probe:
                source = source if source.requires_grad else source.requires_grad_()
            q, k, v = (source @ w.T for w in (q_w, k_w, v_w))
            mixed = (q @ k.mT / math.sqrt(d)).softmax(-1) @ v
            o = mixed @ o_w.T
            h = h + o
            middle = norm(h)
            z1 = middle @ first.T
            inside = phi(z1)
            z2 = inside @ second.T
            h = h + z2
            if b == self.probe:
                zs, inputs = [q, k, v, o, z1, z2], [source, source, source, mixed, middle, inside]
        axis = torch.eye(d, dtype=f64)[:, -1:]
        return ArchitectureTrace(
            output=h,
            names=list(COMPONENTS),
            inputs=inputs,
            preactivations=zs,
            stream=[x, h],
            dead=[axis] * 6,
            dead_in=[axis] * 6,
        )


@dataclass(frozen=True, kw_only=True)
class ComponentShift(Result):
    r"""$\mathrm{slope}_c = 2\,\mathrm{dist}_c - \delta\,n_c$: what a window adds to the slope of every component.

    Returned by :func:`component_shift`.

    Attributes:
        slopes: measured in the window, by component.
        distances: dead weights between a component and the stream.
        reference: the component whose shift is δ.
    """

    slopes: dict[str, float]
    distances: dict[str, float]
    reference: str

    @property
    def shifts(self) -> dict[str, float]:
        """Twice the distance minus the slope; zero everywhere as t → 0."""
        return {name: 2 * self.distances[name] - slope for name, slope in self.slopes.items()}

    @property
    def delta(self) -> float:
        """The shift of the reference."""
        return self.shifts[self.reference]

    @property
    def counts(self) -> dict[str, float]:
        """n_c, the shift in units of δ; NaN where δ is zero."""
        return {name: shift / self.delta if self.delta else math.nan for name, shift in self.shifts.items()}

    def rows(self) -> list[dict[str, Any]]:
        """One row a component."""
        return [
            {"component": n, "slope": s, "shift": self.shifts[n], "count": self.counts[n]}
            for n, s in self.slopes.items()
        ]

    def __str__(self) -> str:
        parts = (f"{n} {s:.3f} (n = {self.counts[n]:.2f})" for n, s in self.slopes.items())
        return f"δ = {self.delta:.4f} at {self.reference}: " + ", ".join(parts)


def component_shift(
    net: PreNormTransformer,
    ts: Sequence[float],
    *,
    fisher: str = "expected",
    reference: str = "fc2",
    examples: int = 300,
    seed: int = 0,
) -> ComponentShift:
    """Slopes of the six components of the probe block over a window, and what they share (dead-directions §9.3).

    >>> found = component_shift(PreNormTransformer(tokens=4), (1e-4, 3e-4, 1e-3), examples=40)
    >>> max(abs(s) for s in found.shifts.values()) < 0.01
    True
    """
    if fisher not in ("expected", "empirical"):
        raise ValueError(f"fisher= must be 'expected' or 'empirical', got {fisher!r}")
    if reference not in COMPONENTS:
        raise ValueError(f"reference= must be one of {', '.join(COMPONENTS)}, got {reference!r}")
    if len(ts) < 3 or min(ts) <= 0:
        raise ValueError(f"fitting an exponent needs at least three values t > 0 in ts, got {list(ts)}")
    generator = torch.Generator().manual_seed(seed)
    x = net.inputs(examples, generator)
    noise = torch.randn(x.shape, generator=generator, dtype=f64)
    target = net.trace(0.0, x).output.detach() + noise
    moments: dict[str, list[float]] = {name: [] for name in COMPONENTS}
    for t in ts:
        trace = net.trace(t, x)
        seeds = noise if fisher == "expected" else trace.output.detach() - target
        for name, delta in zip(trace.names, torch.autograd.grad(trace.output, trace.preactivations, seeds)):
            moments[name].append(float(delta[..., -1].square().mean()))
    slopes = {name: rate_fit(ts, ys, floor=0.0).slope for name, ys in moments.items()}
    return ComponentShift(slopes=slopes, distances=net.distances, reference=reference)
