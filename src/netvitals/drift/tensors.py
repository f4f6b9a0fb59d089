"""Single tensors: zeros of an activation, the residual stream by depth, and one optimizer step in three norms.

What the meters and vital signs reduce on the fly is here for a tensor at hand, in double precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from netvitals.drift.sparsity_meter import SOFT_ABSOLUTE, SOFT_RELATIVE


@dataclass(frozen=True)
class TensorSparsity:
    """Sparsity of one activation tensor; shares in [0, 1].

    Returned by :func:`tensor_sparsity`.

    Attributes:
        hard: share of exact zeros.
        soft: share of |a| up to a share of the largest.
        soft_abs: share of |a| up to a fixed value.
        neg_preact: share of inputs at or below zero.
        dead_units: share of units that are zero on all examples.
        always_on: share of units that are zero on none.
        elements: behind the shares.
    """

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

    Args:
        p: pre-activations.
        a: their activations, in the same shape.
        channel_dim: the dimension that counts units.
        tau: soft sparsity counts |a| up to this share of the largest |a|.
        tau_abs: absolute soft sparsity counts |a| up to this value.

    Returns:
        Shares in [0, 1]: of elements, and of units that are always zero or never.

    >>> import torch
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
        hard=share(zero),
        soft=share(size <= tau * size.max()),
        soft_abs=share(size <= tau_abs),
        neg_preact=share(p <= 0),
        dead_units=share(zero.all(0)),
        always_on=share(~zero.any(0)),
        elements=a.numel(),
    )


@dataclass(frozen=True)
class StreamProfile:
    """Row norm and standard deviation of the stream after each block, in order of depth.

    Returned by :func:`stream_profile`.

    Attributes:
        norm: mean length of a row, block by block.
        sigma: standard deviation over everything, block by block.
    """

    norm: tuple[float, ...]
    sigma: tuple[float, ...]

    @property
    def growth(self) -> tuple[float, ...]:
        """Norm of each block over the norm of the block before."""
        return tuple(b / a if a else float("nan") for a, b in zip(self.norm, self.norm[1:]))

    def __str__(self) -> str:
        return "norm by block: " + " → ".join(f"{n:.3g}" for n in self.norm)


def stream_profile(streams: Sequence[Tensor], channel_dim: int = -1) -> StreamProfile:
    """The profile of streams that were captured block by block.

    Args:
        streams: the stream after each block, in order of depth.
        channel_dim: the dimension that the norm of a row is taken over.

    Returns:
        Mean row norm and standard deviation after each block.

    >>> import torch
    >>> print(stream_profile([torch.ones(2, 4), 2 * torch.ones(2, 4)]))
    norm by block: 2 → 4
    """
    if not streams:
        raise ValueError("expected the stream after at least one block, got none")
    rows = [s.detach().double().movedim(channel_dim, -1) for s in streams]
    return StreamProfile(
        tuple(float(r.norm(dim=-1).mean()) for r in rows), tuple(float(r.std(correction=0)) for r in rows)
    )


@dataclass(frozen=True)
class Update:
    """Norms of one step, of one tensor or of a whole model.

    Returned by :func:`update_norms`.

    Attributes:
        grad_norm: length of the gradient.
        update_norm: length of the step.
        weight_norm: length of the weights before it.
    """

    grad_norm: float
    update_norm: float
    weight_norm: float

    @property
    def ratio(self) -> float:
        return self.update_norm / self.weight_norm if self.weight_norm else float("nan")

    def __str__(self) -> str:
        return f"gradient {self.grad_norm:.3e}, update {self.update_norm:.3e} = {self.ratio:.2e} of the weights"


def update_norms(before: Mapping[str, Tensor], after: Mapping[str, Tensor], grads: Mapping[str, Tensor]) -> Update:
    """Gradient, update and weight norm over all tensors that are named in ``before``.

    Args:
        before: parameters before the step, by name.
        after: parameters after it, by name.
        grads: gradients by name; a parameter may have none.

    Returns:
        The three Euclidean norms; the weights are those before the step.

    >>> import torch
    >>> before, after = {"w": torch.tensor([3.0, 4.0])}, {"w": torch.tensor([3.0, 3.5])}
    >>> print(update_norms(before, after, {"w": torch.tensor([0.0, 5.0])}))
    gradient 5.000e+00, update 5.000e-01 = 1.00e-01 of the weights
    """
    missing = sorted(set(before) - set(after))
    if missing:
        raise ValueError(f"parameters {missing} are known before the step and not after it")
    squares = [
        sum(float(t.detach().double().square().sum()) for t in tensors)
        for tensors in (
            [grads[n] for n in before if n in grads],
            [after[n] - before[n] for n in before],
            list(before.values()),
        )
    ]
    return Update(*(s**0.5 for s in squares))
