"""A training run as a value that can be made sick and mended: model, data, loss, optimizer, and how the loop is
written.

Whatever a person can get wrong in a training loop is a field here, so that a disease is an edit of a session and a cure
is another one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Batch = tuple[Any, Tensor]
BatchEdit = Callable[[int, Any, Tensor], Batch]
ModelEdit = Callable[[nn.Module], None]
HALF_LARGEST = 65504.0  # of float16


@dataclass
class Session:
    """One training run before it begins; edited in place."""

    model: nn.Module
    draw: Callable[[int], Batch]
    loss: Callable[[Any, Tensor], Tensor]
    held: Batch
    lr: float = 1e-3
    optimizer: str = "adamw"
    momentum: float = 0.9
    betas: tuple[float, float] = (0.9, 0.99)
    eps: float = 1e-8
    weight_decay: float = 0.01
    decay_norms: bool = False
    steps: int = 160
    every: int = 2
    warmup: int = 0
    schedule: Callable[[int], float] = lambda step: 1.0
    clip: float | None = None
    zero_grad: bool = True
    accumulate: int = 1
    scale_accumulation: bool = True
    mode: Callable[[int], str] = lambda step: "train"
    sign: float = 1.0
    summed: bool = False  # the loss is a sum over the batch
    squashed: bool = False  # a softmax before a loss that has its own
    half: float | None = None  # gradients pass through float16 after the loss was multiplied by this
    trained: Callable[[str], bool] = lambda name: True  # parameters that the optimizer gets
    frozen: Callable[[str], bool] = lambda name: False  # parameters without requires_grad
    batch_edits: list[BatchEdit] = field(default_factory=list)
    model_edits: dict[int, list[ModelEdit]] = field(default_factory=dict)  # by step
    balance: float = 0.0  # weight of a loss that balances experts, where there are any
    validate: bool = False  # the held batch is the probe of the watch
    vocabulary: int = 0  # of tokens; 0 where inputs are numbers
    original: Callable[[int], Batch] | None = None  # the draw before a disease changed it

    def edit(self, step: int, change: ModelEdit) -> None:
        """Have ``change`` done to the model before a step."""
        self.model_edits.setdefault(step, []).append(change)

    def make_optimizer(self) -> torch.optim.Optimizer:
        """The optimizer that the fields describe, with norms and biases apart where they are not decayed."""
        for name, p in self.model.named_parameters():
            if self.frozen(name):
                p.requires_grad_(False)
        named = [(n, p) for n, p in self.model.named_parameters() if p.requires_grad and self.trained(n)]
        flat = [p for _, p in named if p.ndim < 2]
        groups = [
            {"params": [p for _, p in named if p.ndim >= 2], "weight_decay": self.weight_decay},
            {"params": flat, "weight_decay": self.weight_decay if self.decay_norms else 0.0},
        ]
        groups = [g for g in groups if g["params"]]
        if self.optimizer == "sgd":
            return torch.optim.SGD(groups, lr=self.lr, momentum=self.momentum)
        return torch.optim.AdamW(groups, lr=self.lr, betas=self.betas, eps=self.eps)

    def batch(self, step: int) -> Batch:
        """The batch of a step, with everything that was done to the data."""
        x, y = self.draw(step)
        for change in self.batch_edits:
            x, y = change(step, x, y)
        return x, y

    def loss_of(self, output: Any, y: Tensor) -> Tensor:
        """The loss as this loop computes it."""
        logits = logits_of(output)
        if self.squashed:
            logits = logits.softmax(-1)
        loss = self.loss(logits, y)
        if self.summed:
            loss = loss * y.numel()
        if self.balance:
            for m in self.model.modules():
                extra = getattr(m, "balance", None)
                loss = loss + self.balance * extra if isinstance(extra, Tensor) else loss
        return self.sign * loss

    def rate(self, step: int) -> float:
        """The learning rate of a step: the base rate, the warm-up, the schedule."""
        return self.lr * min(1.0, (step + 1) / self.warmup if self.warmup else 1.0) * self.schedule(step)

    @torch.no_grad()
    def outcome(self) -> float:
        """The loss on held-out data, by the healthy loss whatever the loop computes; infinite where it broke."""
        modes = [(m, m.training) for m in self.model.modules()]
        self.model.eval()
        try:
            value = float(self.loss(logits_of(self.model(self.held[0])), self.held[1]))
        finally:
            for module, mode in modes:
                module.training = mode
        return value if value == value else float("inf")


def logits_of(output: Any) -> Tensor:
    """The logits of whatever a model returns."""
    if isinstance(output, Tensor):
        return output
    return output.logits if hasattr(output, "logits") else output[0]


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy, over the tokens where there are several.

    >>> round(float(cross_entropy(torch.zeros(2, 3, 4), torch.zeros(2, 3).long())), 4)
    1.3863
    """
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))


def through_half(model: nn.Module) -> list[Any]:
    """Round every gradient as float16 would hold it: tiny ones become zero, large ones infinite."""
    return [p.register_hook(lambda g: g.half().to(g.dtype)) for p in model.parameters() if p.requires_grad]
