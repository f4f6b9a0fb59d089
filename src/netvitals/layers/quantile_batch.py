r"""Batch norms that choose where zero is: $y = \gamma (x-m)/\sqrt{v+\varepsilon} + \beta$ with $m$ the q-quantile of x.

Directly before a ReLU with β = 0, a share q of the outputs is zero. With ``q=None`` they are torch's batch norms. The
quantile of n numbers is element number ⌊q·n⌋+1 in ascending order; the gradient passes through it.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from netvitals.activations import kth

Search = Literal["channelwise", "batchwise", "global"]


def check(q: float | None, search: str, allowed: tuple[str, ...], variance: str, max_tracked: int | None) -> None:
    """Raise a ValueError that names the wrong option of a quantile norm."""
    if q is not None and not 0 <= q < 1:
        raise ValueError(f"q= must be a fraction in [0, 1), got {q}")
    if search not in allowed:
        raise ValueError(f"search= must be one of {', '.join(allowed)}, got {search!r}")
    if variance not in ("quantile", "mean"):
        raise ValueError(f"variance= must be 'quantile' or 'mean', got {variance!r}")
    if max_tracked is not None and max_tracked < 1:
        raise ValueError(f"max_tracked= is a number of batches and must be at least 1, got {max_tracked}")


class QuantileBatchNorm(_NormBase):
    r"""Batch norm about the q-quantile, for inputs (N, C, ...).

    ``search`` says where the quantile is taken: ``"channelwise"`` per sample and channel over positions, then averaged
    over the batch; ``"batchwise"`` per channel over batch and positions; ``"global"`` one for the whole tensor.
    ``variance`` is ``"quantile"`` (second moment about the quantile) or ``"mean"`` (ordinary variance). Running
    statistics serve evaluation; after ``max_tracked`` batches they are frozen and serve training too.

    Not a subclass of torch's batch norms: the mean of its output is not β.

    >>> norm = QuantileBatchNorm2d(3, q=0.75, search="batchwise")
    >>> y = norm(torch.randn(8, 3, 10, 10))
    >>> round((y < 0).float().mean().item(), 2)
    0.75
    """

    dimensions: tuple[int, ...] = ()

    def __init__(
        self,
        num_features: int,
        q: float | None = None,
        search: Search = "channelwise",
        *,
        variance: Literal["quantile", "mean"] = "quantile",
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        max_tracked: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype)
        check(q, search, ("channelwise", "batchwise", "global"), variance, max_tracked)
        self.q = q
        self.search = search
        self.variance = variance
        self.max_tracked = max_tracked

    def _check_input_dim(self, input: Tensor) -> None:
        if (self.dimensions and input.dim() not in self.dimensions) or input.shape[1] != self.num_features:
            raise ValueError(
                f"{type(self).__name__} expects {' or '.join(map(str, self.dimensions))} dimensions with "
                f"{self.num_features} channels in the second, got shape {tuple(input.shape)}"
            )

    @property
    def frozen(self) -> bool:
        """Whether the running statistics have stopped."""
        seen = self.num_batches_tracked
        return self.max_tracked is not None and seen is not None and int(seen) >= self.max_tracked

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        mean, var = self.running_mean, self.running_var
        if mean is not None and (not self.training or self.frozen):
            return F.batch_norm(input, mean, var, self.weight, self.bias, False, 0.0, self.eps)
        weight = self._step()
        if self.q is None:
            return F.batch_norm(input, mean, var, self.weight, self.bias, True, weight, self.eps)
        x = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        centre = self._centre(x)
        shape = (1, -1) + (1,) * (x.ndim - 2)
        others = [d for d in range(x.ndim) if d != 1]
        if self.variance == "mean":
            spread = x.var(dim=others, unbiased=False)
        else:
            spread = ((x - centre.view(shape)) ** 2).mean(dim=others)
        if self.training and mean is not None and var is not None:
            count = x.numel() // x.shape[1]
            with torch.no_grad():
                mean.lerp_(centre.detach().to(mean.dtype), weight)
                var.lerp_((spread.detach() * count / max(count - 1, 1)).to(var.dtype), weight)
        y = (x - centre.view(shape)) * torch.rsqrt(spread + self.eps).view(shape)
        if self.affine:
            y = y * self.weight.view(shape) + self.bias.view(shape)
        return y.to(input.dtype)

    def _step(self) -> float:
        """Count the batch and return its weight in the running statistics; momentum=None weighs all alike."""
        if not self.training or self.num_batches_tracked is None:
            return self.momentum or 0.0
        self.num_batches_tracked.add_(1)
        return self.momentum if self.momentum is not None else 1.0 / float(self.num_batches_tracked)

    def _centre(self, x: Tensor) -> Tensor:
        assert self.q is not None
        if self.search == "global":
            return kth(x.flatten(), self.q, dim=0).expand(x.shape[1])
        if self.search == "batchwise" or x.ndim == 2:  # without positions a sample has nothing to take a quantile of
            return kth(x.transpose(0, 1).flatten(1), self.q, dim=1).squeeze(1)
        return kth(x.flatten(2), self.q, dim=2).squeeze(2).mean(dim=0)

    def extra_repr(self) -> str:
        text = f"{self.num_features}, q={self.q}, search={self.search}, variance={self.variance}, eps={self.eps:g}"
        return text + (f", max_tracked={self.max_tracked}" if self.max_tracked else "")


class QuantileBatchNorm1d(QuantileBatchNorm):
    """Batch norm that subtracts the q-quantile instead of the mean, for inputs (N, C) or (N, C, L).

    >>> y = QuantileBatchNorm1d(3, q=0.75)(torch.randn(64, 3))
    >>> (y < 0).float().mean().item()
    0.75
    """

    dimensions = (2, 3)


class QuantileBatchNorm2d(QuantileBatchNorm):
    """Batch norm that subtracts the q-quantile instead of the mean, for inputs (N, C, H, W).

    >>> y = QuantileBatchNorm2d(3, q=0.75)(torch.randn(4, 3, 4, 4))
    >>> bool((y < 0).float().mean() > 0.6)
    True
    """

    dimensions = (4,)


class QuantileMeanBatchNorm1d(QuantileBatchNorm1d):
    """Batch norm that subtracts the q-quantile and divides by the usual standard deviation.

    Args:
        num_features: channels C.
        q: share of values below the centre; None is the mean.
        search: which values are ranked together.

    >>> tuple(QuantileMeanBatchNorm1d(3, q=0.75)(torch.randn(64, 3)).shape)
    (64, 3)
    """

    def __init__(
        self, num_features: int, q: float | None = None, search: Search = "channelwise", **options: Any
    ) -> None:
        super().__init__(num_features, q, search, variance="mean", **options)


class QuantileMeanBatchNorm2d(QuantileBatchNorm2d):
    """Batch norm that subtracts the q-quantile and divides by the usual standard deviation.

    Args:
        num_features: channels C.
        q: share of values below the centre; None is the mean.
        search: which values are ranked together.

    >>> tuple(QuantileMeanBatchNorm2d(3, q=0.75)(torch.randn(4, 3, 4, 4)).shape)
    (4, 3, 4, 4)
    """

    def __init__(
        self, num_features: int, q: float | None = None, search: Search = "channelwise", **options: Any
    ) -> None:
        super().__init__(num_features, q, search, variance="mean", **options)
