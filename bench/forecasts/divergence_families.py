"""Runs of which some diverge: tuning families, and held-out ones that no rule for divergence was chosen on."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SEEDS = 3
ACTS: dict[str, type[nn.Module]] = {"ReLU": nn.ReLU, "GELU": nn.GELU, "SiLU": nn.SiLU, "Tanh": nn.Tanh}


def mlp(
    widths: list[int], act: type[nn.Module], *, norm: bool = False, scale: float = 1.0, bias: bool = True
) -> nn.Module:
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(pairwise(widths)):
        linear = nn.Linear(a, b, bias=bias)
        linear.weight.data.mul_(scale)
        layers.append(linear)
        if i < len(widths) - 2:
            layers += [nn.BatchNorm1d(b)] if norm else []
            layers += [act()]
    return nn.Sequential(*layers)


def drawn(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed + 1000)


def student(seed: int, depth: int, scale: float, act: type[nn.Module]) -> Any:
    torch.manual_seed(seed)
    g = drawn(seed)
    x = torch.randn(512, 8, generator=g)
    y = torch.tanh(x[:, :1] + 0.3 * x[:, 1:2])
    net = mlp([8] + [24] * (depth - 1) + [1], act, bias=False)
    for m in net:
        if isinstance(m, nn.Linear):
            nn.init.normal_(m.weight, std=scale * math.sqrt(2 / m.in_features))
    return net, x, y, F.mse_loss


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    from sklearn.datasets import load_digits

    found = load_digits()
    x = torch.tensor(found.data, dtype=torch.float32)
    return (x - x.mean()) / x.std(), torch.tensor(found.target)


def digit_mlp(seed: int, act: type[nn.Module], norm: bool, depth: int = 3, labels: str = "true") -> Any:
    torch.manual_seed(seed)
    x, y = digits()
    if labels == "random":
        x, y = x[:512], torch.randint(0, 10, (512,), generator=drawn(seed))
    return mlp([64] + [64] * (depth - 1) + [10], act, norm=norm), x, y, F.cross_entropy


def one_hot_digits(seed: int, act: type[nn.Module], count: int = 400, width: int = 48) -> Any:
    """Squared error on a small set, all of it in every step: large rates bring it to the edge of stability."""
    torch.manual_seed(seed)
    x, y = digits()
    return mlp([64, width, width, 10], act), x[:count], F.one_hot(y[:count], 10).float(), F.mse_loss


def wrong_labels(seed: int, act: type[nn.Module], share: float = 0.3, norm: bool = False) -> Any:
    """Digits of which a share has a label drawn by lot."""
    torch.manual_seed(seed)
    x, y = digits()
    g = drawn(seed)
    lot = torch.randint(0, 10, y.shape, generator=g)
    return (
        mlp([64, 64, 64, 10], act, norm=norm),
        x,
        torch.where(torch.rand(len(y), generator=g) < share, lot, y),
        F.cross_entropy,
    )


def denoiser(seed: int, act: type[nn.Module], noise: float = 0.7, width: int = 48) -> Any:
    """Clean digits from noisy ones."""
    torch.manual_seed(seed)
    x, _ = digits()
    x = x[:900]
    return mlp([64, width, width, 64], act), x + noise * torch.randn(x.shape, generator=drawn(seed)), x, F.mse_loss


class Residual(nn.Module):
    """x + f(x) blocks, with a norm before each or without."""

    def __init__(self, n_in: int, width: int, n_out: int, blocks: int, act: type[nn.Module], norm: bool) -> None:
        super().__init__()
        self.inward = nn.Linear(n_in, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                *([nn.LayerNorm(width)] if norm else []), nn.Linear(width, width), act(), nn.Linear(width, width)
            )
            for _ in range(blocks)
        )
        self.outward = nn.Linear(width, n_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inward(x)
        for block in self.blocks:
            x = x + block(x)
        return self.outward(x)


def residual(seed: int, act: type[nn.Module], norm: bool, blocks: int = 3) -> Any:
    torch.manual_seed(seed)
    x, y = digits()
    return Residual(64, 48, 10, blocks, act, norm), x, y, F.cross_entropy


class Recurrent(nn.Module):
    """Reads a digit row by row."""

    def __init__(self, width: int, gated: bool) -> None:
        super().__init__()
        self.cell: nn.RNNBase = nn.GRU(8, width, batch_first=True) if gated else nn.RNN(8, width, batch_first=True)
        self.act = nn.ReLU()
        self.outward = nn.Sequential(nn.Linear(width, width), self.act, nn.Linear(width, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outward(self.cell(x)[0][:, -1])


def recurrent(seed: int, gated: bool, width: int = 32) -> Any:
    torch.manual_seed(seed)
    x, y = digits()
    return Recurrent(width, gated), x.reshape(-1, 8, 8), y, F.cross_entropy


def least_squares(seed: int, noise: float = 0.1) -> Any:
    """Least squares whose largest curvature is 1: at a rate above 2 one direction grows while all others fall."""
    torch.manual_seed(seed)
    g = drawn(seed)
    x = torch.linalg.qr(torch.randn(400, 20, generator=g))[0] * torch.logspace(0, -1.5, 20) * (400 / 2) ** 0.5
    return (
        nn.Linear(20, 1, bias=False),
        x,
        3 * x[:, 1:].sum(1, keepdim=True) + noise * torch.randn(400, 1, generator=g),
        F.mse_loss,
    )


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


def filters(seed: int, act: type[nn.Module]) -> Any:
    """Digits as images, without norms."""
    torch.manual_seed(seed)
    x, y = digits()
    net = nn.Sequential(
        nn.Conv2d(1, 12, 3), act(), nn.Conv2d(12, 12, 3, stride=2), act(), nn.Flatten(), nn.Linear(48, 10)
    )
    return net, x.reshape(-1, 1, 8, 8), y, F.cross_entropy


class Words(nn.Module):
    """Tokens read by one attention layer with a hidden layer after it, or by a GRU."""

    def __init__(self, words: int, length: int, width: int, attends: bool) -> None:
        super().__init__()
        self.word, self.place = nn.Embedding(words, width), nn.Embedding(length, width)
        self.mix = nn.ModuleList(nn.Linear(width, width) for _ in range(4)) if attends else None
        self.cell = None if attends else nn.GRU(width, width, batch_first=True)
        self.inner, self.out = nn.Linear(width, 2 * width), nn.Linear(2 * width, words)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.word(ids) + self.place(torch.arange(ids.shape[1]))
        if self.mix is not None:
            q, k, v, o = self.mix
            x = x + o(F.scaled_dot_product_attention(q(x), k(x), v(x), is_causal=True))
        else:
            assert self.cell is not None
            x = self.cell(x)[0]
        return self.out(F.relu(self.inner(x)))


def words(seed: int, attends: bool) -> Any:
    """The word three places before."""
    torch.manual_seed(seed)
    ids = torch.randint(0, 12, (600, 9), generator=drawn(seed))
    loss = lambda out, target: F.cross_entropy(out[:, 3:].flatten(0, 1), target[:, 3:].flatten())
    return Words(12, 9, 24, attends), ids, ids.roll(3, 1), loss


TASKS = {
    f.__name__: f
    for f in (
        digit_mlp, student, one_hot_digits, wrong_labels, denoiser, residual, recurrent, least_squares,
        spirals, graphs, mixer, adding, field, ratings, noisy_code, filters, words,
    )
}  # fmt: skip

# family | task | optimizer | learning rate | decay | schedule | steps | batch (0: all)
TUNING = """
    runaway mlp | digit_mlp(act=ReLU,norm=False,depth=4) | sgd | 0.1 | 0 | ramp | 500 | 64
    runaway mlp | digit_mlp(act=ReLU,norm=False,depth=4) | momentum | 0.02 | 0 | ramp | 500 | 64
    runaway mlp | digit_mlp(act=Tanh,norm=False,depth=4) | sgd | 0.1 | 0 | ramp | 500 | 64
    runaway mlp | digit_mlp(act=GELU,norm=False,depth=4) | momentum | 0.02 | 0 | ramp | 500 | 64
    runaway mlp | digit_mlp(act=ReLU,norm=False,depth=4) | adam | 0.003 | 0 | ramp | 500 | 64
    runaway labels | digit_mlp(act=ReLU,norm=False,labels="random") | sgd | 0.1 | 0 | ramp | 500 | 64
    runaway labels | digit_mlp(act=GELU,norm=False,labels="random") | momentum | 0.02 | 0 | ramp | 500 | 64
    runaway labels | digit_mlp(act=ReLU,norm=False,labels="random") | adam | 0.002 | 0 | ramp | 500 | 64
    runaway labels | digit_mlp(act=SiLU,norm=False,labels="random") | momentum | 0.01 | 0 | ramp | 500 | 64
    runaway teacher | student(depth=3,scale=0.7,act=ReLU) | sgd | 0.1 | 0 | ramp | 500 | 32
    runaway teacher | student(depth=3,scale=0.7,act=GELU) | momentum | 0.01 | 0 | ramp | 500 | 32
    runaway teacher | student(depth=3,scale=0.7,act=SiLU) | adam | 0.005 | 0 | ramp | 500 | 32
    runaway teacher | student(depth=3,scale=0.7,act=SiLU) | sgd | 0.05 | 0 | ramp | 500 | 32
    edge of stability | one_hot_digits(act=Tanh) | sgd | 1.0 | 0 | constant | 500 | 0
    edge of stability | one_hot_digits(act=ReLU) | sgd | 2.0 | 0 | constant | 500 | 0
    edge of stability | one_hot_digits(act=GELU) | momentum | 0.3 | 0 | constant | 500 | 0
    edge of stability | one_hot_digits(act=ReLU) | sgd | 4.0 | 0 | cosine | 500 | 0
    wrong labels | wrong_labels(act=ReLU,share=0.3) | sgd | 0.2 | 0 | constant | 500 | 8
    wrong labels | wrong_labels(act=GELU,share=0.5,norm=True) | adam | 0.01 | 0 | constant | 500 | 16
    wrong labels | wrong_labels(act=Tanh,share=0.2) | momentum | 0.05 | 0.001 | step | 500 | 8
    wrong labels | wrong_labels(act=SiLU,share=0.4) | adamw | 0.02 | 0.1 | constant | 500 | 32
    denoiser | denoiser(act=ReLU) | sgd | 0.3 | 0 | slow ramp | 500 | 48
    denoiser | denoiser(act=GELU) | momentum | 0.05 | 0 | ramp | 500 | 48
    denoiser | denoiser(act=SiLU) | adam | 0.003 | 0 | slow ramp | 500 | 48
    denoiser | denoiser(act=Tanh) | adam | 0.003 | 0 | ramp | 500 | 48
    denoiser | denoiser(act=ReLU) | momentum | 0.05 | 0.0001 | pulse | 500 | 24
    warm-up peak | digit_mlp(act=ReLU,norm=False,depth=6) | momentum | 0.2 | 0 | warm-up cosine | 500 | 64
    warm-up peak | digit_mlp(act=GELU,norm=True,depth=5) | adamw | 0.05 | 0.1 | warm-up cosine | 500 | 64
    warm-up peak | digit_mlp(act=Tanh,norm=False,depth=5) | adam | 0.02 | 0 | warm-up cosine | 500 | 64
    warm-up peak | digit_mlp(act=ReLU,norm=False,depth=4) | sgd | 0.3 | 0 | pulse | 500 | 32
    runaway residual | residual(act=ReLU,norm=False) | sgd | 0.02 | 0 | ramp | 500 | 48
    runaway residual | residual(act=GELU,norm=False) | momentum | 0.003 | 0 | ramp | 500 | 48
    runaway residual | residual(act=Tanh,norm=True) | adam | 0.001 | 0 | jump | 500 | 48
    runaway residual | residual(act=ReLU,norm=False) | momentum | 0.01 | 0 | jump | 500 | 48
    runaway recurrent | recurrent(gated=False) | sgd | 0.05 | 0 | ramp | 500 | 32
    runaway recurrent | recurrent(gated=True) | adam | 0.003 | 0 | ramp | 500 | 32
    runaway recurrent | recurrent(gated=False) | adam | 0.005 | 0 | slow ramp | 500 | 32
    runaway recurrent | recurrent(gated=True) | momentum | 0.05 | 0 | ramp | 500 | 32
    too high a rate | least_squares(noise=0.1) | sgd | 2.02 | 0 | constant | 500 | 0
    too high a rate | least_squares(noise=0.1) | sgd | 2.04 | 0 | constant | 500 | 0
    too high a rate | least_squares(noise=0.1) | sgd | 1.9 | 0 | constant | 500 | 0
    too high a rate | least_squares(noise=0.5) | sgd | 1.6 | 0 | constant | 500 | 50
    too high a rate | least_squares(noise=0.1) | momentum | 3.806 | 0 | constant | 500 | 0
