"""What every result can do: be read on one screen, be shown in a notebook, become plain data or a frame."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import torch

if TYPE_CHECKING:
    import polars as pl


class Result:
    """Base class of all results: frozen dataclasses with ``to_dict()`` and, for tables, ``to_frame()``.

    ``skipped`` maps each place that could not be measured to the reason. A subclass that is a table implements
    ``rows()``.

    >>> @dataclass(frozen=True)
    ... class Count(Result):
    ...     units: int
    ...     share: float
    >>> Count(units=3, share=math.nan).to_dict()
    {'units': 3, 'share': None, 'skipped': {}}
    """

    skipped: Mapping[str, str] = {}

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain numbers, strings, lists and dicts for JSON; NaN and infinity become None."""
        assert is_dataclass(self)
        found = {f.name: plain(getattr(self, f.name)) for f in fields(self) if not f.name.startswith("_")}
        return {**found, "skipped": dict(self.skipped)}

    def rows(self) -> list[dict[str, Any]]:
        """Return the table as a list of dicts, one per row."""
        raise TypeError(f"{type(self).__name__} is not a table, so it has no rows: use to_dict() instead")

    def to_frame(self) -> pl.DataFrame:
        """Return the table as a polars data frame, one row per place."""
        import polars as pl

        return pl.DataFrame(self.rows(), infer_schema_length=None)

    def _repr_html_(self) -> str:
        from html import escape

        return f'<pre style="line-height:1.3">{escape(str(self))}</pre>'


Part = TypeVar("Part", bound=Result)


@dataclass(frozen=True)
class Several(Result, Generic[Part]):
    """Results of several places, in order: iterate, index, or read them as a table; ``skipped`` has the others."""

    parts: tuple[Part, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Part]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, index: int) -> Part:
        return self.parts[index]

    def rows(self) -> list[dict[str, Any]]:
        """One row a place, of the numbers and words that it has."""
        found = [part.to_dict() for part in self.parts]
        return [{k: v for k, v in row.items() if v is None or isinstance(v, bool | int | float | str)} for row in found]

    def __str__(self) -> str:
        return one_screen([*map(str, self.parts), *(f"skipped: {n}: {why}" for n, why in self.skipped.items())])


def one_screen(lines: Iterable[str], most: int = 40) -> str:
    """Lines as text, cut to what fits on a screen.

    >>> print(one_screen(["a", "b", "c"], most=2))
    a
    … and 2 more
    """
    found = [line for block in lines for line in block.split("\n")]
    kept = found if len(found) <= most else [*found[: most - 1], f"… and {len(found) - most + 1} more"]
    return "\n".join(kept)


def plain(value: Any, *, odd: Callable[[float], Any] | None = None, other: Callable[[Any], Any] = str) -> Any:
    """Tensors, arrays, enums, dataclasses and nested results as what JSON has.

    >>> plain({"a": torch.tensor([1.0, float("nan")]), "b": (1, np.float64(2))})
    {'a': [1.0, None], 'b': [1, 2.0]}
    >>> plain([float("inf"), 1.5], odd=str)
    ['inf', 1.5]
    """
    again = partial(plain, odd=odd, other=other)
    if isinstance(value, Result):
        return value.to_dict()
    if isinstance(value, torch.Tensor):
        return again(
            value.detach().cpu().double().tolist() if value.is_floating_point() else value.detach().cpu().tolist()
        )
    if isinstance(value, np.ndarray | np.generic):
        return again(value.tolist())
    if isinstance(value, Enum):
        return again(value.value)
    if isinstance(value, Mapping):
        return {str(k): again(v) for k, v in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [again(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if odd is None else odd(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: again(getattr(value, f.name)) for f in fields(value) if not f.name.startswith("_")}
    return other(value)


def skipped_lines(skipped: Mapping[str, str], most: int = 6) -> list[str]:
    """What could not be measured, for the end of a text: one line a place, cut where there are many.

    Args:
        skipped: the reason by place.
        most: at most this many places are named, the rest are counted.

    Returns:
        Lines of text; none where nothing was skipped.

    >>> skipped_lines({"head": "no gradient reached it", "lstm": "it is fused"}, most=1)
    ['skipped head: no gradient reached it', '… and 1 more skipped']
    """
    lines = [f"skipped {place}: {reason}" for place, reason in list(skipped.items())[:most]]
    return lines + [f"… and {len(skipped) - most} more skipped"] * (len(skipped) > most)
