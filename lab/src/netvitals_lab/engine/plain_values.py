"""Values that JSON keeps: numbers, texts, lists and dicts, from whatever a trial returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from netvitals.capture import result


def plain(value: Any) -> Any:
    """``value`` with numpy and torch numbers and arrays turned into Python ones; NaN and infinities stay.

    >>> import numpy as np
    >>> plain({"loss": np.float32(0.5), "curve": np.arange(3)})
    {'loss': 0.5, 'curve': [0, 1, 2]}
    """
    return result.plain(value, odd=float, other=_refused)


def _refused(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} is not a number, text, list or dict")


def plain_rows(rows: Any) -> list[dict[str, Any]]:
    """What a trial returned, checked: a sequence of dicts."""
    if not isinstance(rows, Sequence) or isinstance(rows, str) or not all(isinstance(r, Mapping) for r in rows):
        raise TypeError(f"a trial must return a list of dicts, got {type(rows).__name__}")
    return [plain(row) for row in rows]
