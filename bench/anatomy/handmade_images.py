"""Networks for images, written as people write them."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Example = tuple[nn.Module, Any]  # a model and a batch for it


def mlp() -> Example:
    layers = [nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3)]
    return nn.Sequential(*layers), torch.randn(4, 8)


def vgg() -> Example:
    body: list[nn.Module] = []
    for a, b in ((3, 8), (8, 8), (8, 16), (16, 16)):
        body += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
        body += [nn.MaxPool2d(2)] if a == b else []
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(16 * 16, 32), nn.ReLU(), nn.Linear(32, 5)), torch.randn(
        4, 3, 16, 16
    )


class _Block(nn.Module):
    def __init__(self, a: int, b: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b)
        self.conv2, self.bn2 = nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b)
        self.down = nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b)) if stride > 1 else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.down is None else self.down(x)))


def resnet() -> Example:
    stem = [nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    body = [_Block(8, 8, 1), _Block(8, 8, 1), _Block(8, 16, 2), _Block(16, 16, 1)]
    return nn.Sequential(*stem, *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)), torch.randn(
        4, 3, 16, 16
    )


class _Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8 + 4 * i) for i in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(8 + 4 * i, 4, 3, padding=1) for i in range(3))
        self.head = nn.Linear(20, 5)

    def forward(self, x: Tensor) -> Tensor:
        features = self.stem(x)
        for norm, conv in zip(self.norms, self.convs):
            features = torch.cat([features, conv(torch.relu(norm(features)))], 1)
        return self.head(features.mean((2, 3)))


def densenet() -> Example:
    return _Dense(), torch.randn(4, 3, 8, 8)


class _ConvNeXtBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
        self.up, self.act, self.down = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(torch.full((width,), 1e-2))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.gamma * self.down(self.act(self.up(y)))).permute(0, 3, 1, 2)


def convnext() -> Example:
    body = nn.Sequential(nn.Conv2d(3, 8, 4, 4), _ConvNeXtBlock(8), _ConvNeXtBlock(8))
    return nn.Sequential(body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(8), nn.Linear(8, 5)), torch.randn(
        4, 3, 16, 16
    )


class _UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        pair = lambda a, b: nn.Sequential(
            nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.ReLU()
        )
        self.down, self.bottom, self.right = pair(1, 8), pair(8, 16), pair(16, 8)
        self.up, self.head = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(8, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        left = self.down(x)
        y = self.up(self.bottom(F.max_pool2d(left, 2)))
        return torch.sigmoid(self.head(self.right(torch.cat([left, y], 1))))


def unet() -> Example:
    return _UNet(), torch.randn(4, 1, 16, 16)


def sinusoids(t: Tensor, width: int) -> Tensor:
    angles = t[:, None].float() * torch.exp(-math.log(1e4) * torch.arange(width // 2) / (width // 2))
    return torch.cat([angles.sin(), angles.cos()], -1)


class _TimeBlock(nn.Module):
    def __init__(self, a: int, b: int) -> None:
        super().__init__()
        self.norm1, self.conv1, self.time = nn.GroupNorm(4, a), nn.Conv2d(a, b, 3, padding=1), nn.Linear(16, b)
        self.norm2, self.conv2 = nn.GroupNorm(4, b), nn.Conv2d(b, b, 3, padding=1)
        self.skip = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class _PixelAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(4, width)
        self.qkv, self.out = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, 3, self.heads, c // self.heads, h * w).unbind(1)
        weights = torch.einsum("bhcn,bhcm->bhnm", q, k).mul(1 / math.sqrt(c // self.heads)).softmax(-1)
        return x + self.out(torch.einsum("bhnm,bhcm->bhcn", weights, v).reshape(b, c, h, w))


class _Diffusion(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
        self.stem, self.first, self.attention = nn.Conv2d(1, 8, 3, padding=1), _TimeBlock(8, 8), _PixelAttention(8, 2)
        self.second, self.norm, self.head = _TimeBlock(16, 8), nn.GroupNorm(4, 8), nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        t, x = self.time(sinusoids(steps, 8)), self.stem(x)
        y = self.attention(self.first(x, t))
        return self.head(F.silu(self.norm(self.second(torch.cat([x, y], 1), t))))


def diffusion_unet() -> Example:
    return _Diffusion(), (torch.randn(4, 1, 8, 8), torch.randint(0, 1000, (4,)))


class _DiTBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU("tanh"), nn.Linear(2 * width, width))
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        s1, g1, a1, s2, g2, a2 = self.modulation(c)[:, None].chunk(6, -1)
        h = self.norm1(x) * (1 + g1) + s1
        x = x + a1 * self.attention(h, h, h, need_weights=False)[0]
        return x + a2 * self.mlp(self.norm2(x) * (1 + g2) + s2)


class _DiT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch, self.places = nn.Conv2d(1, 16, 2, 2), nn.Parameter(torch.randn(1, 16, 16))
        self.time, self.label = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16)), nn.Embedding(5, 16)
        self.blocks = nn.ModuleList(_DiTBlock(16, 4) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x: Tensor, steps: Tensor, labels: Tensor) -> Tensor:
        h = self.patch(x).flatten(2).transpose(1, 2) + self.places
        c = self.time(sinusoids(steps, 8)) + self.label(labels)
        for block in self.blocks:
            h = block(h, c)
        return self.head(self.norm(h))


def dit() -> Example:
    return _DiT(), (torch.randn(4, 1, 8, 8), torch.randint(0, 1000, (4,)), torch.randint(0, 5, (4,)))


class _MixerBlock(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        mix = lambda n: nn.Sequential(nn.Linear(n, 2 * n), nn.GELU(), nn.Linear(2 * n, n))
        self.norm1, self.norm2, self.tokens, self.channels = (
            nn.LayerNorm(width),
            nn.LayerNorm(width),
            mix(tokens),
            mix(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


def mlp_mixer() -> Example:
    body = nn.Sequential(nn.Conv2d(3, 8, 4, 4), nn.Flatten(2))

    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch, self.blocks = body, nn.Sequential(_MixerBlock(16, 8), _MixerBlock(16, 8))
            self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.norm(self.blocks(self.patch(x).transpose(1, 2))).mean(1))

    return Mixer(), torch.randn(4, 3, 16, 16)
