"""The tasks of the forecast corpus: each returns a network, inputs, targets and a loss function."""

from __future__ import annotations

import math
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from netvitals_lab import data, models

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


def parity(seed: int, k: int, width: int, act: type[nn.Module] = nn.ReLU, scale: float = 1.0) -> Any:
    torch.manual_seed(seed)
    x = torch.randint(0, 2, (512, 12), generator=drawn(seed)).float() * 2 - 1
    y = x[:, :k].prod(1, keepdim=True)
    return mlp([12, width, 1], act, scale=scale), x, y, F.mse_loss


def linear_chain(seed: int, depth: int, scale: float, rank: int = 3) -> Any:
    torch.manual_seed(seed)
    g = drawn(seed)
    x = torch.randn(256, 10, generator=g)
    u, v = (torch.linalg.qr(torch.randn(10, rank, generator=g))[0] for _ in range(2))
    target = x @ v @ torch.diag(torch.tensor([2.0, 1.0, 0.5][:rank])) @ u.T
    net = nn.Sequential(*(nn.Linear(10, 10, bias=False) for _ in range(depth)))
    for layer in net:
        nn.init.normal_(layer.weight, std=scale / math.sqrt(10))
    return net, x, target, F.mse_loss


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


def images(count: int = 2000) -> tuple[torch.Tensor, torch.Tensor]:
    found = data.load("cifar10")
    split = found.train
    x = torch.as_tensor(np.asarray(split.x))[:count].float()
    x = (x - x.mean()) / x.std()
    return F.avg_pool2d(x, 2), torch.as_tensor(np.asarray(split.y))[:count].long()


def digit_mlp(seed: int, act: type[nn.Module], norm: bool, depth: int = 3, labels: str = "true") -> Any:
    torch.manual_seed(seed)
    x, y = digits()
    if labels == "random":
        x, y = x[:512], torch.randint(0, 10, (512,), generator=drawn(seed))
    return mlp([64] + [64] * (depth - 1) + [10], act, norm=norm), x, y, F.cross_entropy


def text_gpt(seed: int, act: str) -> Any:
    spec = f"gpt-micro,depth=2,width=32,heads=2,context=32,act={act},vocab=128"
    net = models.build(spec, seed=seed)
    text = Path(str(data_folder()), "tinyshakespeare.txt").read_bytes()[:60_000]
    ids = torch.tensor([min(c, 127) for c in text])
    rows = ids[: len(ids) // 33 * 33].reshape(-1, 33)
    loss = lambda out, target: F.cross_entropy(out.flatten(0, -2), target.flatten())
    return net, rows[:, :-1].contiguous(), rows[:, 1:].contiguous(), loss


def data_folder() -> Path:
    return Path(os.environ.get("NETVITALS_DATA", "data"))


def modular(seed: int, width: int, p: int = 23) -> Any:
    torch.manual_seed(seed)
    a, b = torch.meshgrid(torch.arange(p), torch.arange(p), indexing="ij")
    x = torch.cat([F.one_hot(a.reshape(-1), p), F.one_hot(b.reshape(-1), p)], 1).float()
    return mlp([2 * p, width, p], nn.ReLU), x, ((a + b) % p).reshape(-1), F.cross_entropy


class Factors(nn.Module):
    """A matrix as a product of two or three small ones."""

    def __init__(self, n: int, depth: int, scale: float) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(n, n, bias=False) for _ in range(depth))
        for part in self.parts:
            nn.init.normal_(part.weight, std=scale / math.sqrt(n))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x)
        return x


def factors(seed: int, scale: float, depth: int = 2, n: int = 16) -> Any:
    torch.manual_seed(seed)
    g = drawn(seed)
    a, b = torch.randn(n, 2, generator=g), torch.randn(2, n, generator=g)
    return Factors(n, depth, scale), torch.eye(n), (a @ b) / math.sqrt(n), lambda o, y: (o - y).square().sum() / len(y)


def autoencoder(seed: int, act: type[nn.Module], scale: float) -> Any:
    torch.manual_seed(seed)
    x, _ = digits()
    return mlp([64, 24, 8, 24, 64], act, scale=scale), x[:800], x[:800], F.mse_loss


def cnn(seed: int, act: type[nn.Module], norm: bool = True, width: int = 12) -> Any:
    torch.manual_seed(seed)
    bn = (lambda c: [nn.BatchNorm2d(c)]) if norm else (lambda c: [])
    net = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), *bn(width), act(), nn.MaxPool2d(2),
        nn.Conv2d(width, width, 3, padding=1), *bn(width), act(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(width * 16, 32), *([nn.BatchNorm1d(32)] if norm else []), act(), nn.Linear(32, 10),
    )  # fmt: skip
    x, y = images(1000)
    return net, x, y, F.cross_entropy


def image_mlp(seed: int, act: type[nn.Module], norm: bool) -> Any:
    torch.manual_seed(seed)
    x, y = images(1000)
    x = F.avg_pool2d(x, 2).flatten(1)
    return mlp([x.shape[1], 64, 64, 64, 10], act, norm=norm), x, y, F.cross_entropy


def floor(seed: int, kind: str, scale: float) -> Any:
    torch.manual_seed(seed)
    g = drawn(seed)
    x = torch.randn(256, 8, generator=g)
    y = torch.randn(256, 1, generator=g) if kind == "noise" else x[:, :1] + torch.randn(256, 1, generator=g)
    return mlp([8, 16, 16, 1] if kind == "noise" else [8, 1], nn.Tanh, scale=scale), x, y, F.mse_loss


TASKS = {
    f.__name__: f
    for f in (
        drawn,
        parity,
        linear_chain,
        student,
        digit_mlp,
        text_gpt,
        modular,
        factors,
        autoencoder,
        cnn,
        image_mlp,
        floor,
    )
}
