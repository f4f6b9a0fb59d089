"""Activations that choose their own sparsity: top-k of any module's output, and ReLU above a quantile.

Both use one rule for "the q-quantile of n numbers": element number ⌊q·n⌋+1 in ascending order, so that exactly ⌊q·n⌋
numbers lie below it.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Granularity = Literal["token", "sample", "channel", "batch", "global"]
Mode = Literal["mask", "continuous", "shifted"]
GRANULARITIES: tuple[str, ...] = get_args(Granularity)
MODES: tuple[str, ...] = get_args(Mode)


def below(q: float, n: int) -> int:
    """⌊q·n⌋, unharmed by binary fractions (0.29 of 100 is 29).

    >>> below(0.29, 100)
    29
    """
    return min(n, math.floor(q * n + 1e-9))


def share(value: float | None, name: str) -> float | None:
    """The ``value`` if it is a share in [0, 1] (or None), else a ValueError that calls it ``name``."""
    if value is not None and not 0 <= value <= 1:
        raise ValueError(f"{name} must be a fraction between 0 and 1, got {value}")
    return value


def kth(x: Tensor, q: float, dim: int) -> Tensor:
    """Element number ⌊q·n⌋+1 in ascending order along ``dim`` (the largest one if q = 1), that dimension kept.

    Args:
        x: values of any shape.
        q: the share of entries that shall lie below, in [0, 1].
        dim: the dimension along which entries are put in order.

    Returns:
        x's shape with size 1 at ``dim``; a gradient flows to the chosen entries.

    >>> kth(torch.tensor([3.0, 1.0, 4.0, 2.0]), 0.5, dim=0).item()
    3.0
    """
    n = x.shape[dim]
    return torch.kthvalue(x, min(below(q, n) + 1, n), dim=dim, keepdim=True).values


def _groups(x: Tensor, granularity: str, channel_dim: int) -> tuple[Tensor, tuple[int, ...]]:
    """x permuted so that the last axis is one competition; and the permuted shape before flattening."""
    c = channel_dim % x.ndim
    if granularity == "token":
        moved = x.movedim(c, -1)
        return moved, tuple(moved.shape)
    if granularity == "channel":
        moved = x.movedim(c, 0)
        return moved.reshape(moved.shape[0], -1), tuple(moved.shape)
    if granularity == "sample":
        return x.reshape(x.shape[0], -1), tuple(x.shape)
    if granularity == "batch":
        moved = x.movedim(0, -1)
        return moved, tuple(moved.shape)
    return x.reshape(1, -1), tuple(x.shape)


def _ungroup(mask: Tensor, shape: tuple[int, ...], granularity: str, channel_dim: int, ndim: int) -> Tensor:
    c = channel_dim % ndim
    mask = mask.reshape(shape)
    return {
        "token": lambda: mask.movedim(-1, c),
        "channel": lambda: mask.movedim(0, c),
        "batch": lambda: mask.movedim(-1, 0),
    }.get(granularity, lambda: mask)()


def topk_mask(x: Tensor, sparsity: float, granularity: str = "token", channel_dim: int = -1) -> Tensor:
    """True on the largest n − ⌊s·n⌋ entries by signed value of every competition of n entries.

    Args:
        x: values; no gradient is taken through the choice.
        sparsity: the share s of each competition that loses, in [0, 1].
        granularity: who competes. ``"token"``: the channels of one position of one sample; ``"sample"``: all of one
            sample; ``"channel"``: one channel over batch and positions; ``"batch"``: one entry over the batch;
            ``"global"``: the whole tensor.
        channel_dim: the dimension of channels, by default the last; only ``"token"`` and ``"channel"`` use it.

    Returns:
        A boolean tensor of x's shape. Ties are broken, so the share is exact.

    >>> topk_mask(torch.tensor([[1.0, -5.0, 3.0, 2.0]]), 0.5).tolist()
    [[False, False, True, True]]
    """
    share(sparsity, "sparsity")
    if granularity not in GRANULARITIES:
        raise ValueError(f"granularity= must be one of {', '.join(GRANULARITIES)}, got {granularity!r}")
    rows, shape = _groups(x.detach(), granularity, channel_dim)
    n = rows.shape[-1]
    kept = rows.topk(n - below(sparsity, n), dim=-1, sorted=False).indices
    mask = torch.zeros_like(rows, dtype=torch.bool).scatter(-1, kept, torch.ones_like(kept, dtype=torch.bool))
    return _ungroup(mask, shape, granularity, channel_dim, x.ndim)


class _Threshold(nn.Module):
    """A running average of thresholds: follows them in training, stands still after ``limit`` batches."""

    value: Tensor
    batches: Tensor

    def __init__(self, momentum: float = 0.1, limit: int | None = None) -> None:
        super().__init__()
        self.momentum = momentum
        self.limit = limit
        self.register_buffer("value", torch.zeros(()))
        self.register_buffer("batches", torch.zeros((), dtype=torch.long))

    @property
    def frozen(self) -> bool:
        return self.limit is not None and int(self.batches) >= self.limit

    def update(self, threshold: Tensor) -> None:
        new = threshold.detach().to(self.value.device)
        if self.value.shape != new.shape and int(self.batches):
            raise ValueError(
                f"the running threshold has shape {tuple(self.value.shape)}, but this batch needs {tuple(new.shape)}: "
                "with a running threshold, all inputs must have the same shape"
            )
        first = int(self.batches) == 0
        self.value = new.clone() if first else torch.lerp(self.value, new.to(self.value.dtype), self.momentum)
        self.batches += 1

    def _load_from_state_dict(self, state_dict, prefix, *rest) -> None:
        stored = state_dict.get(prefix + "value")
        if stored is not None and stored.shape != self.value.shape:  # the shape is learned from the first batch
            self.value = torch.zeros_like(stored, device=self.value.device)
        super()._load_from_state_dict(state_dict, prefix, *rest)


class TopK(nn.Module):
    """Keep the largest (1 − s) share of what a module returns, by signed value, and zero the rest.

    ``inner`` is any activation, linear or convolution. ``post=False`` masks the input instead, before ``inner``.
    ``granularity`` says who competes with whom (see :func:`topk_mask`); only ``"token"`` keeps a causal language model
    causal. ``sparsity=None`` is ``inner`` alone, 1 is all zeros. ``channel_dim`` defaults to the last dimension, or 1
    for inputs of four and more dimensions and for convolutions.

    With ``running=True`` (channel, batch, global) a threshold is averaged over training batches (``momentum``), used in
    evaluation, and frozen after ``max_tracked`` batches.

    Args:
        inner: any activation, linear or convolution.
        sparsity: share s that becomes zero; None is ``inner`` alone.
        granularity: who competes with whom.
        post: mask what ``inner`` returns; False masks its input.
        channel_dim: the last dimension by default, 1 for images.
        running: use an averaged threshold in evaluation.
        momentum: momentum of the running average.
        max_tracked: batches after which it is frozen; None never.

    >>> TopK(nn.GELU(), 0.75)
    TopK(
      sparsity=0.75, granularity=token
      (inner): GELU(approximate='none')
    )
    >>> TopK(nn.Identity(), 0.5)(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).tolist()
    [[4.0, 0.0, 3.0, 0.0]]
    """

    def __init__(
        self,
        inner: nn.Module,
        sparsity: float | None,
        granularity: Granularity = "token",
        *,
        post: bool = True,
        channel_dim: int | None = None,
        running: bool = False,
        momentum: float = 0.1,
        max_tracked: int | None = None,
    ) -> None:
        super().__init__()
        if granularity not in GRANULARITIES:
            raise ValueError(f"granularity= must be one of {', '.join(GRANULARITIES)}, got {granularity!r}")
        if running and granularity in ("token", "sample"):
            raise ValueError(
                f"a running threshold must have granularity channel, batch or global, got {granularity!r}: with this "
                "granularity, each token or sample has its own threshold"
            )
        self.inner = inner
        self.sparsity = share(sparsity, "sparsity")
        self.granularity = granularity
        self.post = post
        self.channel_dim = channel_dim
        self.threshold = _Threshold(momentum, max_tracked) if running else None

    @property
    def elementwise(self) -> bool | None:
        """False around a linear layer: then this is no activation, and whoever looks must look inside."""
        return False if isinstance(self.inner, (nn.Linear, nn.modules.conv._ConvNd)) else None

    def forward(self, x: Tensor) -> Tensor:
        if self.sparsity is None:
            return self.inner(x)
        if not self.post:
            return self.inner(self._thinned(x))
        return self._thinned(self.inner(x))

    def _channels(self, x: Tensor) -> int:
        if self.channel_dim is not None:
            return self.channel_dim
        if isinstance(self.inner, nn.modules.conv._ConvNd):
            return -1 - len(self.inner.kernel_size)
        return 1 if x.ndim >= 4 and not isinstance(self.inner, nn.Linear) else -1

    def _thinned(self, x: Tensor) -> Tensor:
        assert self.sparsity is not None
        c = self._channels(x)
        running = self.threshold
        if running is None:
            return x * topk_mask(x, self.sparsity, self.granularity, c)
        if self.training and not running.frozen:
            rows, shape = _groups(x.detach(), self.granularity, c)
            edge = kth(rows, self.sparsity, dim=-1)
            running.update(_ungroup(edge, _edge_shape(edge, shape, self.granularity), self.granularity, c, x.ndim))
            return x * topk_mask(x, self.sparsity, self.granularity, c)
        return x * (x >= running.value) if self.sparsity < 1 else x * 0

    def extra_repr(self) -> str:
        parts = [f"sparsity={self.sparsity}", f"granularity={self.granularity}"]
        return ", ".join(parts + ([] if self.post else ["before"]) + (["running"] if self.threshold else []))


def _edge_shape(edge: Tensor, shape: tuple[int, ...], granularity: str) -> tuple[int, ...]:
    """The shape in which thresholds broadcast against the input."""
    if granularity == "batch":
        return (*shape[:-1], 1)
    if granularity == "channel":
        return (shape[0], *[1] * (len(shape) - 1))
    return (1,) * len(shape)


def quantile_relu(
    x: Tensor, q: float | None, mode: Mode = "mask", *, signed: bool = True, threshold: Tensor | None = None
) -> Tensor:
    r"""ReLU with threshold θ, the q-quantile of each feature over the batch dimension.

    Args:
        x: values with the batch in dimension 0.
        q: the share of each feature's entries that θ lies above, in [0, 1]; None is plain ReLU.
        mode: ``"mask"``: $x\,1[x\ge\theta]$; ``"continuous"``: $\max(0, x-\theta)$; ``"shifted"``: $\max(x,\theta)$.
        signed: False lets the rule act on |x| and puts the sign back.
        threshold: θ itself, broadcastable to x; None takes it from x, and the gradient then passes through it.

    Returns:
        A tensor of x's shape.

    >>> quantile_relu(torch.tensor([[1.0], [2.0], [3.0], [4.0]]), 0.5).ravel().tolist()
    [0.0, 0.0, 3.0, 4.0]
    """
    if q is None:
        return F.relu(x)
    size = x if signed else x.abs()
    theta = kth(size, q, dim=0) if threshold is None else threshold
    if mode == "mask":
        value = size * (size >= theta)
    elif mode == "continuous":
        value = F.relu(size - theta)
    else:
        value = F.relu(size - theta) + theta
    return value if signed else torch.sign(x) * value


class QuantileReLU(nn.Module):
    """ReLU whose threshold is the q-quantile of each feature over the batch, see :func:`quantile_relu`.

    With ``running=True``, evaluation uses the average threshold of the training batches. The output for one example
    then does not depend on the rest of its batch.

    Args:
        q: share of each feature's values below the threshold; None is a plain ReLU.
        mode: ``mask``, ``continuous`` or ``shifted``, as for :func:`quantile_relu`.
        signed: False lets the rule act on |x| and puts the sign back.
        running: use an averaged threshold in evaluation.
        momentum: momentum of the running average.
        max_tracked: batches after which it is frozen; None never.

    >>> y = QuantileReLU(0.5)(torch.tensor([[1.0], [2.0], [3.0], [4.0]]))
    >>> int((y == 0).sum())
    2
    """

    def __init__(
        self,
        q: float | None = 0.5,
        mode: Mode = "mask",
        *,
        signed: bool = True,
        running: bool = False,
        momentum: float = 0.1,
        max_tracked: int | None = None,
    ) -> None:
        super().__init__()
        if mode not in MODES:
            raise ValueError(f"mode= must be one of {', '.join(MODES)}, got {mode!r}")
        self.q = share(q, "q")
        self.mode: Mode = mode
        self.signed = signed
        self.threshold = _Threshold(momentum, max_tracked) if running else None

    def forward(self, x: Tensor) -> Tensor:
        """Apply ReLU to ``x`` with the quantile threshold of the batch."""
        running = self.threshold
        if running is None or self.q is None:
            return quantile_relu(x, self.q, self.mode, signed=self.signed)
        if self.training and not running.frozen:
            running.update(kth(x.detach() if self.signed else x.detach().abs(), self.q, dim=0))
            return quantile_relu(x, self.q, self.mode, signed=self.signed)
        return quantile_relu(x, self.q, self.mode, signed=self.signed, threshold=running.value)

    def extra_repr(self) -> str:
        """Return the settings, for printing the module."""
        return f"q={self.q}, mode={self.mode}" + ("" if self.signed else ", unsigned")
