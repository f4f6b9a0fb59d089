"""Tasks and rows of families that were made when the rule for look-aheads was settled, and looked ahead once.

Before that only which of the runs are lost, and when, was measured: 29 of 63, all of them after step 60.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from families_1 import digits, drawn, mlp
from families_3 import SHAPES
from torch import nn


def spirals(seed: int, act: type[nn.Module], depth: int = 4) -> Any:
    """Two arms that wind around each other, told apart by a deep thin network."""
    torch.manual_seed(seed)
    g = drawn(seed)
    turn = torch.rand(600, generator=g).sqrt() * 9
    arm = torch.arange(600) % 2
    angle = turn + math.pi * arm
    x = torch.stack([turn * angle.cos(), turn * angle.sin()], 1) / 5 + 0.05 * torch.randn(600, 2, generator=g)
    return mlp([2] + [24] * depth + [2], act), x, arm, F.cross_entropy


class Messages(nn.Module):
    """Sums over neighbours, thrice; the graph as its matrix of neighbours."""

    def __init__(self, width: int, act: type[nn.Module], norm: bool) -> None:
        super().__init__()
        self.inward, self.outward = nn.Linear(1, width), nn.Linear(width, 1)
        self.rounds = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(width) if norm else nn.Identity() for _ in range(3))
        self.act = act()

    def forward(self, graph: torch.Tensor) -> torch.Tensor:
        h = self.inward(graph.sum(2, keepdim=True) / 4)
        for layer, norm in zip(self.rounds, self.norms):
            h = h + self.act(layer(torch.cat([norm(h), graph @ norm(h) / 4], 2)))
        return self.outward(h.mean(1))


def graphs(seed: int, act: type[nn.Module], norm: bool, nodes: int = 12) -> Any:
    """How many triangles a random graph has."""
    torch.manual_seed(seed)
    g = drawn(seed)
    draw = torch.rand(400, nodes, nodes, generator=g).triu(1)
    graph = ((draw > 0) & (draw < 0.2 + 0.3 * torch.rand(400, 1, 1, generator=g))).float()
    graph = graph + graph.transpose(1, 2)
    count = torch.linalg.matrix_power(graph, 3).diagonal(dim1=1, dim2=2).sum(1, keepdim=True)
    return Messages(24, act, norm), graph, (count - count.mean()) / count.std(), F.mse_loss


class Mixing(nn.Module):
    """Rows of a digit mixed with rows, numbers with numbers, by turns."""

    def __init__(self, width: int, norm: bool) -> None:
        super().__init__()
        self.inward, self.outward = nn.Linear(8, width), nn.Linear(width, 10)
        self.rows = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(2))
        self.numbers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)) for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) if norm else nn.Identity() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inward(x)
        for i, (rows, numbers) in enumerate(zip(self.rows, self.numbers)):
            x = x + rows(self.norms[2 * i](x).transpose(1, 2)).transpose(1, 2)
            x = x + numbers(self.norms[2 * i + 1](x))
        return self.outward(x.mean(1))


def mixer(seed: int, norm: bool) -> Any:
    torch.manual_seed(seed)
    x, y = digits()
    return Mixing(24, norm), x.reshape(-1, 8, 8), y, F.cross_entropy


class Adding(nn.Module):
    """Reads numbers and marks one by one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cell, self.outward = nn.LSTM(2, width, batch_first=True), nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outward(self.cell(x)[0][:, -1])


def adding(seed: int, length: int = 10) -> Any:
    """The sum of the two numbers that are marked."""
    torch.manual_seed(seed)
    g = drawn(seed)
    marks = torch.rand(600, length, generator=g).argsort(1) < 2
    x = torch.stack([torch.rand(600, length, generator=g), marks.float()], 2)
    return Adding(24), x, (x[..., 0] * x[..., 1]).sum(1, keepdim=True) - 1, F.mse_loss


class Sine(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(4 * x)


def field(seed: int, width: int = 48) -> Any:
    """Digits as fields: the ink at a place, learned by a network of sines."""
    torch.manual_seed(seed)
    x, _ = digits()
    place = torch.stack(torch.meshgrid(torch.linspace(-1, 1, 8), torch.linspace(-1, 1, 24), indexing="ij"), 2)
    return (
        mlp([2, width, width, 1], Sine),
        place.reshape(-1, 2),
        x[seed * 3 : seed * 3 + 3].reshape(3, 8, 8).transpose(0, 1).reshape(-1, 1),
        F.mse_loss,
    )


class Ratings(nn.Module):
    """Vectors of readers and of books, multiplied, and what each adds by itself."""

    def __init__(self, readers: int, books: int, width: int) -> None:
        super().__init__()
        self.reader, self.book = nn.Embedding(readers, width), nn.Embedding(books, width)
        self.lean = nn.Embedding(readers + books, 1)
        self.outward = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, pair: torch.Tensor) -> torch.Tensor:
        a, b = pair[:, 0], pair[:, 1]
        both = self.reader(a) * self.book(b)
        return self.outward(both) + self.lean(a) + self.lean(b + self.reader.num_embeddings)


