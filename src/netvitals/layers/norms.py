"""Norms by name: ``norm("batch", 64, 4)``, ``norm("quantile:0.75", 128, 3)``."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable

from torch import Tensor, nn

from netvitals.layers.quantile_batch import (
    QuantileBatchNorm1d,
    QuantileBatchNorm2d,
    QuantileMeanBatchNorm1d,
    QuantileMeanBatchNorm2d,
)
from netvitals.layers.quantile_layer import BatchNorm1dPreStop, BatchNorm2dPreStop, LayerNormPreStop, QuantileLayerNorm

RMS_EPS = 1e-6


class PerToken(nn.Module):
    """A norm for (N, C), applied to every token of (N, T, C).

    Args:
        inner: the norm.

    >>> import torch
    >>> tuple(PerToken(nn.BatchNorm1d(3))(torch.randn(2, 5, 3)).shape)
    (2, 5, 3)
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.reshape(-1, x.shape[-1])).reshape(x.shape)


class PerPosition(nn.Module):
    """A norm over the last dimension, applied to the channels of every position of (N, C, H, W).

    Args:
        inner: the norm.

    >>> import torch
    >>> tuple(PerPosition(nn.LayerNorm(3))(torch.randn(2, 3, 4, 4)).shape)
    (2, 3, 4, 4)
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.movedim(1, -1)).movedim(-1, 1)


def groups(channels: int, ndim: int) -> int:
    """32 groups, fewer for narrow layers: at least two channels in each, eight where there are no positions.

    >>> groups(64, 4), groups(16, 4), groups(64, 2), groups(7, 4)
    (32, 8, 8, 1)
    """
    least = 2 if ndim == 4 else 8
    return math.gcd(32, channels // least) if channels % least == 0 and channels >= least else 1


def _batch(c: int, ndim: int) -> nn.Module:
    return nn.BatchNorm2d(c) if ndim == 4 else nn.BatchNorm1d(c) if ndim == 2 else PerToken(nn.BatchNorm1d(c))


def _group(c: int, ndim: int, count: str | None = None) -> nn.Module:
    inner = nn.GroupNorm(int(count) if count else groups(c, ndim), c)
    return inner if ndim != 3 else PerToken(inner)  # over (N, C, T) it would mix tokens


def _layer(c: int, ndim: int) -> nn.Module:
    return nn.GroupNorm(1, c) if ndim == 4 else nn.LayerNorm(c)


def _rms(c: int, ndim: int) -> nn.Module:
    inner = nn.RMSNorm(c, eps=RMS_EPS)
    return PerPosition(inner) if ndim == 4 else inner


def _quantile(c: int, ndim: int, q: str = "none", search: str | None = None, variance: str = "quantile") -> nn.Module:
    share = None if q == "none" else float(q)
    options = {} if search is None else {"search": search}
    if ndim == 3:
        return QuantileLayerNorm(c, share, variance=variance, **options)  # type: ignore[arg-type]
    kinds: dict[tuple[str, int], type[nn.Module]] = {
        ("quantile", 2): QuantileBatchNorm1d,
        ("quantile", 4): QuantileBatchNorm2d,
        ("mean", 2): QuantileMeanBatchNorm1d,
        ("mean", 4): QuantileMeanBatchNorm2d,
    }
    return kinds[variance, ndim](c, share, **options)


def _quantile_mean(c: int, ndim: int, q: str = "none", search: str | None = None) -> nn.Module:
    return _quantile(c, ndim, q, search, "mean")


def _prestop(c: int, ndim: int, batches: str) -> nn.Module:
    kinds: dict[int, type[nn.Module]] = {2: BatchNorm1dPreStop, 3: LayerNormPreStop, 4: BatchNorm2dPreStop}
    return kinds[ndim](c, max_tracked=int(batches))


NORMS: dict[str, tuple[Callable[..., nn.Module], str]] = {
    "batch": (_batch, "batch"),
    "group": (_group, "group[:GROUPS]"),
    "layer": (_layer, "layer"),
    "rms": (_rms, "rms"),
    "none": (lambda c, ndim: nn.Identity(), "none"),
    "quantile": (_quantile, "quantile:Q[:SEARCH]"),
    "quantile_mean": (_quantile_mean, "quantile_mean:Q[:SEARCH]"),
    "prestop": (_prestop, "prestop:BATCHES"),
}
_ALIASES = {
    "batchnorm": "batch",
    "groupnorm": "group",
    "layernorm": "layer",
    "rmsnorm": "rms",
    "identity": "none",
    "batchnorm1d": "batch",
    "batchnorm2d": "batch",
    "bn": "batch",
    "ln": "layer",
    "gn": "group",
}
_PRESET = re.compile(r"^quantile(?P<mean>mean)?(?:batchnorm[12]d|layernorm|norm)?-(?P<share>\d{1,2})$")


def norm(spec: str, channels: int, ndim: int) -> nn.Module:
    """Make a new normalisation layer from its name, for example ``"group:8"``.

    The names are ``batch``, ``group[:GROUPS]``, ``layer``, ``rms``, ``none``, ``quantile:Q[:SEARCH]``,
    ``quantile_mean:Q[:SEARCH]`` and ``prestop:BATCHES``. Names such as ``QuantileBatchNorm2d-75`` are accepted too.

    Args:
        spec: the name with its parameters; an unknown one is a ``ValueError`` with the nearest.
        channels: how many features C are normed.
        ndim: dimensions of the tensors it will meet: 2 (N, C), 3 (N, T, C) or 4 (N, C, H, W).

    Returns:
        A new module with its initial parameters.

    >>> norm("quantile:0.75", 8, 4)
    QuantileBatchNorm2d(8, q=0.75, search=channelwise, variance=quantile, eps=1e-05)
    """
    if ndim not in (2, 3, 4):
        raise ValueError(f"ndim= must be 2 (N, C), 3 (N, T, C) or 4 (N, C, H, W), got {ndim}")
    preset = _PRESET.match(spec.lower())
    if preset:
        spec = f"quantile{'_mean' if preset['mean'] else ''}:{int(preset['share']) / 100:g}"
    name, *rest = spec.split(":")
    key = name.lower().strip()
    key = _ALIASES.get(key.replace("_", ""), key)
    if key not in NORMS:
        near = difflib.get_close_matches(key, [*NORMS, *_ALIASES], 4, 0.5) or list(NORMS)
        raise ValueError(f"there is no norm {name!r}; the nearest names are {', '.join(near)}")
    make, usage = NORMS[key]
    if not usage.count(":") - usage.count("[:") <= len(rest) <= usage.count(":"):
        raise ValueError(f"the norm {spec!r} is not written correctly; expected {usage}")
    try:
        return make(channels, ndim, *rest)
    except ValueError as error:
        raise ValueError(f"the norm {spec!r} cannot be made for {channels} channels: {error}") from None
