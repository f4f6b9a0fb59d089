r"""z-loss: $\mu\,E[(\log\sum_c e^{z_c})^2]$, a term that fixes the logit-shift gauge instead of leaving it to drift.

Cross-entropy does not change when all logits move together; this does, and is least where the log-partition is zero. Of
the slices of the gauge (last bias zero, mean bias zero, log-partition zero) it picks the third, softly.
"""

from __future__ import annotations

import torch
from torch import Tensor


def z_loss(logits: Tensor, weight: float = 1e-4, *, reduction: str = "mean") -> Tensor:
    r"""Compute the z-loss: ``weight`` times the squared log-sum-exp of the logits over the last dimension.

    Args:
        logits: (..., classes).
        weight: factor of the term, not negative.
        reduction: "mean", "sum" or "none" over the others.

    Returns:
        The term to add to the loss: one number, or a tensor of shape (...) with ``"none"``.

    >>> z_loss(torch.zeros(3, 8), weight=1.0) == torch.tensor(8.0).log().square()
    tensor(True)
    """
    if weight < 0:
        raise ValueError(f"weight= is the factor of the z-loss and must not be negative, got {weight}")
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction= must be mean, sum or none, got {reduction!r}")
    value = weight * torch.logsumexp(logits, -1).square()
    return value if reduction == "none" else getattr(value, reduction)()
