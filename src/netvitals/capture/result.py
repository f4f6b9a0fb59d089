"""What every result can do: be read on one screen, be shown in a notebook, become plain data or a frame."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    import polars as pl


class Result:
    """Base of results, frozen dataclasses all: ``to_dict()``, ``to_frame()`` where it is a table, ``_repr_html_``.

    ``skipped`` (place → reason) says what could not be measured. A subclass that is a table implements ``rows()``.
    """

    skipped: Mapping[str, str] = {}

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings, lists and dicts, ready for JSON; not-a-number and infinity become None."""
        assert is_dataclass(self)
        found = {f.name: plain(getattr(self, f.name)) for f in fields(self) if not f.name.startswith("_")}
        return {**found, "skipped": dict(self.skipped)}

    def rows(self) -> list[dict[str, Any]]:
        """One dict a row, for results that are tables."""
        raise TypeError(f"{type(self).__name__} is not a table; to_dict() has all of it")

    def to_frame(self) -> pl.DataFrame:
        """The table as a polars frame, one row a place."""
        import polars as pl

        return pl.DataFrame(self.rows(), infer_schema_length=None)

    def _repr_html_(self) -> str:
        from html import escape  # only a notebook asks

        return f'<pre style="line-height:1.3">{escape(str(self))}</pre>'


def plain(value: Any) -> Any:
    """Tensors, arrays, enums and nested results as what JSON has.

    >>> plain({"a": torch.tensor([1.0, float("nan")]), "b": (1, np.float64(2))})
    {'a': [1.0, None], 'b': [1, 2.0]}
    """
    if isinstance(value, Result):
        return value.to_dict()
    if isinstance(value, torch.Tensor):
        return plain(
            value.detach().cpu().double().tolist() if value.is_floating_point() else value.detach().cpu().tolist()
        )
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [plain(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value) if not f.name.startswith("_")}
    return str(value)


def skipped_lines(skipped: Mapping[str, str], most: int = 6) -> list[str]:
    """What could not be measured, for the end of a text: one line a place, cut where there are many.

    >>> skipped_lines({"head": "no gradient reached it", "lstm": "it is fused"}, most=1)
    ['skipped head: no gradient reached it', '… and 1 more skipped']
    """
    lines = [f"skipped {place}: {reason}" for place, reason in list(skipped.items())[:most]]
    return lines + [f"… and {len(skipped) - most} more skipped"] * (len(skipped) > most)
