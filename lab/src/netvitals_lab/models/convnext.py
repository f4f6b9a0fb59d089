"""ConvNeXt: depthwise 7×7 convolutions, inverted bottlenecks and per-position LayerNorm, in four stages."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from netvitals.layers.norms import PerPosition
from netvitals_lab.models.mixer import FeedForward

EPS = 1e-6


@dataclass(frozen=True)
class ConvNeXtSpec:
    """The default is ConvNeXt-Tiny: stages of 3, 3, 9, 3 blocks and widths 1, 2, 4, 8 times 96.

    The stem cuts the image into patches of ``patch`` pixels; every later stage halves the side. ``scale`` is where the
    learned factor on each branch starts. Only ``norm=layer`` (over the channels of a position) and ``norm=none`` exist.
    """

    channels: int = 3
    classes: int = 10
    width: int = 96
    blocks: tuple[int, ...] = (3, 3, 9, 3)
    patch: int = 4
    scale: float = 1e-6
    act: str = "gelu"
    norm: str = "layer"

    def build(self) -> nn.Module:
        if self.norm not in ("layer", "none"):
            raise ValueError(f"a ConvNeXt has norm=layer or norm=none, got {self.norm!r}")
        return ConvNeXt(self)


def per_position(spec: ConvNeXtSpec, channels: int) -> nn.Module:
    """LayerNorm over the channels of every position of (N, C, H, W)."""
    return PerPosition(nn.LayerNorm(channels, eps=EPS)) if spec.norm == "layer" else nn.Identity()


class ConvNeXtBlock(nn.Module):
    """x + γ · down f(up(norm(depthwise 7×7 x))), channels last inside."""

    def __init__(self, width: int, spec: ConvNeXtSpec):
        super().__init__()
        self.mix = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=EPS) if spec.norm == "layer" else nn.Identity()
        self.mlp = FeedForward(width, 4 * width, spec.act)
        self.scale = nn.Parameter(torch.full((width,), spec.scale))

    def forward(self, x: Tensor) -> Tensor:
        branch = self.scale * self.mlp(self.norm(self.mix(x).movedim(1, -1)))
        return x + branch.movedim(-1, 1)


class ConvNeXt(nn.Module):
    """``stem``, ``stages`` (with the halving in front of all but the first), pooled ``norm``, ``head``."""

    def __init__(self, spec: ConvNeXtSpec):
        super().__init__()
        self.spec = spec
        self.stem = nn.Sequential(
            nn.Conv2d(spec.channels, spec.width, spec.patch, spec.patch), per_position(spec, spec.width)
        )
        stages: list[nn.Module] = []
        width = spec.width
        for i, count in enumerate(spec.blocks):
            halving = [per_position(spec, width), nn.Conv2d(width, 2 * width, 2, 2)] if i else []
            width = 2 * width if i else width
            stages.append(nn.Sequential(*halving, *(ConvNeXtBlock(width, spec) for _ in range(count))))
        self.stages = nn.Sequential(*stages)
        self.norm = nn.LayerNorm(width, eps=EPS) if spec.norm == "layer" else nn.Identity()
        self.head = nn.Linear(width, spec.classes)
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        smallest = self.spec.patch * 2 ** (len(self.spec.blocks) - 1)
        if x.shape[-1] < smallest or x.shape[-2] < smallest:
            raise ValueError(
                f"this ConvNeXt needs images of at least {smallest}×{smallest} pixels, got {tuple(x.shape[-2:])}; "
                "choose a smaller patch or fewer stages"
            )
        return self.head(self.norm(self.stages(self.stem(x)).mean((-2, -1))))
