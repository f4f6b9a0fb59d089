"""Measurements of any number of steps in a bounded number of columns: what a picture of the whole run needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

COLUMNS = 512  # of a pyramid at most; an even number
CELLS = 4_000_000  # columns times series, about


class PyramidColumns(NamedTuple):
    """Some series in columns of steps: NaN where nothing was read, infinite where nothing finite was."""

    steps: np.ndarray  # (columns,) the last step behind each column
    mean: np.ndarray  # (series, columns)
    low: np.ndarray
    high: np.ndarray


class Pyramid:
    """Mean, smallest, largest and latest measurement of every series in columns of ``width`` steps.

    When the steps no longer fit, two columns become one. To add a measurement costs the same however long the run is,
    and a spike never disappears: it stays the largest of its column.

    >>> pyramid = Pyramid(columns=4)
    >>> pyramid.add(np.arange(8), np.zeros(8, int), np.array([1.0, 1, 1, 9, 1, 1, 1, 1]))
    >>> read = pyramid.read([0])
    >>> pyramid.width, read.steps.tolist(), read.high.tolist()
    (2, [1, 3, 5, 7], [[1.0, 9.0, 1.0, 1.0]])
    """

    def __init__(self, columns: int | None = None) -> None:
        self.width = 1
        self.first = 0
        self._columns = columns
        self._rows = 0
        self._started = False

    def add(self, steps: np.ndarray, series: np.ndarray, values: np.ndarray) -> None:
        """Take measurements in; ``series`` numbers them from 0."""
        if not len(steps):
            return
        self._make_room(int(series.max()) + 1, int(steps.min()))
        while (int(steps.max()) - self.first) // self.width >= self.columns:
            self._fold()
        columns = np.clip((steps - self.first) // self.width, 0, self.columns - 1)
        size = _page(series)
        if size < len(series):  # pages of one layout: a table that is reduced along its rows
            pages = columns[::size]
            starts = np.flatnonzero(np.r_[True, pages[1:] != pages[:-1]])
            if (columns.reshape(-1, size) == pages[:, None]).all() and (np.diff(pages) >= 0).all():
                at = series[None, :size], pages[starts][:, None]
                self._merge(at, starts, steps.reshape(-1, size), values.reshape(-1, size))
                return
        cell = series * self.columns + columns
        order = np.argsort(cell, kind="stable")
        cell = cell[order]
        starts = np.flatnonzero(np.r_[True, cell[1:] != cell[:-1]])
        at = np.divmod(cell[starts], self.columns)
        self._merge(at, starts, steps[order], values[order])

    @property
    def columns(self) -> int:
        return self._columns or COLUMNS

    def read(
        self, series: Sequence[int] | np.ndarray, start: int | None = None, stop: int | None = None
    ) -> PyramidColumns:
        """The chosen series, from the column of step ``start`` to that of step ``stop``."""
        rows = np.asarray(series, int)
        if not self._started or not len(rows):
            return PyramidColumns(np.empty(0, int), *(np.empty((len(rows), 0)) for _ in range(3)))
        known = rows < self._rows
        safe = np.where(known, rows, 0)
        place = lambda step: int(np.clip((step - self.first) // self.width, 0, self.columns - 1))
        here = slice(0 if start is None else place(start), self.columns if stop is None else place(stop) + 1)
        pick = lambda table, blank: np.where(known[:, None], table[safe, here], blank)
        count, bad = pick(self._count, 0), pick(self._bad, 0)
        used = (count + bad).any(0)
        count, bad = count[:, used], bad[:, used]
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = pick(self._total, 0.0)[:, used] / count
        mean[(count == 0) & (bad > 0)] = np.inf
        low, high = (pick(t, np.nan)[:, used].astype(float) for t in (self._low, self._high))
        return PyramidColumns(pick(self._when, -1)[:, used].max(0), mean, low, high)

    def forget(self) -> None:
        """Drop every measurement and keep the size."""
        self._count[:], self._bad[:], self._total[:], self._when[:] = 0, 0, 0.0, -1

    def latest(self, series: int) -> tuple[np.ndarray, np.ndarray]:
        """Steps and values of one series, thinned: the last measurement of each column."""
        if series >= self._rows:
            return np.empty(0, int), np.empty(0)
        used = self._when[series] >= 0
        return self._when[series, used], self._last[series, used].astype(float)

    # ---------------------------------------------------------------- inside

    def _make_room(self, rows: int, first: int) -> None:
        if not self._started:
            self._started, self.first = True, first
            if self._columns is None:
                self._columns = int(np.clip(CELLS // max(1, rows), 128, COLUMNS)) // 2 * 2
            self._rows = 0
            shape = (0, self.columns)
            self._count, self._bad = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
            self._total, self._when = np.zeros(shape), np.full(shape, -1, np.int64)
            self._low, self._high, self._last = (np.full(shape, np.nan, np.float32) for _ in range(3))
        if rows > self._rows:
            more = max(rows, self._rows * 3 // 2) - self._rows
            grow = lambda t, blank: np.concatenate([t, np.full((more, self.columns), blank, t.dtype)])
            self._count, self._bad = grow(self._count, 0), grow(self._bad, 0)
            self._total, self._when = grow(self._total, 0), grow(self._when, -1)
            self._low, self._high, self._last = (grow(t, np.nan) for t in (self._low, self._high, self._last))
            self._rows += more

    def _merge(self, at: Any, starts: np.ndarray, steps: np.ndarray, values: np.ndarray) -> None:
        """Runs of measurements that begin at ``starts`` along the first axis, each into its cell."""
        finite = np.isfinite(values)
        count = np.add.reduceat(finite, starts, axis=0, dtype=np.int32)
        ends = np.r_[starts[1:], len(values)] - 1
        total = np.diff(np.r_[starts, len(values)]).astype(np.int32)
        self._count[at] += count
        self._bad[at] += (total if values.ndim == 1 else total[:, None]) - count
        self._total[at] += np.add.reduceat(np.where(finite, values, 0.0), starts, axis=0)
        with np.errstate(over="ignore"):
            known = np.where(finite, values, np.nan).astype(np.float32)
            self._low[at] = np.fmin(self._low[at], np.fmin.reduceat(known, starts, axis=0))
            self._high[at] = np.fmax(self._high[at], np.fmax.reduceat(known, starts, axis=0))
            newer = steps[ends] >= self._when[at]
            self._last[at] = np.where(newer, values[ends], self._last[at])
        self._when[at] = np.maximum(self._when[at], np.maximum.reduceat(steps, starts, axis=0))

    def _fold(self) -> None:
        half = self.columns // 2
        pairs = lambda t: t.reshape(len(t), half, 2)
        pad = lambda t, blank: np.concatenate([t, np.full((len(t), half), blank, t.dtype)], axis=1)
        when = pairs(self._when)
        last = np.where(when[:, :, 1] >= 0, pairs(self._last)[:, :, 1], pairs(self._last)[:, :, 0])
        self._count, self._bad = (pad(pairs(t).sum(2, dtype=np.int32), 0) for t in (self._count, self._bad))
        self._total = pad(pairs(self._total).sum(2), 0)
        low, high = pairs(self._low), pairs(self._high)
        self._low = pad(np.fmin(low[:, :, 0], low[:, :, 1]), np.nan)
        self._high = pad(np.fmax(high[:, :, 0], high[:, :, 1]), np.nan)
        self._last, self._when = pad(last, np.nan), pad(when.max(2), -1)
        self.width *= 2


def _page(series: np.ndarray) -> int:
    """After how many measurements the series repeat themselves; their number where they do not.

    >>> _page(np.array([4, 7, 4, 7])), _page(np.array([1, 2, 3]))
    (2, 3)
    """
    again = np.flatnonzero(series[1:] == series[0])
    size = int(again[0]) + 1 if len(again) else len(series)
    if len(series) % size or (series.reshape(-1, size) != series[:size]).any():
        return len(series)
    return size
