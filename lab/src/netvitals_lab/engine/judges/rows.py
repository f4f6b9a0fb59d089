"""Rows by what they hold: the one filter of all claims, and frames of their columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from netvitals_lab.engine.study import Config, Row

if TYPE_CHECKING:
    import polars as pl


def matches(**where: Any) -> Callable[[Config], bool]:
    """Does a configuration or row hold all of ``where``? A tuple lists the values that will do.

    >>> matches(act=("relu", "gelu"), seed=0)({"act": "gelu", "seed": 0})
    True
    """
    return lambda row: all(row.get(k) in v if isinstance(v, tuple) else row.get(k) == v for k, v in where.items())


def some(rows: Iterable[Row], **where: Any) -> list[Row]:
    """The rows that hold all of ``where``. Asking for what no trial measured is an error, not an empty success."""
    is_one = matches(**where)
    found = [row for row in rows if is_one(row)]
    if not found:
        raise LookupError(f"no row holds {where}; the study measures other things, or its trials failed")
    return found


def one(rows: Iterable[Row], **where: Any) -> Row:
    """The only row that holds all of ``where``."""
    found = some(rows, **where)
    if len(found) > 1:
        raise LookupError(f"{len(found)} rows hold {where} and one was expected; say more of what it holds")
    return found[0]


def column(rows: Iterable[Row], name: str, **where: Any) -> list[Any]:
    """What the rows that hold ``where`` have as ``name``.

    >>> column([{"act": "relu", "loss": 1.0}, {"act": "gelu", "loss": 0.5}], "loss", act="gelu")
    [0.5]
    """
    return [row[name] for row in some(rows, **where)]


def groups(rows: Iterable[Row], *by: str, **where: Any) -> dict[Any, list[Row]]:
    """The rows that hold ``where``, apart by the value of one column or by the values of several.

    >>> list(groups([{"act": "relu", "seed": 0}, {"act": "gelu", "seed": 0}, {"act": "relu", "seed": 1}], "act"))
    ['relu', 'gelu']
    """
    found: dict[Any, list[Row]] = {}
    for row in some(rows, **where):
        found.setdefault(row[by[0]] if len(by) == 1 else tuple(row[name] for name in by), []).append(row)
    return found


def largest_gap(
    rows: Iterable[Row], measured: str = "measured", predicted: str = "predicted", *, relative: bool = False
) -> tuple[float, Row]:
    """max |measured − predicted| over the rows with a prediction, or max |measured/predicted − 1|.

    A prediction without a measurement is an error: what was not measured must not count as agreement.

    >>> largest_gap([{"measured": 2.5, "predicted": 2.0}, {"measured": 4.0}])[0]
    0.5
    """
    found = [row for row in rows if row.get(predicted) is not None]
    missing = [row for row in found if row.get(measured) is None]
    if missing or not found:
        raise LookupError(
            f"{len(missing)} of {len(found)} rows with {predicted} lack {measured}; all must have both, and there must "
            f"be one{f'; the first is {missing[0]}' if missing else ''}"
        )
    gaps = [abs(r[measured] / r[predicted] - 1) if relative else abs(r[measured] - r[predicted]) for r in found]
    worst = max(range(len(gaps)), key=gaps.__getitem__)
    return gaps[worst], found[worst]


def frame(rows: Sequence[Row], *columns: str, **where: Any) -> pl.DataFrame:
    """Columns of the rows that hold ``where``, as a polars frame; what a row lacks is null.

    >>> frame([{"a": 1, "b": "x"}, {"a": 2}], "a", "b").rows()
    [(1, 'x'), (2, None)]
    """
    import polars as pl

    found = some(rows, **where)
    return pl.DataFrame({name: [row.get(name) for row in found] for name in columns}, strict=False)


def means(rows: Sequence[Row], value: str, by: str, **where: Any) -> dict[Any, float]:
    """Mean of a column for each value of another one, in the order in which the values come.

    >>> means([{"act": "relu", "loss": 1.0}, {"act": "relu", "loss": 2.0}, {"act": "gelu", "loss": 0.5}], "loss", "act")
    {'relu': 1.5, 'gelu': 0.5}
    """
    import polars as pl

    grouped = frame(rows, by, value, **where).group_by(by, maintain_order=True).agg(pl.col(value).mean())
    return dict(grouped.iter_rows())
