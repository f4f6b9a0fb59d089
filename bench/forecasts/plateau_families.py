"""Small runs with a plateau, of families that no constant of a forecaster was chosen on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Task(NamedTuple):
    """One run: a model, its data and how it is trained."""

    model: nn.Module
    x: Tensor
    y: Tensor
    loss_fn: Callable[[Tensor, Tensor], Tensor]
    optimizer: torch.optim.Optimizer
    steps: int
    batch: int = 0  # 0: the whole set


def _small(model: nn.Module, scale: float) -> nn.Module:
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(scale if p.ndim > 1 else 0.0)
    return model


def _optimizer(model: nn.Module, seed: int, sgd: float, adam: float) -> torch.optim.Optimizer:
    """SGD, momentum and Adam by turns."""
    p, kind = model.parameters(), seed % 3
    if kind == 2:
        return torch.optim.Adam(p, lr=adam)
    return torch.optim.SGD(p, lr=sgd * (0.2 if kind else 1.0), momentum=0.8 if kind else 0.0)


def _digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    found = load_digits()
    x = torch.tensor(found.data, dtype=torch.float32)
    return (x - x.mean()) / x.std(), torch.tensor(found.target)


def mse_chain(seed: int) -> Task:
    """A product of small layers that learns a sine of one direction."""
    x = torch.randn(256, 6)
    act = (nn.Tanh, nn.GELU)[seed % 2]
    net = nn.Sequential(nn.Linear(6, 20), act(), nn.Linear(20, 20), act(), nn.Linear(20, 1))
    y = torch.sin(x @ torch.randn(6, 1) / 2)
    return Task(_small(net, 0.3), x, y, F.mse_loss, _optimizer(net, seed, 0.04, 3e-4), 900)


def autoencoder(seed: int) -> Task:
    """Points near a plane of three dimensions, through a code of four."""
    x = torch.randn(256, 3) @ torch.randn(3, 12) / 3**0.5 + 0.1 * torch.randn(256, 12)
    net = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 4), nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 12))
    return Task(_small(net, 0.4), x, x, F.mse_loss, _optimizer(net, seed, 0.06, 2e-4), 900)


def cnn(seed: int) -> Task:
    """Digits as images, small filters."""
    x, y = _digits()
    act = (nn.ReLU, nn.GELU)[seed % 2]
    net = nn.Sequential(nn.Conv2d(1, 6, 3, stride=2), act(), nn.Conv2d(6, 8, 2), act(), nn.Flatten(), nn.Linear(32, 10))
    chosen = torch.randperm(len(x))[:512]
    x, y = x[chosen].reshape(-1, 1, 8, 8), y[chosen]
    opt = _optimizer(net, seed, 0.1, 3e-4)
    return Task(_small(net, 0.4), x, y, F.cross_entropy, opt, 600, 64)


class Gated(nn.Module):
    """Two gated layers, the second reading the first."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.first = nn.ModuleList(nn.Linear(inputs, width) for _ in range(2))
        self.second = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.out = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        for gate, value in (self.first, self.second):
            x = torch.sigmoid(gate(x)) * value(x)
        return self.out(x)


def gated(seed: int) -> Task:
    x = torch.randn(256, 6)
    net = _small(Gated(6, 16), 0.2)
    y = x[:, :1] * (1 + 0.5 * torch.tanh(x[:, 1:2]))
    return Task(net, x, y, F.mse_loss, _optimizer(net, seed, 0.1, 3e-4), 800)


class Residual(nn.Module):
    """The output reads the branches alone."""

    def __init__(self, inputs: int, width: int, outputs: int) -> None:
        super().__init__()
        self.inward = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)) for _ in range(2)
        )
        self.outward = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inward(x)
        for block in self.blocks:
            x = x + block(x)
        return self.outward(x)


def residual(seed: int) -> Task:
    x = torch.randn(256, 8)
    net = _small(Residual(8, 20, 2), 0.08)
    y = torch.cat([x[:, :1] * 1.2, torch.tanh(x[:, 1:2] + x[:, 2:3])], 1)
    return Task(net, x, y, F.mse_loss, _optimizer(net, seed, 0.02, 2e-4), 800)


