"""Turn what a caller passes into float64 arrays, and refuse what a statistic cannot use."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def sample(values: Any, what: str, least: int = 1) -> Array:
    """``values`` as a flat float64 array of at least ``least`` finite numbers."""
    array = numbers(values).reshape(-1)
    if array.size < least:
        raise ValueError(f"{what}: needs at least {least} value{'s' * (least != 1)}, got {array.size}")
    finite(array, what)
    return array


def pair(x: Any, y: Any, what: str, least: int) -> tuple[Array, Array]:
    """Two samples of one length."""
    a, b = sample(x, f"{what}, x"), sample(y, f"{what}, y")
    if a.size != b.size:
        raise ValueError(f"{what}: x has {a.size} values and y has {b.size}; both must have the same number")
    if a.size < least:
        raise ValueError(f"{what}: needs at least {least} pairs, got {a.size}")
    return a, b


def numbers(values: Any) -> Array:
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.asarray(values, dtype=np.float64)


def finite(array: Array, what: str) -> None:
    bad = int(array.size - np.isfinite(array).sum())
    if bad:
        raise ValueError(
            f"{what}: {bad} of {array.size} values are NaN or infinite; leave them out, and report how many"
        )


def varying(array: Array, what: str) -> None:
    if np.ptp(array) == 0:
        raise ValueError(f"{what}: all {array.size} values are {array.flat[0]:g}, so the statistic is undefined")
