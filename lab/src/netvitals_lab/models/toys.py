"""Two toys over short sequences: one head of attention, and the same map made position by position."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor, nn

from netvitals_lab.models.parts import activation


@dataclass(frozen=True)
class ToyAttentionSpec:
    """softmax(Q Kᵀ/√d) V without biases, mean over positions, a linear readout."""

    width: int = 16
    outputs: int = 1

    def build(self) -> nn.Module:
        return ToyAttention(self)


@dataclass(frozen=True)
class PositionMLPSpec:
    """``depth`` layers Linear–f shared by all positions, mean over positions, a linear readout."""

    width: int = 16
    depth: int = 3
    outputs: int = 1
    act: str = "relu"

    def build(self) -> nn.Module:
        return PositionMLP(self)


class ToyAttention(nn.Module):
    def __init__(self, spec: ToyAttentionSpec):
        super().__init__()
        self.spec = spec
        self.query = nn.Linear(spec.width, spec.width, bias=False)
        self.key = nn.Linear(spec.width, spec.width, bias=False)
        self.value = nn.Linear(spec.width, spec.width, bias=False)
        self.head = nn.Linear(spec.width, spec.outputs)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).transpose(-1, -2) / math.sqrt(self.spec.width)
        return self.head((scores.softmax(-1) @ self.value(x)).mean(-2))


class PositionMLP(nn.Module):
    def __init__(self, spec: PositionMLPSpec):
        super().__init__()
        self.spec = spec
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(spec.width, spec.width), activation(spec.act)) for _ in range(spec.depth)
        )
        self.head = nn.Linear(spec.width, spec.outputs)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(-2))
