"""More tasks of the forecast corpus: networks that only look as if they were lost, others that are, and norms."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from families_1 import digits, drawn, mlp
from torch import nn


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


def digit_cnn(seed: int, act: type[nn.Module], norm: bool = True) -> Any:
    torch.manual_seed(seed)
    x, y = digits()
    bn = (lambda c: [nn.BatchNorm2d(c)]) if norm else (lambda c: [])
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), *bn(16), act(), nn.Conv2d(16, 16, 3, stride=2, padding=1), *bn(16), act(),
        nn.Flatten(), nn.Linear(256, 48), act(), nn.Linear(48, 10),
    )  # fmt: skip
    return net, x.reshape(-1, 1, 8, 8), y, F.cross_entropy


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


MORE = {f.__name__: f for f in (least_squares, one_hot_digits, wrong_labels, denoiser, residual, recurrent, digit_cnn)}
