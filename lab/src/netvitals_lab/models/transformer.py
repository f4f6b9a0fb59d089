"""Attention, the encoder block, and the vision transformer, with every activation a visible module."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from netvitals_lab.models.mixer import FeedForward, patches
from netvitals_lab.models.parts import norm


@dataclass(frozen=True)
class ViTSpec:
    """Patches, learned positions, a class token, ``depth`` pre-norm blocks, a linear head on the class token.

    The default is the encoder of the gate-density paper (6 blocks, 4 heads, patch 4, width 128, hidden 256).
    ``head=zero`` starts the readout at zero (no gradient reaches the blocks at the first step), ``init=normal``
    draws every linear weight from N(0, 0.02²) cut at two standard deviations. ``resize`` enlarges images of ``side``
    pixels to so many before they are cut into patches.
    """

    channels: int = 3
    side: int = 32
    classes: int = 10
    patch: int = 4
    depth: int = 6
    heads: int = 4
    width: int = 128
    hidden: int = 256
    act: str = "gelu"
    norm: str = "layer"
    init: str = "default"
    head: str = "default"
    dropout: float = 0.0
    resize: int = 0

    def build(self) -> nn.Module:
        return ViT(self)


class Attention(nn.Module):
    """softmax(Q Kᵀ/√d) V over the heads, written out so that it can be differentiated twice and mapped over."""

    def __init__(self, width: int, heads: int, *, bias: bool = True):
        super().__init__()
        if width % heads:
            raise ValueError(f"{heads} heads do not divide a width of {width}")
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(-2, -3) for t in self.qkv(x).chunk(3, -1))
        weights = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1)
        return self.out((weights @ v).transpose(-2, -3).flatten(-2))


class EncoderBlock(nn.Module):
    """x + attention(norm x), then x + feed-forward(norm x)."""

    def __init__(self, width: int, heads: int, hidden: int, act: str, norms: str, dropout: float = 0.0):
        super().__init__()
        self.norm_attention = norm(norms, width, 3)
        self.attention = Attention(width, heads)
        self.norm_mlp = norm(norms, width, 3)
        self.mlp = FeedForward(width, hidden, act, dropout=dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_attention(x))
        return x + self.mlp(self.norm_mlp(x))


class ViT(nn.Module):
    def __init__(self, spec: ViTSpec):
        super().__init__()
        self.spec = spec
        count = patches(spec.resize or spec.side, spec.patch)
        self.embed = nn.Conv2d(spec.channels, spec.width, spec.patch, spec.patch)
        self.token = nn.Parameter(torch.zeros(1, 1, spec.width))
        self.positions = nn.Parameter(torch.empty(1, count + 1, spec.width).normal_(0, 0.02))
        self.blocks = nn.ModuleList(
            EncoderBlock(
                width=spec.width,
                heads=spec.heads,
                hidden=spec.hidden,
                act=spec.act,
                norms=spec.norm,
                dropout=spec.dropout,
            )
            for _ in range(spec.depth)
        )
        self.norm = norm(spec.norm, spec.width, 3)
        self.head = nn.Linear(spec.width, spec.classes)
        _start(self, spec)

    def forward(self, x: Tensor) -> Tensor:
        if self.spec.resize:
            x = F.interpolate(x, (self.spec.resize, self.spec.resize), mode="bilinear", antialias=True)
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def _start(model: ViT, spec: ViTSpec) -> None:
    if spec.init not in ("default", "normal") or spec.head not in ("default", "zero"):
        raise ValueError(
            f"a ViT has init=default|normal and head=default|zero, got init={spec.init!r}, head={spec.head!r}"
        )
    if spec.init == "normal":
        for module in model.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.trunc_normal_(module.weight, std=0.02, a=-0.04, b=0.04)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
    if spec.head == "zero":
        nn.init.zeros_(model.head.weight)
        nn.init.zeros_(model.head.bias)
