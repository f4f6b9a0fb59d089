"""Losses by name."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

from netvitals_lab.data import Dataset

Loss = Callable[[Tensor, Tensor], Tensor]


def ce(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy, mean over examples."""
    return F.cross_entropy(outputs, targets)


def lm(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of the next token, mean over all positions; logits (N, T, V), targets (N, T)."""
    return F.cross_entropy(outputs.flatten(0, -2), targets.flatten().long())


def mse(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean over all entries of (o − y)²."""
    return F.mse_loss(outputs, targets)


def half_mse(outputs: Tensor, targets: Tensor) -> Tensor:
    """½‖o − y‖² summed over outputs, mean over examples: the loss of the drift and saddle theories."""
    return 0.5 * (outputs - targets).flatten(1).square().sum(1).mean()


def onehot_mse(outputs: Tensor, targets: Tensor) -> Tensor:
    """½‖o − e_y‖², mean over examples: squared loss for classes."""
    return half_mse(outputs, F.one_hot(targets, outputs.shape[-1]).to(outputs.dtype))


LOSSES: dict[str, Loss] = {"ce": ce, "lm": lm, "mse": mse, "half-mse": half_mse, "onehot-mse": onehot_mse}


def loss_named(name: str, data: Dataset | None = None) -> Loss:
    """A loss by name; ``auto`` chooses by the task of the data: ce for classes, lm for tokens, mse for values.

    >>> loss_named("onehot-mse").__name__
    'onehot_mse'
    """
    if name == "auto":
        if data is None:
            raise ValueError("loss='auto' needs a dataset to choose by; name one of " + ", ".join(LOSSES))
        name = {"classes": "ce", "tokens": "lm", "values": "mse"}[data.task]
    if name not in LOSSES:
        raise ValueError(f"there is no loss {name!r}; there are {', '.join(LOSSES)} and auto")
    return LOSSES[name]


def per_example(name: str, outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss for every example of every seed: outputs (K, N, ...), targets (K, N, ...), values (K, N).

    Its mean over examples is the loss of that name.
    """
    if name in ("ce", "lm"):
        # classes second: with seeds stacked feature-major this is the layout they already have
        losses = F.cross_entropy(outputs.movedim(-1, 1), targets.long(), reduction="none")
        return losses if losses.ndim == 2 else losses.flatten(2).mean(2)
    if name == "onehot-mse":
        targets = F.one_hot(targets, outputs.shape[-1]).to(outputs.dtype)
    squares = (outputs - targets).flatten(2).square()
    return squares.mean(2) if name == "mse" else 0.5 * squares.sum(2)


def correct(outputs: Tensor, targets: Tensor) -> Tensor | None:
    """Which predictions are right, or None when the targets are values and not classes."""
    if targets.dtype.is_floating_point:
        return None
    return (outputs.argmax(-1) == targets).float()