def ratings(seed: int, noise: float = 0.3) -> Any:
    torch.manual_seed(seed)
    g = drawn(seed)
    readers, books = torch.randn(40, 3, generator=g), torch.randn(60, 3, generator=g)
    pairs = torch.stack([torch.randint(0, 40, (1500,), generator=g), torch.randint(0, 60, (1500,), generator=g)], 1)
    y = (readers[pairs[:, 0]] * books[pairs[:, 1]]).sum(1, keepdim=True) + noise * torch.randn(1500, 1, generator=g)
    return Ratings(40, 60, 12), pairs, y / y.std(), F.mse_loss


class Noisy(nn.Module):
    """A code with noise added to it, as drawn anew at every call."""

    def __init__(self, act: type[nn.Module]) -> None:
        super().__init__()
        self.code, self.back = mlp([64, 40, 10], act), mlp([10, 40, 64], act)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        code = self.code(x)
        return self.back(code + 0.3 * torch.randn_like(code))


def noisy_code(seed: int, act: type[nn.Module]) -> Any:
    torch.manual_seed(seed)
    x, _ = digits()
    return Noisy(act), x[:900], x[:900], F.smooth_l1_loss


NEW_TASKS = {f.__name__: f for f in (spirals, graphs, mixer, adding, field, ratings, noisy_code)}
NEW_FAMILIES = ("spirals", "graphs", "mixer", "adding", "fields", "ratings", "noisy code")

SHAPES.update({
    "stairs": lambda t, n: 2.0 ** (8 * t // n),  # twice as high every eighth of the run
    "long warm-up": lambda t, n: min(1.0, (t + 1) / (0.5 * n)),
    "second wind": lambda t, n: 0.5 * (1 + math.cos(math.pi * 2 * t / n)) if t < 0.5 * n else 6.0,
})  # fmt: skip

ROWS = """
    spirals | spirals(act=Tanh) | adam | 0.003 | 0 | stairs | 480 | 48 | 64 | stairs
    spirals | spirals(act=ReLU) | momentum | 0.02 | 0 | stairs | 480 | 48 | 32 | stairs
    spirals | spirals(act=ReLU) | adamw | 0.01 | 0.1 | cosine | 480 | 48 | 32 | cosine
    graphs | graphs(act=ReLU,norm=False) | sgd | 0.02 | 0 | ramp | 400 | 40 | 32 | ramp
    graphs | graphs(act=SiLU,norm=True) | adam | 0.02 | 0 | long warm-up | 400 | 40 | 32 | warm-up
    graphs | graphs(act=GELU,norm=False) | momentum | 0.005 | 0.001 | second wind | 400 | 40 | 16 | wind
    mixer | mixer(norm=True) | adamw | 0.003 | 0.1 | long warm-up | 300 | 30 | 32 | warm-up
    mixer | mixer(norm=False) | sgd | 0.05 | 0 | ramp | 300 | 30 | 32 | ramp
    mixer | mixer(norm=False) | adam | 0.002 | 0 | stairs | 300 | 30 | 16 | stairs
    adding | adding(length=10) | adam | 0.01 | 0 | second wind | 400 | 40 | 32 | wind
    adding | adding(length=10) | momentum | 0.05 | 0 | ramp | 400 | 40 | 32 | ramp
    adding | adding(length=8) | adam | 0.01 | 0 | constant | 400 | 40 | 16 | noisy
    fields | field(width=48) | adam | 0.002 | 0 | stairs | 480 | 48 | 0 | stairs
    fields | field(width=48) | sgd | 0.02 | 0 | ramp | 480 | 48 | 0 | ramp
    fields | field(width=32) | adam | 0.005 | 0 | restarts | 480 | 48 | 64 | restarts
    ratings | ratings(noise=0.3) | adam | 0.01 | 0 | long warm-up | 400 | 40 | 64 | warm-up
    ratings | ratings(noise=0.3) | momentum | 0.05 | 0 | stairs | 400 | 40 | 64 | stairs
    ratings | ratings(noise=0.6) | adamw | 0.02 | 0.1 | one cycle | 400 | 40 | 32 | cycle
    noisy code | noisy_code(act=ReLU) | momentum | 0.1 | 0 | ramp | 400 | 40 | 32 | ramp
    noisy code | noisy_code(act=GELU) | adam | 0.003 | 0 | second wind | 400 | 40 | 32 | wind
    noisy code | noisy_code(act=Tanh) | adam | 0.005 | 0 | constant | 400 | 40 | 16 | noisy
"""
