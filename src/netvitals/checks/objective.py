"""What a loss asks for: its targets, pooled over the first batches, and the best that a constant output could do."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

CLASSES = 65_536
COLUMNS = 64
INF = math.inf
REACH = {  # what an activation can return
    "relu": (0.0, INF), "sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0), "softmax": (0.0, 1.0), "softplus": (0.0, INF),
    "exp": (0.0, INF), "log_softmax": (-INF, 0.0), "hardtanh": (-1.0, 1.0), "hardsigmoid": (0.0, 1.0),
}  # fmt: skip


class Labels:
    """Class labels of a cross-entropy, pooled over batches."""

    def __init__(self) -> None:
        self.counts: Tensor = torch.zeros(0)
        self.batches = 0
        self.inside = 0.0  # entropy within a batch, added up
        self.size = 0.0
        self.ignored = 0

    def add(self, target: Tensor, ignored: int) -> None:
        target = target.reshape(-1)
        chosen = target[target != ignored]
        self.ignored += target.numel() - chosen.numel()
        if not chosen.numel() or int(chosen.min()) < 0 or int(chosen.max()) >= CLASSES:
            return
        counts = torch.bincount(chosen.cpu()).double()
        n = max(len(counts), len(self.counts))
        self.counts = torch.nn.functional.pad(self.counts.double(), (0, n - len(self.counts)))
        self.counts[: len(counts)] += counts
        self.batches += 1
        self.inside += entropy(counts)
        self.size += float(chosen.numel())

    def facts(self) -> dict[str, Any]:
        total = float(self.counts.sum())
        return {
            "batches": self.batches,
            "classes": int((self.counts > 0).sum()),
            "entropy": entropy(self.counts),
            "within": self.inside / max(1, self.batches),
            "batch_size": self.size / max(1, self.batches),
            "most": float(self.counts.max()) / total if total else math.nan,
            "mode": int(self.counts.argmax()) if total else -1,
            "ignored": self.ignored / max(1.0, self.ignored + total),
        }


class Targets:
    """Targets of a regression or of probabilities, pooled over batches."""

    def __init__(self) -> None:
        self.n = 0
        self.mean: Tensor | None = None
        self.square: Tensor | None = None
        self.low, self.high = math.inf, -math.inf
        self.batches = 0
        self.beyond = 0.0  # share that the last activation cannot reach, added up
        self.not_finite = 0
        self.activation = ""
        self.one_hot = True  # every row of every batch has a single one among zeros

    def add(self, target: Tensor, activation: str) -> None:
        self.batches += 1
        flat = target.detach().double().reshape(len(target) if target.ndim else 1, -1)[:, :COLUMNS].cpu()
        if not bool(torch.isfinite(flat).all()):
            self.not_finite += 1
            return
        if not flat.numel():
            return
        self.low, self.high = min(self.low, float(flat.min())), max(self.high, float(flat.max()))
        if self.mean is None or len(self.mean) == flat.shape[1]:
            total = flat.sum(0)
            self.mean = total if self.mean is None else self.mean + total
            square = flat.square().sum(0)
            self.square = square if self.square is None else self.square + square
            self.n += len(flat)
        self.activation = activation
        ones = (flat == 1).sum(1) == 1
        self.one_hot = (
            self.one_hot and flat.shape[1] >= 3 and bool((ones & ((flat == 0).sum(1) == flat.shape[1] - 1)).all())
        )
        low, high = REACH.get(activation, (-math.inf, math.inf))
        room = 1e-4 * max(1.0, abs(low) if math.isfinite(low) else 0.0)
        self.beyond += float(((flat < low - room) | (flat > high + room)).double().mean())

    def facts(self) -> dict[str, Any]:
        if self.mean is None or self.square is None or not self.n:
            return {"batches": self.batches, "not_finite": self.not_finite}
        mean = self.mean / self.n
        variance = (self.square / self.n - mean.square()).clamp_min(0.0)
        return {
            "batches": self.batches,
            "activation": self.activation,
            "mean": float(mean.mean()),
            "size": float((self.square / self.n).mean().sqrt()),
            "spread": float(variance.mean().sqrt()),
            "columns": len(mean),
            "low": self.low,
            "high": self.high,
            "beyond": self.beyond / self.batches,
            "not_finite": self.not_finite,
            "one_hot": self.one_hot,
            "constant": self.n > 1 and float(variance.max()) == 0.0,
            "bernoulli": float(_bernoulli(mean).mean()) if self.low >= 0.0 and self.high <= 1.0 else math.nan,
        }


def entropy(counts: Tensor) -> float:
    """Of the classes that were counted, in nats.

    >>> round(entropy(torch.tensor([1.0, 1.0])), 4)
    0.6931
    """
    p = counts[counts > 0].double()
    if not p.numel():
        return math.nan
    p = p / p.sum()
    return float(-(p * p.log()).sum())


def _bernoulli(p: Tensor) -> Tensor:
    return -(torch.xlogy(p, p) + torch.xlogy(1 - p, 1 - p))


def smallest_cross_entropy(activation: str, classes: int) -> float:
    """The smallest cross-entropy that logits from a bounded activation can reach.

    >>> round(smallest_cross_entropy("softmax", 10), 3), round(smallest_cross_entropy("tanh", 2), 3)
    (1.461, 0.127)
    """
    low, high = REACH.get(activation, (-math.inf, math.inf))
    if not (math.isfinite(low) and math.isfinite(high)):
        return 0.0
    return math.log(1.0 + (classes - 1) * math.exp(low - high))
