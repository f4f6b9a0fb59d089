"""Tasks and rows of the last families: looked at once, after the rule for danger was settled for good."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from families_1 import data_folder, digits, drawn, mlp
from torch import nn


def wine(seed: int, act: type[nn.Module], norm: bool) -> Any:
    """Three cultivars from thirteen numbers."""
    from sklearn.datasets import load_wine

    torch.manual_seed(seed)
    found = load_wine()
    x = torch.tensor(found.data, dtype=torch.float32)
    return mlp([13, 40, 40, 3], act, norm=norm), (x - x.mean(0)) / x.std(0), torch.tensor(found.target), F.cross_entropy


def friedman(seed: int, act: type[nn.Module], noise: float = 0.3) -> Any:
    """Friedman's function of ten numbers, five of which count."""
    torch.manual_seed(seed)
    g = drawn(seed)
    x = torch.rand(800, 10, generator=g)
    y = 10 * torch.sin(math.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    y = (y - y.mean()) / y.std() + noise * torch.randn(800, generator=g)
    return mlp([10, 64, 64, 1], act), 2 * x - 1, y[:, None], F.mse_loss


class Pooled(nn.Module):
    """What a set of numbers adds up to, whatever their order."""

    def __init__(self, width: int, act: type[nn.Module]) -> None:
        super().__init__()
        self.each = nn.Sequential(nn.Linear(2, width), act(), nn.Linear(width, width), act())
        self.all = nn.Sequential(nn.Linear(width, width), act(), nn.Linear(width, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.all(self.each(x).mean(1))


def sets(seed: int, act: type[nn.Module], width: int = 32) -> Any:
    torch.manual_seed(seed)
    x = torch.randn(600, 7, 2, generator=drawn(seed))
    y = (x[..., 0] * x[..., 1]).sum(1, keepdim=True) + x[..., 0].amax(1, keepdim=True)
    return Pooled(width, act), x, (y - y.mean()) / y.std(), F.mse_loss


def byte_cnn(seed: int, act: type[nn.Module], norm: bool) -> Any:
    """Whether a line of text holds a given word's first letters, read by convolutions over its bytes."""
    torch.manual_seed(seed)
    text = (data_folder() / "tinyshakespeare.txt").read_bytes()[100_000:140_000]
    rows = torch.tensor([min(c, 127) for c in text]).reshape(-1, 40)
    x = F.one_hot(rows, 128).float().transpose(1, 2)
    bn = [nn.BatchNorm1d(24)] if norm else []
    net = nn.Sequential(
        nn.Conv1d(128, 24, 5), *bn, act(), nn.Conv1d(24, 24, 5, stride=2), act(), nn.Flatten(), nn.Linear(24 * 16, 4)
    )
    return net, x, (rows == 32).sum(1).clamp(4, 10).sub(4).div(2, rounding_mode="floor"), F.cross_entropy


class Branches(nn.Module):
    """Two towers whose outputs are multiplied."""

    def __init__(self, width: int, act: type[nn.Module]) -> None:
        super().__init__()
        self.left, self.right = (nn.Sequential(nn.Linear(32, width), act(), nn.Linear(width, width)) for _ in range(2))
        self.outward = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outward(self.left(x[:, :32]) * self.right(x[:, 32:]))


def towers(seed: int, act: type[nn.Module], width: int = 32) -> Any:
    torch.manual_seed(seed)
    x, y = digits()
    return Branches(width, act), x, y, F.cross_entropy


LAST = {f.__name__: f for f in (wine, friedman, sets, byte_cnn, towers)}

ROWS = """
    wine | wine(act=ReLU,norm=True) | adam | 0.01 | 0 | constant | 400 | 50 | 16 | noisy
    wine | wine(act=Tanh,norm=False) | sgd | 0.05 | 0 | ramp | 400 | 50 | 16 | ramp
    wine | wine(act=GELU,norm=False) | momentum | 0.02 | 0.001 | restarts | 400 | 50 | 32 | restarts
    wine | wine(act=ReLU,norm=False) | adam | 0.003 | 0 | ramp | 400 | 50 | 16 | ramp
    friedman | friedman(act=ReLU) | momentum | 0.01 | 0 | ramp | 500 | 50 | 32 | ramp
    friedman | friedman(act=SiLU) | adamw | 0.005 | 0.1 | one cycle | 500 | 50 | 32 | cycle
    friedman | friedman(act=Tanh) | sgd | 0.1 | 0 | late ramp | 500 | 50 | 32 | late
    friedman | friedman(act=ReLU) | adam | 0.01 | 0 | constant | 500 | 50 | 8 | noisy
    sets | sets(act=GELU) | adam | 0.003 | 0 | late ramp | 500 | 50 | 32 | late
    sets | sets(act=ReLU) | sgd | 0.05 | 0 | ramp | 500 | 50 | 32 | ramp
    sets | sets(act=Tanh) | momentum | 0.05 | 0 | cosine | 500 | 50 | 16 | cosine
    sets | sets(act=SiLU) | adam | 0.02 | 0 | constant | 500 | 50 | 32 | spikes
    byte cnn | byte_cnn(act=ReLU,norm=True) | momentum | 0.02 | 0.001 | restarts | 300 | 50 | 32 | restarts
    byte cnn | byte_cnn(act=ReLU,norm=False) | sgd | 0.05 | 0 | ramp | 300 | 50 | 32 | ramp
    byte cnn | byte_cnn(act=GELU,norm=False) | adam | 0.001 | 0 | jump | 300 | 50 | 32 | jump
    byte cnn | byte_cnn(act=SiLU,norm=True) | adamw | 0.003 | 0.1 | constant | 300 | 50 | 16 | noisy
    towers | towers(act=ReLU) | sgd | 0.05 | 0 | ramp | 400 | 50 | 32 | ramp
    towers | towers(act=GELU) | adam | 0.002 | 0 | ramp | 400 | 50 | 32 | ramp
    towers | towers(act=Tanh) | momentum | 0.02 | 0 | constant | 400 | 50 | 16 | noisy
    towers | towers(act=ReLU) | adamw | 0.005 | 0.1 | warm-up cosine | 400 | 50 | 32 | warm-up
"""
