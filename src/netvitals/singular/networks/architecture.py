r"""Networks on the canonical singular configuration, and the path that leaves it.

Every weight is $W_\ell(t) = \mathrm{diag}(1, \dots, 1, t)$ in some frame: at t = 0 the last channel is dead in all
layers, and t measures the distance. Builders return pre-activations as nodes of the graph, for gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda z: z,
    "relu": torch.relu,
    "gelu": F.gelu,
    "tanh": torch.tanh,
    "silu": F.silu,
    "sigmoid-shifted": lambda z: torch.sigmoid(z) - 0.5,
}
GATES = {**{name: ACTIVATIONS[name] for name in ("silu", "gelu", "relu", "linear")}, "sigmoid": torch.sigmoid}


@dataclass
class ArchitectureTrace:
    """One forward pass: what K-FAC needs of every layer."""

    output: Tensor
    names: list[str]
    inputs: list[Tensor]  # x_{l−1}, (samples, width) or (samples, tokens, width)
    preactivations: list[Tensor]  # z_l, part of the graph
    stream: list[Tensor]  # X_0 … X_L
    dead: list[Tensor]  # dead unit vector in the output space of each layer
    dead_in: list[Tensor]  # and in its input space


@dataclass(frozen=True)
class Chain:
    """Feedforward chain, with the modifications the theory covers.

    Args:
        depth: number of layers.
        width: of every layer.
        activation: name of one of the activations that the theory covers.
        exponents: per dead direction, the power of t in each layer; one direction with all ones by default, 0 keeps a
            weight alive and infinity keeps it dead.
        bias: power q of t in the biases t^q e_dead, None for no bias.
        norm_after: positions p at which a norm sits between x_p and W_{p+1} (LayerNorm without gain).
        norm: ``layer`` or ``rms``.
        skips: identity skips (a, b): x_b gets x_a added.
        widths: rectangular widths n_0 … n_L (isometric frames); square of ``width`` by default.
        rotation: angle by which the dead axis of every hidden layer is turned away from the units' axes.
        activate_last: an activation after the last layer too.

    >>> chain = Chain(depth=2, width=4, activation="relu")
    >>> len(chain.trace(0.1, torch.rand(5, 4, dtype=torch.float64)).stream)
    3
    """

    depth: int = 4
    width: int = 8
    activation: str = "linear"
    exponents: tuple[tuple[float, ...], ...] = ()
    bias: int | None = None
    norm_after: tuple[int, ...] = ()
    norm: str = "layer"
    skips: tuple[tuple[int, int], ...] = ()
    widths: tuple[int, ...] = ()
    rotation: float = 0.0
    activate_last: bool = False

    def __post_init__(self) -> None:
        if self.depth < 1 or self.width < 2:
            raise ValueError(f"a chain needs depth ≥ 1 and width ≥ 2, got depth {self.depth} and width {self.width}")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation= must be one of {', '.join(ACTIVATIONS)}, got {self.activation!r}")
        if self.widths and len(self.widths) != self.depth + 1:
            raise ValueError(f"a chain of depth {self.depth} needs {self.depth + 1} widths, got {len(self.widths)}")
        if any(len(e) != self.depth for e in self.exponents):
            raise ValueError(
                f"each dead direction needs one exponent for each of the {self.depth} layers, got {self.exponents}"
            )
        if any(not 0 <= p < self.depth for p in self.norm_after) or self.norm not in ("layer", "rms"):
            raise ValueError(
                "norm= must be 'layer' or 'rms', and norm_after= must lie between 0 and depth − 1; got "
                f"{self.norm!r} and {self.norm_after}"
            )
        if any(not 0 <= a < b <= self.depth for a, b in self.skips):
            raise ValueError(f"a skip connection (a, b) needs 0 ≤ a < b ≤ depth, got {self.skips}")

    @property
    def powers(self) -> tuple[tuple[float, ...], ...]:
        return self.exponents or ((1,) * self.depth,)

    @property
    def rank(self) -> int:
        return min(self.widths) if self.widths else self.width

    def frames(self) -> list[Tensor]:
        """Isometries Q_l: R^r → R^{n_l}; identity for square chains, turned where a rotation is asked for."""
        r, widths = self.rank, self.widths or (self.width,) * (self.depth + 1)
        if not self.widths:
            return [_plane_rotation(r, self.rotation if 0 < i < self.depth else 0.0) for i in range(self.depth + 1)]
        generator = torch.Generator().manual_seed(7)
        # where an activation acts elementwise the frame must be a set of axes; for linear chains any isometry will do
        if self.activation != "linear":
            return [torch.eye(n, r, dtype=torch.float64) for n in widths]
        return [torch.linalg.qr(torch.randn(n, r, generator=generator, dtype=torch.float64))[0] for n in widths]

    def trace(self, t: float, x: Tensor) -> ArchitectureTrace:
        """Inputs, pre-activations and stream at ``t`` on inputs ``x`` (examples, width)."""
        frames, r, q = self.frames(), self.rank, len(self.powers)
        phi = ACTIVATIONS[self.activation]
        stream, zs, inputs = [x], [], []
        h = x
        for i in range(self.depth):
            entries = torch.ones(r, dtype=torch.float64)
            for j, powers in enumerate(self.powers):
                entries[r - 1 - j] = t ** powers[i]
            weight = frames[i + 1] @ torch.diag(entries) @ frames[i].T
            source = normed(h, self.norm) if i in self.norm_after else h
            z = source @ weight.T
            if self.bias is not None:
                z = z + t**self.bias * frames[i + 1][:, -1]
            z = z.requires_grad_() if not z.requires_grad else z
            inputs.append(source)
            zs.append(z)
            h = phi(z) if i < self.depth - 1 or self.activate_last else z
            for a, b in self.skips:
                if b == i + 1:
                    h = h + stream[a]
            stream.append(h)
        dead = [f[:, r - q :] for f in frames]
        return ArchitectureTrace(
            output=h,
            names=[f"layer{i + 1}" for i in range(self.depth)],
            inputs=inputs,
            preactivations=zs,
            stream=stream,
            dead=dead[1:],
            dead_in=dead[:-1],
        )


@dataclass(frozen=True)
class AttentionChain:
    """A chain of attention blocks with W_c(t) = diag(1, …, 1, t) for c in Q, K, V, O (§2.9).

    Attributes:
        blocks: how many.
        tokens: of a sequence.
        width: of a token.
        heads: of each block.
        causal: mask what comes later.
        residual: add each block to the stream.
        norm: LayerNorm before each block.

    >>> chain = AttentionChain(blocks=1, tokens=3, width=4)
    >>> len(chain.trace(0.1, torch.randn(2, 3, 4, dtype=torch.float64)).stream)
    2
    """

    blocks: int = 2
    tokens: int = 8
    width: int = 8
    heads: int = 1
    causal: bool = False
    residual: bool = False
    norm: bool = False

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(
                f"the width must be a multiple of the number of heads, got width {self.width} and {self.heads} heads"
            )

    def trace(self, t: float, x: Tensor) -> ArchitectureTrace:
        """Inputs, pre-activations and stream at ``t`` on inputs ``x`` (examples, tokens, width)."""
        d = self.width
        weight = torch.diag(torch.tensor([1.0] * (d - 1) + [t], dtype=torch.float64))
        axis = torch.eye(d, dtype=torch.float64)[:, -1:]
        names, inputs, zs, stream = [], [], [], [x]
        mask = torch.full((x.shape[1], x.shape[1]), -math.inf, dtype=torch.float64).triu(1) if self.causal else 0.0
        h = x
        for b in range(self.blocks):
            source = normed(h, "layer") if self.norm else h
            q, k, v = (
                (source @ weight.T).requires_grad_() if not source.requires_grad else source @ weight.T
                for _ in range(3)
            )
            split = lambda s: s.reshape(*s.shape[:2], self.heads, d // self.heads).transpose(1, 2)
            scores = split(q) @ split(k).mT / math.sqrt(d // self.heads) + mask
            mixed = (scores.softmax(-1) @ split(v)).transpose(1, 2).reshape(source.shape)
            o = mixed @ weight.T
            for name, z, into in (("q", q, source), ("k", k, source), ("v", v, source), ("o", o, mixed)):
                names.append(f"block{b}.{name}")
                zs.append(z)
                inputs.append(into)
            h = h + o if self.residual else o
            stream.append(h)
        return ArchitectureTrace(
            output=h,
            names=names,
            inputs=inputs,
            preactivations=zs,
            stream=stream,
            dead=[axis] * len(names),
            dead_in=[axis] * len(names),
        )


@dataclass(frozen=True)
class SwiGLUStack:
    """n gated blocks y = W_d(f(W_g x) ⊙ W_u x), all three weights on the canonical path.

    Attributes:
        blocks: how many.
        width: of every layer.
        gate: f by name: "silu" (SwiGLU), "gelu" (GeGLU), "relu" (ReGLU), "linear" (bilinear) or "sigmoid" (GLU).

    >>> stack = SwiGLUStack(blocks=1, width=4)
    >>> len(stack.trace(0.1, torch.rand(5, 4, dtype=torch.float64)).stream)
    2
    """

    blocks: int = 1
    width: int = 6
    gate: str = "silu"

    def __post_init__(self) -> None:
        if self.gate not in GATES:
            raise ValueError(f"gate= must be one of {', '.join(GATES)}, got {self.gate!r}")

    def trace(self, t: float, x: Tensor) -> ArchitectureTrace:
        """Inputs, pre-activations and stream at ``t`` on inputs ``x`` (examples, width)."""
        weight = torch.diag(torch.tensor([1.0] * (self.width - 1) + [t], dtype=torch.float64))
        axis = torch.eye(self.width, dtype=torch.float64)[:, -1:]
        h, stream, zs, inputs, gate = x, [x], [], [], GATES[self.gate]
        for _ in range(self.blocks):
            inside = gate(h @ weight.T) * (h @ weight.T)
            z = inside @ weight.T
            z = z.requires_grad_() if not z.requires_grad else z
            inputs.append(inside)
            zs.append(z)
            h = z
            stream.append(h)
        names = [f"block{i}.down" for i in range(self.blocks)]
        return ArchitectureTrace(
            output=h,
            names=names,
            inputs=inputs,
            preactivations=zs,
            stream=stream,
            dead=[axis] * self.blocks,
            dead_in=[axis] * self.blocks,
        )


Architecture = Chain | AttentionChain | SwiGLUStack


def normed(x: Tensor, kind: str) -> Tensor:
    """Layer norm or RMS norm over the last dimension, without gain or shift."""
    centred = x - x.mean(-1, keepdim=True) if kind == "layer" else x
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-30).sqrt()  # a sample with no live unit stays 0


def _plane_rotation(n: int, angle: float) -> Tensor:
    """Turns the dead axis towards the first one."""
    r = torch.eye(n, dtype=torch.float64)
    c, s = math.cos(angle), math.sin(angle)
    r[0, 0], r[0, -1], r[-1, 0], r[-1, -1] = c, s, -s, c
    return r
