"""A dataset in memory: training and test examples, and a fixed probe that no training step sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Generator, Tensor

PROBE = 64  # examples in the fixed held-out batch (gate-density paper, one batch of 64 per run)
Task = Literal["classes", "values", "tokens"]
Draw = Callable[[int, Generator], tuple[Tensor, Tensor]]


def row_major(x: Tensor) -> Tensor:
    """``x`` with the strides of a fresh tensor of its shape, copied only if it has others.

    Where a dimension has size 1, ``is_contiguous()`` accepts any stride of it, and the same tensor may count as
    channels-last too: convolutions then run in that layout, by kernels nobody asked for.

    >>> x = torch.empty_strided((32, 1, 8, 8), (64, 1, 8, 1))
    >>> x.is_contiguous(), x.contiguous().stride(), row_major(x).stride()
    (True, (64, 1, 8, 1), (64, 64, 8, 1))
    """
    wanted = torch.empty(x.shape, device="meta").stride()
    return x if x.stride() == wanted else x.clone(memory_format=torch.contiguous_format)


@dataclass(frozen=True)
class Split:
    """Inputs and targets of equal length, in row-major order."""

    x: Tensor
    y: Tensor

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"inputs and targets must have equal length, got {len(self.x)} and {len(self.y)}")
        object.__setattr__(self, "x", row_major(self.x))
        object.__setattr__(self, "y", row_major(self.y))

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: Tensor | slice) -> Split:
        return Split(self.x[index], self.y[index])

    def to(self, device: torch.device | str) -> Split:
        return Split(self.x.to(device), self.y.to(device))


@dataclass(frozen=True)
class Dataset:
    """Training and test examples, already scaled, and a probe of 64 test examples that is the same in every run.

    ``task`` says what the targets are: class numbers, values, or the next token at every position. ``mean`` and
    ``std`` are what the raw inputs were scaled with, x = (raw − mean)/std, per channel. Synthetic data can also be
    drawn afresh at every step with ``draw(count, generator)``.
    """

    name: str
    train: Split
    test: Split
    probe: Split
    task: Task
    classes: int = 0
    mean: Tensor | None = None
    std: Tensor | None = None
    draw: Draw | None = None

    @property
    def sizes(self) -> dict[str, int]:
        """What a network must know of the data to fit it, under the names the networks use."""
        x, y = self.train.x, self.train.y
        if self.task == "tokens":
            return {"vocab": self.classes, "context": x.shape[1]}
        outputs = self.classes if self.task == "classes" else y[0].numel()
        sizes = {"inputs": x[0].numel(), "outputs": outputs}
        if self.task == "classes":
            sizes["classes"] = self.classes
        if x.ndim == 4:
            sizes |= {"channels": x.shape[1], "side": x.shape[2]}
        return sizes

    @property
    def black(self) -> Tensor | None:
        """What a raw zero became after scaling: the colour to pad images with."""
        return None if self.mean is None or self.std is None else -self.mean / self.std

    def subset(self, count: int, seed: int = 0) -> Dataset:
        """The same dataset with ``count`` training examples, chosen by ``seed``."""
        if not 0 < count <= len(self.train):
            raise ValueError(f"{self.name} has {len(self.train)} training examples, cannot keep {count}")
        chosen = torch.randperm(len(self.train), generator=torch.Generator().manual_seed(seed))[:count]
        return replace(self, train=self.train[chosen])

    def permuted(self, seed: int = 0) -> Dataset:
        """The same inputs with the training targets shuffled: what is left is memory, not meaning."""
        order = torch.randperm(len(self.train), generator=torch.Generator().manual_seed(seed))
        return replace(self, name=f"{self.name} (targets permuted)", train=Split(self.train.x, self.train.y[order]))

    def to(self, device: torch.device | str) -> Dataset:
        return replace(self, train=self.train.to(device), test=self.test.to(device), probe=self.probe.to(device))

    def __str__(self) -> str:
        kind = {"classes": f"{self.classes} classes", "values": "values", "tokens": f"{self.classes} tokens"}
        return (
            f"{self.name}: {len(self.train)} training and {len(self.test)} test examples of shape "
            f"{tuple(self.train.x.shape[1:])}, {kind[self.task]}"
        )


def probe_of(test: Split) -> Split:
    """64 test examples by a fixed permutation (fewer when the test set is smaller)."""
    chosen = torch.randperm(len(test), generator=torch.Generator().manual_seed(64))[:PROBE]
    return test[chosen]
