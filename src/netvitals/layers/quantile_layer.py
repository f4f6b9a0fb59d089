"""Layer norms about a quantile of the features, and norms whose statistics stop."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from netvitals.activations import kth
from netvitals.layers.quantile_batch import check

Shape = int | tuple[int, ...] | list[int]


class _Tracking(nn.LayerNorm):
    """A layer norm with running averages whose shape is learned from the first batch."""

    batches: Tensor

    def __init__(
        self,
        normalized_shape: Shape,
        *,
        eps: float,
        affine: bool,
        bias: bool,
        momentum: float,
        max_tracked: int | None,
        device: Any,
        dtype: Any,
    ) -> None:
        shape = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
        super().__init__(shape, eps, affine, bias, device=device, dtype=dtype)
        self.momentum = momentum
        self.max_tracked = max_tracked
        self.register_buffer("batches", torch.zeros((), dtype=torch.long, device=device))

    @property
    def frozen(self) -> bool:
        """Whether the running statistics have stopped."""
        return self.max_tracked is not None and int(self.batches) >= self.max_tracked

    def _features(self) -> tuple[int, ...]:
        return tuple(range(-len(self.normalized_shape), 0))

    def _scaled(self, y: Tensor, like: Tensor) -> Tensor:
        if self.weight is not None:
            y = y * self.weight
        return (y if self.bias is None else y + self.bias).to(like.dtype)

    def _average(self, name: str, new: Tensor) -> None:
        old = getattr(self, name)
        if not int(self.batches):
            setattr(self, name, new.clone())
        elif old.shape == new.shape:
            setattr(self, name, torch.lerp(old, new.to(old.dtype), self.momentum))
        else:
            self._refuse(new.shape[0])

    def _refuse(self, length: int) -> None:
        held = getattr(self, "running_mean", torch.zeros(0)).shape[0]
        raise ValueError(
            f"this norm stores one centre (mean) per position and was made for {held} positions, but the input has "
            f"{length}: use search='token', which works for any length"
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        for name in ("running_mean", "running_var"):
            stored, own = state_dict.get(prefix + name), getattr(self, name, None)
            if stored is not None and own is not None and stored.shape != own.shape:
                setattr(self, name, torch.zeros_like(stored, device=own.device))
        super()._load_from_state_dict(state_dict, prefix, *rest)


class QuantileLayerNorm(_Tracking):
    r"""Layer norm that subtracts the q-quantile m of the features: $y = \gamma(x-m)/\sqrt{v+\varepsilon}+\beta$.

    With ``search="token"``, every token has its own quantile. A quantile per token works for any length, is causal, and
    is the same in training and evaluation. With ``"position"``, as in the paper's code, token quantiles are averaged
    over the batch into one running centre per position. Inputs must then always have the same length. With
    ``"global"``, token quantiles are averaged over batch and positions into one running centre. The ``variance`` is
    always computed per token, about the quantile or about the ``"mean"``.

    Args:
        normalized_shape: shape of the last dimensions, as in ``nn.LayerNorm``.
        q: share of features below the centre; None is the mean.
        search: which features are ranked together.
        variance: ``quantile`` or ``mean``, the centre of the second moment.
        eps: small number added to the variance.
        momentum: momentum of the running centre.
        max_tracked: batches after which it is frozen; None never.
        elementwise_affine: learn a gain.
        bias: learn a shift.
        device: device of the parameters.
        dtype: dtype of the parameters.

    >>> y = QuantileLayerNorm(64, q=0.75)(torch.randn(2, 5, 64))
    >>> (y < 0).float().mean().item()
    0.75
    """

    running_mean: Tensor

    def __init__(
        self,
        normalized_shape: Shape,
        q: float | None = None,
        search: Literal["token", "position", "global"] = "token",
        *,
        variance: Literal["quantile", "mean"] = "quantile",
        eps: float = 1e-5,
        momentum: float = 0.1,
        max_tracked: int | None = None,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            normalized_shape,
            eps=eps,
            affine=elementwise_affine,
            bias=bias,
            momentum=momentum,
            max_tracked=max_tracked,
            device=device,
            dtype=dtype,
        )
        check(q, search, ("token", "position", "global"), variance, max_tracked)
        self.q = q
        self.search = search
        self.variance = variance
        if search != "token" and q is not None:
            self.register_buffer("running_mean", torch.zeros((), device=device))

    def forward(self, input: Tensor) -> Tensor:
        """Normalise ``input`` about its quantile."""
        if self.q is None:
            return super().forward(input)
        x = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        features = self._features()
        centre = self._centre(x, features)
        about = x.mean(dim=features, keepdim=True) if self.variance == "mean" else centre
        spread = ((x - about) ** 2).mean(dim=features, keepdim=True)
        return self._scaled((x - centre) * torch.rsqrt(spread + self.eps), input)

    def _centre(self, x: Tensor, features: tuple[int, ...]) -> Tensor:
        assert self.q is not None
        first = features[0]
        if self.search != "token" and (not self.training or self.frozen) and int(self.batches):
            if self.search == "position" and self.running_mean.shape[0] != x.shape[1]:
                self._refuse(x.shape[1])
            return self.running_mean.to(x.dtype)
        tokens = kth(x.flatten(first), self.q, dim=-1).reshape(*x.shape[:first], *[1] * len(features))
        if self.search == "token":
            return tokens
        centre = tokens.mean(dim=0) if self.search == "position" else tokens.mean()
        if self.training:
            self._average("running_mean", centre.detach())
            self.batches += 1
        return centre

    def extra_repr(self) -> str:
        """Return the settings, for printing the module."""
        text = f"{tuple(self.normalized_shape)}, q={self.q}, search={self.search}, variance={self.variance}"
        return f"{text}, eps={self.eps:g}" + (f", max_tracked={self.max_tracked}" if self.max_tracked else "")


class LayerNormPreStop(_Tracking):
    """Layer norm with one mean and variance, averaged over tokens and frozen after ``max_tracked`` batches.

    Args:
        normalized_shape: shape of the last dimensions, as in ``nn.LayerNorm``.
        max_tracked: batches after which the statistics are frozen.
        eps: small number added to the variance.
        momentum: momentum of the running statistics.
        elementwise_affine: learn a gain.
        bias: learn a shift.
        device: device of the parameters.
        dtype: dtype of the parameters.

    >>> norm = LayerNormPreStop(4, max_tracked=1)
    >>> tuple(norm(torch.randn(2, 5, 4)).shape), norm.frozen
    ((2, 5, 4), True)
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self,
        normalized_shape: Shape,
        max_tracked: int,
        *,
        eps: float = 1e-5,
        momentum: float = 0.1,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            normalized_shape,
            eps=eps,
            affine=elementwise_affine,
            bias=bias,
            momentum=momentum,
            max_tracked=max_tracked,
            device=device,
            dtype=dtype,
        )
        check(None, "token", ("token",), "mean", max_tracked)
        self.register_buffer("running_mean", torch.zeros((), device=device))
        self.register_buffer("running_var", torch.ones((), device=device))

    def forward(self, input: Tensor) -> Tensor:
        """Normalise ``input`` with token statistics, or with frozen ones after ``max_tracked`` batches."""
        if self.frozen:
            return self._scaled((input - self.running_mean) * torch.rsqrt(self.running_var + self.eps), input)
        if self.training:
            with torch.no_grad():
                variance, mean = torch.var_mean(input.float(), dim=self._features(), unbiased=False)
                self._average("running_mean", mean.mean())
                self._average("running_var", variance.mean())
                self.batches += 1
        return super().forward(input)

    def extra_repr(self) -> str:
        """Return the settings, for printing the module."""
        return f"{super().extra_repr()}, max_tracked={self.max_tracked}"


