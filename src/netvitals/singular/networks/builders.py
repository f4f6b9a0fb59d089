r"""More networks for the freeze probe: autoencoders, superposition, block pairs, and a probe block in a pre-norm stack.

Each has ``trace(t, x)`` as :class:`Chain` has; ``target(x)``, where there is one, replaces the output at t = 0 as what
is learned, and ``predicted`` holds the exponents of G that the theory gives (dead-directions §5).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from netvitals.singular.networks.architecture import ACTIVATIONS, ArchitectureTrace, normed
from netvitals.singular.networks.crossed import CrossAttentionChain, ProjectedChain

f64 = torch.float64


@dataclass(frozen=True)
class Autoencoder:
    """Two layers with one dead hidden unit: incoming row t·u, outgoing column t·v (experiment X8).

    ``identity`` reconstructs the input, so that the residual is of order one; otherwise a teacher with the unit off.
    """

    width: int = 6
    hidden: int = 4
    activation: str = "linear"
    identity: bool = True
    seed: int = 0

    @property
    def predicted(self) -> dict[str, float]:
        """With noisy or identity targets; a noise-free teacher adds 2L = 4."""
        return {"layer1": 2, "layer2": 0}

    def target(self, x: Tensor) -> Tensor:
        return x if self.identity else self.trace(0.0, x).output.detach()

    def trace(self, t: float, x: Tensor) -> ArchitectureTrace:
        gen = torch.Generator().manual_seed(self.seed)
        live = torch.linalg.qr(torch.randn(self.width, self.hidden - 1, generator=gen, dtype=f64))[0]
        u, v = (_unit(torch.randn(self.width, generator=gen, dtype=f64)) for _ in range(2))
        first = torch.cat([live.T, t * u[None]])
        second = torch.cat([live, t * v[:, None]], 1)
        z = (x @ first.T).requires_grad_()
        h = ACTIVATIONS[self.activation](z)
        out = h @ second.T
        unit = torch.eye(self.hidden, dtype=f64)[:, -1:]
        return ArchitectureTrace(
            output=out,
            names=["layer1", "layer2"],
            inputs=[x, h],
            preactivations=[z, out],
            stream=[x, h, out],
            dead=[unit, v[:, None]],
            dead_in=[u[:, None], unit],
        )


@dataclass(frozen=True)
class Superposition:
    """Tied linear autoencoder x̂ = WᵀWx whose last hidden unit is dead: the ray W* + t·e uᵀ (experiment X5).

    ``generic`` draws u at random; otherwise it is orthogonal to the live rows.
    """

    width: int = 6
    hidden: int = 3
    generic: bool = True
    seed: int = 0

    @property
    def predicted(self) -> dict[str, float]:
        """With noise; without it 2L = 4 more."""
        return {"hidden": 2, "output": 0}

    def trace(self, t: float, x: Tensor) -> ArchitectureTrace:
        gen = torch.Generator().manual_seed(self.seed)
        live = torch.linalg.qr(torch.randn(self.width, self.hidden - 1, generator=gen, dtype=f64))[0].T
        u = torch.randn(self.width, generator=gen, dtype=f64)
        u = _unit(u if self.generic else u - live.T @ (live @ u))
        w = torch.cat([live, t * u[None]])
        z = (x @ w.T).requires_grad_()
        out = z @ w
        unit = torch.eye(self.hidden, dtype=f64)[:, -1:]
        return ArchitectureTrace(
            output=out,
            names=["hidden", "output"],
            inputs=[x, z],
            preactivations=[z, out],
            stream=[x, z, out],
            dead=[unit, u[:, None]],
            dead_in=[u[:, None], unit],
        )


@dataclass(frozen=True)
class BlockPair:
    """Two blocks, each attention (A) or a two-weight linear MLP (M): dead gradients at input, middle and output (X17).

    The first block being attention caps the rate at the input: its score path injects gradient of a fixed order.
    """

    kinds: str = "AM"
    tokens: int = 5
    width: int = 6

    def __post_init__(self) -> None:
        if len(self.kinds) != 2 or set(self.kinds) - set("AM"):
            raise ValueError(f"kinds= must be two letters out of A (attention) and M (MLP), got {self.kinds!r}")

    @property
    def predicted(self) -> dict[str, float]:
        return {"input": 4 if self.kinds[0] == "A" else 8, "middle": 4, "output": 0}

    def trace(self, t: float, x: Tensor) -> ArchitectureTrace:
        d = self.width
        weight = torch.diag(torch.tensor([1.0] * (d - 1) + [t], dtype=f64))
        nodes = [x.detach().clone().requires_grad_()]
        for kind in self.kinds:
            h = nodes[-1] @ weight
            if kind == "A":
                h = (h @ h.mT / math.sqrt(d)).softmax(-1) @ h
            nodes.append(h @ weight)
        axis = torch.eye(d, dtype=f64)[:, -1:]
        return ArchitectureTrace(
            output=nodes[-1],
            names=["input", "middle", "output"],
            inputs=nodes,
            preactivations=nodes,
            stream=nodes,
            dead=[axis] * 3,
            dead_in=[axis] * 3,
        )


@dataclass(frozen=True)
class PreNormProbe:
    """A stack x ← x + W₂ φ(W₁ LN(x)) in which only one block is on the singular path (experiment X20)."""

    blocks: int = 3
    probe: int = 0
    width: int = 8
    activation: str = "gelu"
    norm: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.probe < self.blocks:
            raise ValueError(f"probe= is the index of a block and must lie in 0 … {self.blocks - 1}, got {self.probe}")

    @property
    def predicted(self) -> dict[str, float]:
        """As without norms: the skip leaves the output of the block at rate 0, its inner layer one weight away."""
        return {"fc1": 2, "fc2": 0}

    def trace(self, t: float, x: Tensor) -> ArchitectureTrace:
        gen = torch.Generator().manual_seed(self.seed)
        d, phi = self.width, ACTIVATIONS[self.activation]
        dead = torch.diag(torch.tensor([1.0] * (d - 1) + [t], dtype=f64))
        axis = torch.eye(d, dtype=f64)[:, -1:]
        h, zs, inputs, stream = x, [], [], [x]
        for b in range(self.blocks):
            first, second = (torch.randn(d, d, generator=gen, dtype=f64) / math.sqrt(d) for _ in range(2))
            if b == self.probe:
                first = second = dead
            source = normed(h, "layer") if self.norm else h
            z1 = source @ first.T
            z1 = z1 if z1.requires_grad else z1.requires_grad_()
            inside = phi(z1)
            z2 = inside @ second.T
            h = h + z2
            stream.append(h)
            if b == self.probe:
                zs, inputs = [z1, z2], [source, inside]
        return ArchitectureTrace(
            output=h,
            names=["fc1", "fc2"],
            inputs=inputs,
            preactivations=zs,
            stream=[x, h],
            dead=[axis] * 2,
            dead_in=[axis] * 2,
        )


@dataclass(frozen=True)
class Memorised:
    """A linear chain under cross-entropy whose labels are already known: level·log(1/t) + offset added to the label's
    logit, so that 1 − p_y = ε ~ t^level (experiment X15).

    At a fixed level (``deepens`` = 0) both Fishers keep the ladder; where memorisation deepens with t the expected one
    gains ``deepens`` (ε) and the empirical one 2·``deepens`` (ε²): assumption 34 fails.
    """

    depth: int = 3
    width: int = 8
    offset: float = 6.0
    deepens: float = 0.0

    def labels(self, x: Tensor) -> Tensor:
        return torch.arange(len(x)) % self.width

    def predicted(self, fisher: str) -> dict[str, float]:
        extra = self.deepens * (1 if fisher == "expected" else 2)
        return {f"layer{i + 1}": 2 * (self.depth - 1 - i) + extra for i in range(self.depth)}

    def trace(self, t: float, x: Tensor) -> ArchitectureTrace:
        weight = torch.diag(torch.tensor([1.0] * (self.width - 1) + [t], dtype=f64))
        h, zs, inputs, stream = x, [], [], [x]
        for _ in range(self.depth):
            inputs.append(h)
            h = h @ weight.T
            h = h if h.requires_grad else h.requires_grad_()
            zs.append(h)
            stream.append(h)
        level = self.offset + self.deepens * (math.log(1 / t) if t > 0 else 0.0)
        out = h + level * F.one_hot(self.labels(x), self.width).to(h)
        axis = torch.eye(self.width, dtype=f64)[:, -1:]
        return ArchitectureTrace(
            output=out,
            names=[f"layer{i + 1}" for i in range(self.depth)],
            inputs=inputs,
            preactivations=zs,
            stream=stream,
            dead=[axis] * self.depth,
            dead_in=[axis] * self.depth,
        )


@dataclass(frozen=True)
class DiagonalNet:
    r"""$f(x) = x \cdot (u \odot u - v \odot v)$ with a sparse truth: two layers, each one number a coordinate (X22).

    At an inactive coordinate $u_i = v_i = 0$: the ray along either has order 2, and $(u_i - v_i)(u_i + v_i)$ is a
    crossing with λ = ½, m = 2. θ is u followed by v.

    >>> net = DiagonalNet(width=3, active=1)
    >>> x, y = net.task(samples=4)
    >>> bool(torch.allclose(net.outputs(torch.tensor([1.0, 0, 0, 0, 0, 0], dtype=f64), x), y))
    True
    """

    width: int = 40
    active: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.active <= self.width:
            raise ValueError(
                f"active= is the number of active coordinates and must lie between 0 and {self.width}, got "
                f"{self.active}"
            )

    def truth(self) -> Tensor:
        return torch.cat([torch.ones(self.active, dtype=f64), torch.zeros(self.width - self.active, dtype=f64)])

    def task(self, samples: int = 40) -> tuple[Tensor, Tensor]:
        """Gaussian inputs and what the truth answers, (n, width) and (n, 1)."""
        x = torch.randn(samples, self.width, generator=torch.Generator().manual_seed(self.seed), dtype=f64)
        return x, (x @ self.truth())[:, None]

    def outputs(self, theta: Tensor, x: Tensor) -> Tensor:
        u, v = theta[: self.width], theta[self.width :]
        return (x @ (u * u - v * v))[:, None]

    def at_truth(self) -> Tensor:
        """u and v that compute the truth, inactive coordinates at their singular point."""
        return torch.cat([self.truth(), torch.zeros(self.width, dtype=f64)])


Builder = Autoencoder | Superposition | BlockPair | PreNormProbe | Memorised | ProjectedChain | CrossAttentionChain


def inputs_of(builder: Builder) -> Callable[[int, torch.Generator], Tensor]:
    """Gaussian inputs of the builder's shape."""
    shape: tuple[int, ...] = (builder.tokens, builder.width) if isinstance(builder, BlockPair) else (builder.width,)
    shape = builder.shape if isinstance(builder, CrossAttentionChain) else shape
    return lambda samples, generator: torch.randn(samples, *shape, generator=generator, dtype=f64)


def _unit(v: Tensor) -> Tensor:
    return v / v.norm()
