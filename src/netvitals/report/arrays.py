"""Arrays as the page draws them, thinned to a size that a browser takes gladly."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from netvitals.capture import ArrayMeasurement

CURVE = 256  # points of a per-channel curve
GRID = 64  # rows and columns of a drawn matrix


def drawn(array: ArrayMeasurement) -> dict[str, Any]:
    """An array as the page draws it: a vector sorted into a curve, a matrix averaged into at most 64 × 64 cells."""
    value = np.abs(array.value) if np.iscomplexobj(array.value) else np.asarray(array.value, dtype=np.float64)
    note = f"{value.size} values, sorted" if value.ndim < 2 else "×".join(map(str, value.shape))
    if value.ndim < 2:
        value = np.sort(value.reshape(1, -1), axis=1)
        if value.shape[1] > CURVE:
            value = value[:, np.linspace(0, value.shape[1] - 1, CURVE).astype(int)]
    else:
        value = value.reshape(value.shape[0], -1)
        for axis in (0, 1):
            if value.shape[axis] > GRID:
                edges = np.linspace(0, value.shape[axis], GRID + 1).astype(int)
                value = np.add.reduceat(value, edges[:-1], axis=axis) / np.expand_dims(np.diff(edges), 1 - axis)
    return {
        "site": array.site,
        "metric": array.metric,
        "step": array.step,
        "shape": list(value.shape),
        "note": note,
        "data": packed(value),
    }


def packed(values: np.ndarray) -> str:
    """Little-endian float32 in base64, row after row."""
    with np.errstate(over="ignore"):
        return base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode("ascii")
