"""Tasks and rows of families that were fresh when the rule for danger was first settled, and settled it anew."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from families_1 import data_folder, digits, drawn, mlp
from torch import nn


def table(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Breast cancer (two classes) or diabetes (a number), standardised."""
    from sklearn import datasets

    found = datasets.load_breast_cancer() if kind == "cancer" else datasets.load_diabetes()
    x, y = torch.tensor(found.data, dtype=torch.float32), torch.tensor(found.target)
    x = (x - x.mean(0)) / x.std(0)
    return x, y if kind == "cancer" else ((y - y.mean()) / y.std()).float()[:, None]


class Gated(nn.Module):
    """SwiGLU blocks."""

    def __init__(self, n_in: int, width: int, n_out: int) -> None:
        super().__init__()
        self.gate, self.up, self.act = nn.Linear(n_in, width), nn.Linear(n_in, width), nn.SiLU()
        self.gate2, self.up2 = nn.Linear(width, width), nn.Linear(width, width)
        self.outward = nn.Linear(width, n_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.gate(x)) * self.up(x)
        return self.outward(self.act(self.gate2(x)) * self.up2(x))


def gated_table(seed: int, width: int = 32) -> Any:
    torch.manual_seed(seed)
    x, y = table("cancer")
    return Gated(x.shape[1], width, 2), x, y, F.cross_entropy


def diabetes(seed: int, act: type[nn.Module], width: int = 32) -> Any:
    torch.manual_seed(seed)
    x, y = table("diabetes")
    return mlp([x.shape[1], width, width, 1], act), x, y, F.mse_loss


def waves(seed: int, act: type[nn.Module], width: int = 40) -> Any:
    """A sum of sines of one number."""
    torch.manual_seed(seed)
    x = torch.linspace(-1, 1, 256)[:, None]
    phases = torch.rand(3, generator=drawn(seed)) * 6
    y = sum(torch.sin((2 + 3 * i) * x + phases[i]) for i in range(3))
    return mlp([1, width, width, width, 1], act), x, y, F.mse_loss


class Attending(nn.Module):
    """Rows of a digit attend to each other."""

    def __init__(self, width: int, norm: bool) -> None:
        super().__init__()
        self.inward, self.place = nn.Linear(8, width), nn.Parameter(torch.randn(8, width) * 0.1)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm = nn.LayerNorm(width) if norm else nn.Identity()
        self.outward = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inward(x) + self.place
        h = self.norm(x)
        return self.outward((x + self.attention(h, h, h, need_weights=False)[0]).mean(1))


def attending_digits(seed: int, norm: bool, width: int = 32) -> Any:
    torch.manual_seed(seed)
    x, y = digits()
    return Attending(width, norm), x.reshape(-1, 8, 8), y, F.cross_entropy


def letters(seed: int, act: type[nn.Module], context: int = 6) -> Any:
    """The next letter of a text from the last few, one by one in one-hot form."""
    torch.manual_seed(seed)
    text = (data_folder() / "tinyshakespeare.txt").read_bytes()[: 4000 + context]
    ids = torch.tensor([min(c, 127) - 32 if c >= 32 else 0 for c in text])
    rows = torch.stack([ids[i : i + len(ids) - context] for i in range(context)], 1)
    x = F.one_hot(rows, 96).float().flatten(1)
    return mlp([96 * context, 48, 48, 96], act), x, ids[context:], F.cross_entropy


NEW = {f.__name__: f for f in (gated_table, diabetes, waves, attending_digits, letters)}

SHAPES = {
    "late ramp": lambda t, n: 1.0 if t < 0.5 * n else 150.0 ** (t / n - 0.5),
    "restarts": lambda t, n: 0.5 * (1 + math.cos(math.pi * (t % (n // 3)) / (n // 3))),
    "one cycle": lambda t, n: min(t / (0.3 * n) + 0.03, 1.0) if t < 0.3 * n else max(0.0, 1 - (t / n - 0.3) / 0.7),
}

ROWS = """
    gated table | gated_table(width=32) | sgd | 0.05 | 0 | ramp | 500 | 50 | 32 | ramp
    gated table | gated_table(width=32) | adam | 0.003 | 0 | ramp | 500 | 50 | 32 | ramp
    gated table | gated_table(width=32) | adamw | 0.01 | 0.1 | constant | 500 | 50 | 8 | noisy
    gated table | gated_table(width=32) | momentum | 0.05 | 0.001 | restarts | 500 | 50 | 16 | restarts
    diabetes | diabetes(act=ReLU) | sgd | 0.05 | 0 | late ramp | 500 | 50 | 32 | late
    diabetes | diabetes(act=GELU) | momentum | 0.01 | 0 | ramp | 500 | 50 | 32 | ramp
    diabetes | diabetes(act=ReLU) | adam | 0.01 | 0 | constant | 500 | 50 | 16 | noisy
    diabetes | diabetes(act=Tanh) | sgd | 0.1 | 0 | one cycle | 500 | 50 | 32 | cycle
    waves | waves(act=Tanh) | adam | 0.02 | 0 | constant | 600 | 60 | 0 | spikes
    waves | waves(act=SiLU) | adam | 0.003 | 0 | late ramp | 600 | 60 | 0 | late
    waves | waves(act=GELU) | sgd | 0.05 | 0 | ramp | 600 | 60 | 0 | ramp
    waves | waves(act=ReLU) | momentum | 0.03 | 0 | restarts | 600 | 60 | 32 | restarts
    attending digits | attending_digits(norm=True) | adamw | 0.003 | 0.1 | one cycle | 400 | 50 | 32 | cycle
    attending digits | attending_digits(norm=False) | sgd | 0.1 | 0 | ramp | 400 | 50 | 32 | ramp
    attending digits | attending_digits(norm=True) | adam | 0.002 | 0 | ramp | 400 | 50 | 32 | ramp
    attending digits | attending_digits(norm=False) | adam | 0.003 | 0 | constant | 400 | 50 | 8 | noisy
    letters | letters(act=ReLU) | sgd | 0.3 | 0 | late ramp | 400 | 50 | 32 | late
    letters | letters(act=GELU) | adamw | 0.003 | 0.1 | ramp | 400 | 50 | 32 | ramp
    letters | letters(act=ReLU) | adam | 0.003 | 0 | constant | 400 | 50 | 8 | noisy
    letters | letters(act=SiLU) | momentum | 0.1 | 0 | restarts | 400 | 50 | 16 | restarts
"""