class Reader(nn.Module):
    """A transformer without norms: attention layers on tokens and places."""

    def __init__(self, words: int, length: int, width: int, layers: int) -> None:
        super().__init__()
        self.word, self.place = nn.Embedding(words, width), nn.Embedding(length, width)
        self.parts = nn.ModuleList(nn.ModuleList(nn.Linear(width, width) for _ in range(4)) for _ in range(layers))
        self.out = nn.Linear(width, words)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.word(ids) + self.place(torch.arange(ids.shape[1]))
        for q, k, v, o in self.parts:
            x = x + o(F.scaled_dot_product_attention(q(x), k(x), v(x), is_causal=True))
        return self.out(x)


def _last_half(out: Tensor, y: Tensor) -> Tensor:
    half = out.shape[1] // 2
    return F.cross_entropy(out[:, -half:].flatten(0, 1), y[:, -half:].flatten())


def copying(seed: int) -> Task:
    """The word four places before."""
    ids = torch.randint(0, 8, (512, 8))
    net = _small(Reader(8, 8, 16, 1), 0.3)
    opt = torch.optim.Adam(net.parameters(), lr=(6e-4, 1e-3)[seed % 2])
    return Task(net, ids, ids.roll(4, 1), _last_half, opt, 500, 64)


def induction(seed: int) -> Task:
    """What followed this word when it last came: the second half repeats the first from a place by lot."""
    first = torch.rand(768, 12).argsort(1)[:, :6]
    places = (torch.arange(6) + torch.randint(0, 6, (768, 1))) % 6
    ids = torch.cat([first, first.gather(1, places)], 1)
    follows = torch.cat([first.roll(-1, 1), first.gather(1, (places + 1) % 6)], 1)
    net = _small(Reader(12, 12, 24, 2), 0.4)
    opt = torch.optim.Adam(net.parameters(), lr=(1e-3, 1.5e-3)[seed % 2])
    return Task(net, ids, follows, _last_half, opt, 700, 64)


class Sum(nn.Module):
    def __init__(self, p: int, width: int) -> None:
        super().__init__()
        self.word = nn.Embedding(p, width)
        self.mix = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.inner, self.out = nn.Linear(width, 2 * width), nn.Linear(2 * width, p)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.word(ids)
        q, k, v, o = self.mix
        x = x + o(F.scaled_dot_product_attention(q(x), k(x), v(x)))
        return self.out(F.relu(self.inner(x.sum(1))))


def modular_addition(seed: int) -> Task:
    """(a + b) mod 13, all pairs, by attention and a hidden layer."""
    p = 13
    ids = torch.cartesian_prod(torch.arange(p), torch.arange(p))
    net = _small(Sum(p, 24), 0.5)
    opt = torch.optim.Adam(net.parameters(), lr=(4e-4, 6e-4)[seed % 2])
    return Task(net, ids, ids.sum(1) % p, F.cross_entropy, opt, 500)


def classes(seed: int) -> Task:
    """Four classes by a chain of small layers."""
    x = torch.randn(320, 8)
    net = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 4))
    y = (x @ torch.randn(8, 4)).argmax(1)
    opt = _optimizer(net, seed, 0.15, 3e-4)
    return Task(_small(net, 0.2), x, y, F.cross_entropy, opt, 700)


FAMILIES: dict[str, Callable[[int], Task]] = {
    "MSE chain": mse_chain,
    "autoencoder": autoencoder,
    "CNN on images": cnn,
    "gated": gated,
    "residual": residual,
    "transformer, copy": copying,
    "transformer, induction": induction,
    "transformer, modular addition": modular_addition,
    "cross-entropy chain": classes,
}


def task(family: str, seed: int) -> Task:
    """The run of a family and a seed."""
    torch.manual_seed(7000 + seed)
    return FAMILIES[family](seed)