"""
HELD_OUT = """
    spirals | spirals(act=Tanh) | adam | 0.003 | 0 | stairs | 480 | 64
    spirals | spirals(act=ReLU) | momentum | 0.02 | 0 | stairs | 480 | 32
    spirals | spirals(act=ReLU) | adamw | 0.01 | 0.1 | cosine | 480 | 32
    graphs | graphs(act=ReLU,norm=False) | sgd | 0.02 | 0 | ramp | 400 | 32
    graphs | graphs(act=SiLU,norm=True) | adam | 0.02 | 0 | long warm-up | 400 | 32
    graphs | graphs(act=GELU,norm=False) | momentum | 0.005 | 0.001 | second wind | 400 | 16
    mixer | mixer(norm=True) | adamw | 0.003 | 0.1 | long warm-up | 300 | 32
    mixer | mixer(norm=False) | sgd | 0.05 | 0 | ramp | 300 | 32
    mixer | mixer(norm=False) | adam | 0.002 | 0 | stairs | 300 | 16
    adding | adding(length=10) | adam | 0.01 | 0 | second wind | 400 | 32
    adding | adding(length=10) | momentum | 0.05 | 0 | ramp | 400 | 32
    adding | adding(length=8) | adam | 0.01 | 0 | constant | 400 | 16
    fields | field(width=48) | adam | 0.002 | 0 | stairs | 480 | 0
    fields | field(width=48) | sgd | 0.02 | 0 | ramp | 480 | 0
    fields | field(width=32) | adam | 0.005 | 0 | restarts | 480 | 64
    ratings | ratings(noise=0.3) | adam | 0.01 | 0 | long warm-up | 400 | 64
    ratings | ratings(noise=0.3) | momentum | 0.05 | 0 | stairs | 400 | 64
    ratings | ratings(noise=0.6) | adamw | 0.02 | 0.1 | one cycle | 400 | 32
    noisy code | noisy_code(act=ReLU) | momentum | 0.1 | 0 | ramp | 400 | 32
    noisy code | noisy_code(act=GELU) | adam | 0.003 | 0 | second wind | 400 | 32
    noisy code | noisy_code(act=Tanh) | adam | 0.005 | 0 | constant | 400 | 16
    filters | filters(act=ReLU) | sgd | 0.1 | 0 | ramp | 400 | 32
    filters | filters(act=GELU) | adam | 0.003 | 0 | stairs | 400 | 32
    filters | filters(act=ReLU) | momentum | 0.03 | 0.001 | cosine | 400 | 16
    attending words | words(attends=True) | adam | 0.003 | 0 | stairs | 400 | 32
    attending words | words(attends=True) | momentum | 0.1 | 0 | ramp | 400 | 32
    attending words | words(attends=True) | adamw | 0.005 | 0.1 | one cycle | 400 | 32
    remembered words | words(attends=False) | adam | 0.01 | 0 | second wind | 400 | 32
    remembered words | words(attends=False) | momentum | 0.2 | 0 | ramp | 400 | 32
    remembered words | words(attends=False) | adam | 0.005 | 0 | constant | 400 | 16
