"""Sparsity of one activation tensor: exact zeros, near zeros, dead units and units that never rest."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from netvitals.drift.sparsity_meter import SOFT_ABSOLUTE, SOFT_RELATIVE


@dataclass(frozen=True)
class TensorSparsity:
    """Sparsity of one activation tensor; shares in [0, 1]."""

    hard: float
    soft: float
    soft_abs: float
    neg_preact: float
    dead_units: float
    always_on: float
    elements: int

    def __str__(self) -> str:
        return (
            f"{self.hard:.1%} zero, {self.soft:.1%} near zero, {self.dead_units:.1%} of units dead, "
            f"{self.always_on:.1%} always on ({self.elements} elements)"
        )


def tensor_sparsity(
    p: Tensor, a: Tensor, *, channel_dim: int = 1, tau: float = SOFT_RELATIVE, tau_abs: float = SOFT_ABSOLUTE
) -> TensorSparsity:
    """All shares for one tensor of pre-activations ``p`` and its activations ``a``.

    >>> p = torch.tensor([[1.0, -1.0], [2.0, -2.0]])
    >>> print(tensor_sparsity(p, p.relu()))
    50.0% zero, 50.0% near zero, 50.0% of units dead, 50.0% always on (4 elements)
    """
    if p.shape != a.shape or a.numel() == 0:
        raise ValueError(f"p and a must have one shape with elements, got {tuple(p.shape)} and {tuple(a.shape)}")
    if not 0 <= tau < 1:
        raise ValueError(f"tau is a share of the largest activation and must lie in [0, 1), got {tau}")
    size = a.detach().abs()
    zero = (size == 0).movedim(channel_dim, -1).reshape(-1, a.shape[channel_dim] if a.ndim > 1 else 1)

    def share(mask: Tensor) -> float:
        return float(mask.double().mean())

    return TensorSparsity(
        share(zero),
        share(size <= tau * size.max()),
        share(size <= tau_abs),
        share(p <= 0),
        share(zero.all(0)),
        share(~zero.any(0)),
        a.numel(),
    )
