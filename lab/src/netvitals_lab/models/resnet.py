"""Residual networks for small images, of any width, and the same chain without shortcuts."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from netvitals_lab.models.parts import activation, conv, he_convolutions, norm


@dataclass(frozen=True)
class ResNetSpec:
    """Stages of residual blocks; each stage after the first halves the side and doubles the width.

    ``blocks=(2, 2, 2, 2)`` is the 18-layer network, ``(3, 4, 6, 3)`` with ``bottleneck=True`` the 50-layer one.
    ``stem="small"`` is a 3×3 convolution at stride 1, ``stem="large"`` 7×7 at stride 2 and a max-pool.
    ``shortcut=False`` drops the identity and projection paths: a plain conv, norm, activation chain.
    """

    channels: int = 3
    classes: int = 10
    width: int = 64
    blocks: tuple[int, ...] = (2, 2, 2, 2)
    bottleneck: bool = False
    stem: str = "small"
    shortcut: bool = True
    act: str = "relu"
    norm: str = "batch"
    dropout: float = 0.0

    def build(self) -> nn.Module:
        if self.stem not in ("small", "large"):
            raise ValueError(f"the stem is small (3×3) or large (7×7 and max-pool), got {self.stem!r}")
        return ResNet(self)


class ResidualBlock(nn.Module):
    """f(norm(conv f(norm(conv x))) + shortcut(x)); with ``bottleneck`` three convolutions 1×1, 3×3, 1×1."""

    def __init__(self, n_in: int, width: int, stride: int, spec: ResNetSpec):
        super().__init__()
        bias = spec.norm == "none"
        n_out = width * 4 if spec.bottleneck else width
        steps = (
            [(n_in, width, 1, 1), (width, width, 3, stride), (width, n_out, 1, 1)]
            if spec.bottleneck
            else [(n_in, width, 3, stride), (width, width, 3, 1)]
        )
        self.convs = nn.ModuleList(conv(*step, bias=bias) for step in steps)
        self.norms = nn.ModuleList(norm(spec.norm, step[1], 4) for step in steps)
        self.acts = nn.ModuleList(activation(spec.act) for _ in steps)
        self.dropout = nn.Dropout(spec.dropout) if spec.dropout else nn.Identity()
        self.shortcut: nn.Module | None = None
        if spec.shortcut:
            self.shortcut = (
                nn.Identity()
                if stride == 1 and n_in == n_out
                else nn.Sequential(conv(n_in, n_out, 1, stride, bias=bias), norm(spec.norm, n_out, 4))
            )

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for i, (convolution, normalise, act) in enumerate(zip(self.convs, self.norms, self.acts)):
            y = normalise(convolution(y))
            if i == len(self.convs) - 1:
                y = self.dropout(y)
                y = y if self.shortcut is None else y + self.shortcut(x)
            y = act(y)
        return y


class ResNet(nn.Module):
    """``stem``, ``stages``, ``head``; every activation is a module of its own."""

    def __init__(self, spec: ResNetSpec):
        super().__init__()
        self.spec = spec
        large = spec.stem == "large"
        self.stem = nn.Sequential()
        self.stem.append(
            conv(spec.channels, spec.width, 7 if large else 3, 2 if large else 1, bias=spec.norm == "none")
        )
        self.stem.append(norm(spec.norm, spec.width, 4))
        self.stem.append(activation(spec.act))
        if large:
            self.stem.append(nn.MaxPool2d(3, 2, 1))
        stages, n_in = [], spec.width
        for i, count in enumerate(spec.blocks):
            width = spec.width * 2**i
            stage = []
            for j in range(count):
                stage.append(ResidualBlock(n_in, width, 2 if i and not j else 1, spec))
                n_in = width * 4 if spec.bottleneck else width
            stages.append(nn.Sequential(*stage))
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(n_in, spec.classes)
        he_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(self.stem(x)).mean((-2, -1)))