class _Stopping(_BatchNorm):
    """Use batch statistics until ``max_tracked`` batches have been seen, then the frozen running ones."""

    def __init__(self, num_features: int, max_tracked: int, **options: Any) -> None:
        super().__init__(num_features, **options)
        check(None, "token", ("token",), "mean", max_tracked)
        if self.num_batches_tracked is None:
            raise ValueError("PreStop norms need running statistics: keep track_running_stats=True")
        self.max_tracked = max_tracked

    @property
    def frozen(self) -> bool:
        """Whether the running statistics have stopped."""
        return int(self.num_batches_tracked or 0) >= self.max_tracked

    def forward(self, input: Tensor) -> Tensor:
        if not (self.training and self.frozen):
            return super().forward(input)
        self._check_input_dim(input)
        return F.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, max_tracked={self.max_tracked}"


class BatchNorm1dPreStop(_Stopping, nn.BatchNorm1d):
    """Batch norm whose statistics are frozen after ``max_tracked`` batches and then used in training too.

    >>> norm = BatchNorm1dPreStop(3, max_tracked=1)
    >>> _ = norm(torch.randn(8, 3)); before = norm.running_mean.clone()
    >>> _ = norm(torch.randn(8, 3)); torch.equal(before, norm.running_mean)
    True
    """


class BatchNorm2dPreStop(_Stopping, nn.BatchNorm2d):
    """Batch norm whose statistics are frozen after ``max_tracked`` batches and then used in training too.

    >>> norm = BatchNorm2dPreStop(3, max_tracked=1)
    >>> _ = norm(torch.randn(2, 3, 4, 4)); before = norm.running_mean.clone()
    >>> _ = norm(torch.randn(2, 3, 4, 4)); torch.equal(before, norm.running_mean)
    True
    """