"""


def shape_of(schedule: str, n: int) -> Callable[[int], float]:
    """The learning rate of a step as a multiple of the first one's, by the name of the schedule."""
    cosine = lambda part: 0.5 * (1 + math.cos(math.pi * min(part, 1.0)))
    return {
        "constant": lambda t: 1.0,
        "cosine": lambda t: cosine(t / n),
        "warm-up cosine": lambda t: min(1.0, (t + 1) / (0.1 * n)) * cosine(max(0.0, t / n - 0.1) / 0.9),
        "step": lambda t: 1.0 if t < 0.5 * n else 0.1 if t < 0.8 * n else 0.01,
        "ramp": lambda t: 200.0 ** (t / n),
        "slow ramp": lambda t: 20.0 ** (t / n),
        "jump": lambda t: 1.0 if t < 0.5 * n else 25.0,
        "pulse": lambda t: 12.0 if 0.4 * n <= t < 0.44 * n else 1.0,
        "stairs": lambda t: 2.0 ** (8 * t // n),  # twice as high every eighth of the run
        "long warm-up": lambda t: min(1.0, (t + 1) / (0.5 * n)),
        "second wind": lambda t: 0.5 * (1 + math.cos(math.pi * 2 * t / n)) if t < 0.5 * n else 6.0,
        "restarts": lambda t: 0.5 * (1 + math.cos(math.pi * (t % (n // 3)) / (n // 3))),
        "one cycle": lambda t: min(t / (0.3 * n) + 0.03, 1.0) if t < 0.3 * n else max(0.0, 1 - (t / n - 0.3) / 0.7),
    }[schedule]


@dataclass(frozen=True)
class Trial:
    """One run: how it is built and how it is trained."""

    family: str
    seed: int
    build: Callable[[], tuple[nn.Module, Any, Any, Callable[..., torch.Tensor]]]
    optimizer: str
    lr: float
    decay: float
    schedule: str
    steps: int
    batch: int

    def optimizer_of(self, net: nn.Module) -> tuple[torch.optim.Optimizer, Any]:
        kind, momentum = {
            "sgd": (torch.optim.SGD, {}), "momentum": (torch.optim.SGD, {"momentum": 0.9}),
            "adam": (torch.optim.Adam, {}), "adamw": (torch.optim.AdamW, {}),
        }[self.optimizer]  # fmt: skip
        opt = kind(net.parameters(), lr=self.lr, weight_decay=self.decay, **momentum)
        return opt, torch.optim.lr_scheduler.LambdaLR(opt, shape_of(self.schedule, self.steps))

    def planned(self) -> np.ndarray:
        """Learning rates of the whole run as they were planned, also of steps that it did not live to see."""
        return self.lr * np.array([shape_of(self.schedule, self.steps)(t) for t in range(self.steps)])


def trials(rows: str) -> Iterator[Trial]:
    """Every run of some rows, three seeds each."""
    for row in rows.strip().splitlines():
        family, task, optimizer, lr, decay, schedule, steps, batch = (c.strip() for c in row.split("|"))
        name, _, args = task.rstrip(")").partition("(")
        pairs = [pair.split("=") for pair in args.split(",")]
        values = {k: ACTS[v] if v in ACTS else ast.literal_eval(v) for k, v in pairs}
        for seed in range(SEEDS):
            yield Trial(
                family, seed, partial(TASKS[name], seed, **values), optimizer, float(lr), float(decay), schedule,
                int(steps), int(batch),
            )  # fmt: skip
