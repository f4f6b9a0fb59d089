"""Multilayer perceptrons: plain, residual, with one narrow layer, and the diamond with two branches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from netvitals_lab.models.parts import activation, flat, initialise, norm


@dataclass(frozen=True)
class MLPSpec:
    """An MLP ``inputs - hidden... - outputs``; every hidden layer is linear, norm, activation.

    kind:
        ``plain``       the chain.
        ``residual``    first layer as in plain, then x + L^(-1/2) f(W x + b) over the L others, which must have
                        the first one's width and carry no norm unless ``norm_blocks=True``.
        ``bottleneck``  plain, with block L//2 (counted after the first layer) narrowed to ``neck`` units.
        ``diamond``     first layer, then two branches of the remaining layers side by side, joined by
                        ``merge=sum``, (A + B)/√2, or ``merge=cat``, f(W [A, B] + b).
    """

    inputs: int = 64
    hidden: tuple[int, ...] = (128, 128, 128)
    outputs: int = 10
    act: str = "relu"
    norm: str = "none"
    kind: str = "plain"
    bias: bool = True
    init: str = "default"
    readout: float = 1.0  # the head's weights are multiplied by this after the initialisation
    neck: int = 8
    merge: str = "sum"
    norm_blocks: bool | None = None
    spectral: bool = False  # spectral norm on every linear layer but the head
    dropout: float = 0.0

    def build(self) -> nn.Module:
        if not self.hidden:
            raise ValueError("an MLP needs at least one hidden layer, as in mlp:64-128-10")
        kinds = {"plain": MLP, "residual": MLP, "bottleneck": MLP, "diamond": Diamond}
        if self.kind not in kinds:
            raise ValueError(f"an MLP is plain, residual, bottleneck or diamond, got kind={self.kind!r}")
        if self.kind in ("residual", "diamond") and len(set(self.hidden)) != 1:
            raise ValueError(f"a {self.kind} MLP has hidden layers of one width, got {self.hidden}")
        return kinds[self.kind](self)

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths from input to the last hidden layer, the neck included.

        >>> MLPSpec(hidden=(32,) * 7, kind="bottleneck", neck=4).widths
        (64, 32, 32, 32, 32, 4, 32, 32)
        """
        hidden = list(self.hidden)
        if self.kind == "bottleneck":
            if len(hidden) < 2:
                raise ValueError("a bottleneck MLP needs at least two hidden layers")
            hidden[1 + (len(hidden) - 1) // 2] = self.neck
        return (self.inputs, *hidden)


class Block(nn.Module):
    """x ↦ f(norm(W x + b)), or x + scale · that when ``scale`` is given."""

    def __init__(self, n_in: int, n_out: int, spec: MLPSpec, *, normed: bool = True, scale: float | None = None):
        super().__init__()
        linear = nn.Linear(n_in, n_out, bias=spec.bias)
        self.linear = nn.utils.parametrizations.spectral_norm(linear) if spec.spectral else linear
        self.norm = norm(spec.norm if normed else "none", n_out, 2)
        self.act = activation(spec.act)
        self.dropout = nn.Dropout(spec.dropout) if spec.dropout else nn.Identity()
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        y = self.dropout(self.act(self.norm(self.linear(x))))
        return y if self.scale is None else x + self.scale * y


class MLP(nn.Module):
    """``blocks.0`` is the layer that meets the input, ``head`` the linear readout."""

    def __init__(self, spec: MLPSpec):
        super().__init__()
        self.spec = spec
        residual = spec.kind == "residual"
        depth = len(spec.hidden) - 1
        normed = not residual if spec.norm_blocks is None else spec.norm_blocks
        self.blocks = nn.ModuleList(
            Block(a, b, spec, normed=i == 0 or normed, scale=depth**-0.5 if residual and i else None)
            for i, (a, b) in enumerate(pairwise(spec.widths))
        )
        self.head = nn.Linear(spec.widths[-1], spec.outputs, bias=spec.bias)
        _start(self, spec)

    def forward(self, x: Tensor) -> Tensor:
        x = flat(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Diamond(nn.Module):
    """A stem, two branches ``a`` and ``b`` of equal depth, a merge, a linear head."""

    def __init__(self, spec: MLPSpec):
        super().__init__()
        if spec.merge not in ("sum", "cat"):
            raise ValueError(f"a diamond merges by sum or cat, got merge={spec.merge!r}")
        self.spec = spec
        width, depth = spec.hidden[0], len(spec.hidden) - 1
        if not depth:
            raise ValueError("a diamond needs two hidden layers or more: the stem and the branches")
        normed = spec.norm_blocks is not False
        self.stem = Block(spec.inputs, width, spec)
        self.a = nn.ModuleList(Block(width, width, spec, normed=normed) for _ in range(depth))
        self.b = nn.ModuleList(Block(width, width, spec, normed=normed) for _ in range(depth))
        # f acts on W [A, B]; applied to [A, B] itself it would couple nothing (erratum E37 of the Hessian paper)
        self.merge = Block(2 * width, width, spec, normed=False) if spec.merge == "cat" else None
        self.head = nn.Linear(width, spec.outputs, bias=spec.bias)
        _start(self, spec)

    def forward(self, x: Tensor) -> Tensor:
        a = b = self.stem(flat(x))
        for left, right in zip(self.a, self.b):
            a, b = left(a), right(b)
        return self.head((a + b) / math.sqrt(2) if self.merge is None else self.merge(torch.cat([a, b], -1)))


def _start(model: MLP | Diamond, spec: MLPSpec) -> None:
    hidden = [m.linear for m in model.modules() if isinstance(m, Block) and isinstance(m.linear, nn.Linear)]
    if spec.spectral and spec.init != "default":
        raise ValueError("spectral norm fixes the scale of the weights: use it with init=default")
    initialise(hidden, model.head, spec.init)
    if spec.readout != 1.0:
        with torch.no_grad():
            model.head.weight.mul_(spec.readout)
