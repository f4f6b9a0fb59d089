"""Small tasks that need no download: real digits, a language with a known entropy, rows of numbers with known noise."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from netvitals_lab.clinic.session import Batch

BATCH = 64
HELD = 360  # digits that are never trained on


@cache
def _digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    found = load_digits()
    order = torch.randperm(len(found.target), generator=torch.Generator().manual_seed(0))
    x = torch.tensor(found.data, dtype=torch.float32)[order]
    return (x - x.mean()) / x.std(), torch.tensor(found.target)[order]


class Digits:
    """Handwritten digits of 8×8 pixels, as rows of 64 numbers, as images or as sequences of eight rows."""

    classes = 10

    def __init__(self, seed: int = 0, shape: tuple[int, ...] = (64,), noise: float = 0.0, batch: int = BATCH) -> None:
        x, y = _digits()
        g = torch.Generator().manual_seed(seed)
        random = torch.rand(len(y), generator=g) < noise
        y = torch.where(random, torch.randint(0, 10, (len(y),), generator=g), y)
        x = x.reshape(-1, *shape)
        self.held: Batch = (x[:HELD], y[:HELD])
        self.x, self.y, self.seed, self.size = x[HELD:], y[HELD:], seed, batch

    def draw(self, step: int) -> Batch:
        """The batch of a step."""
        g = torch.Generator().manual_seed(self.seed * 100_003 + step)
        at = torch.randint(0, len(self.x), (self.size,), generator=g)
        return self.x[at], self.y[at]


@cache
def _stream(seed: int, vocabulary: int, length: int) -> Tensor:
    """Tokens of a Markov chain in which each token is followed by a few others."""
    rng = np.random.default_rng(seed)
    steps = rng.dirichlet(np.full(vocabulary, 0.15), size=vocabulary).cumsum(1)
    draws = rng.random(length)
    out = np.empty(length, dtype=np.int64)
    at = 0
    for i in range(length):
        at = out[i] = min(int(np.searchsorted(steps[at], draws[i])), vocabulary - 1)
    return torch.tensor(out)


class Language:
    """A stream of tokens with a known grammar, every part of it seen once: one epoch of a language run."""

    def __init__(self, seed: int = 0, vocabulary: int = 32, context: int = 24, batch: int = 16) -> None:
        self.vocabulary, self.context, self.size = vocabulary, context, batch
        self.tokens = _stream(seed % 7, vocabulary, 60_000)
        self.seed = seed
        self.held = self.draw(10_000_019)

    def draw(self, step: int) -> Batch:
        """Windows of the stream and the tokens that follow them."""
        g = torch.Generator().manual_seed(self.seed * 100_003 + step)
        at = torch.randint(0, len(self.tokens) - self.context - 1, (self.size,), generator=g)
        rows = at[:, None] + torch.arange(self.context + 1)
        windows = self.tokens[rows]
        return windows[:, :-1], windows[:, 1:]


class Rows:
    """Numbers in, one of two classes or a value out; with noise that no model can explain."""

    def __init__(self, seed: int = 0, kind: str = "binary", inputs: int = 12, batch: int = BATCH) -> None:
        self.seed, self.kind, self.inputs, self.size = seed, kind, inputs, batch
        g = torch.Generator().manual_seed(seed)
        self.direction = torch.randn(inputs, generator=g) / inputs**0.5
        self.held = self.draw(10_000_019)

    def draw(self, step: int) -> Batch:
        """Fresh rows on every step."""
        g = torch.Generator().manual_seed(self.seed * 100_003 + step)
        x = torch.randn(self.size, self.inputs, generator=g)
        score = x @ self.direction
        if self.kind == "binary":
            return x, (torch.rand(self.size, generator=g) < torch.sigmoid(score)).float()[:, None]
        return x, (torch.sin(2 * score) + 0.3 * torch.randn(self.size, generator=g))[:, None]
