"""The numbers behind a page: of measurements in memory, or of a run that may still be written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from netvitals.capture import ArrayMeasurement
from netvitals.findings import Measurements, Totals, measurements_by_run
from netvitals.report.live.pyramid import Pyramid, PyramidColumns
from netvitals.runs import Follower, Summary, status_of

Key = tuple[str, str, str]  # vital, site, metric
PAGE = 1 << 16  # steps
ZOOMED = 3_000_000  # measurements that one zoomed picture may read


class Numbers:
    """Series of a table, ready to be drawn at any width.

    >>> from netvitals.findings import table; from netvitals.capture import Measurement
    >>> numbers = Numbers(table([Measurement(i, "v", "a", "m", float(i)) for i in range(3)]))
    >>> numbers.read([("v", "a", "m")]).mean.tolist()
    [[0.0, 1.0, 2.0]]
    """

    def __init__(self, measurements: Measurements, columns: int | None = None) -> None:
        self.table = measurements
        self._pyramid = Pyramid(columns)
        self._index = {key: i for i, key in enumerate(measurements.series)}
        curves = list(measurements.series.values())
        if curves:
            first = min(int(c.steps[0]) for c in curves if len(c.steps))
            self._pyramid.add(np.array([first]), np.array([len(curves) - 1]), np.array([np.nan]))  # the size at once
            self._pyramid.forget()
        for i, curve in enumerate(curves):
            self._pyramid.add(curve.steps, np.full(len(curve.steps), i), curve.values)

    @property
    def width(self) -> int:
        """Steps behind a column of the whole picture."""
        return self._pyramid.width

    def read(self, keys: Sequence[Key], start: int | None = None, stop: int | None = None) -> PyramidColumns:
        """Some series in columns, over all steps or those from ``start`` to ``stop``."""
        return self._pyramid.read([self._index[k] for k in keys], start, stop)


class _Counter:
    """Totals of measurements as they come, in a byte for each step."""

    def __init__(self) -> None:
        self._measured: dict[int, np.ndarray] = {}  # by page of steps, whether each was measured
        self._broken, self._first, self._lowest = 0, (np.inf, np.nan), np.nan

    def add(self, steps: np.ndarray, series: np.ndarray, values: np.ndarray, keys: Sequence[Key]) -> None:
        """Count measurements; ``keys`` names their series."""
        if not len(steps):
            return
        of_loss = np.array([key[0] == "loss" for key in keys])
        measured = steps[~of_loss[series]]
        for page in np.unique(measured // PAGE):
            here = self._measured.setdefault(int(page), np.zeros(PAGE, bool))
            here[measured[measured // PAGE == page] % PAGE] = True
        named = [i for i, key in enumerate(keys) if key[0] == "loss"]
        chosen = next((i for i in named if keys[i][2] == "loss"), named[0] if named else -1)
        at = series == chosen
        if not at.any():
            return
        when, losses = steps[at], values[at]
        finite = np.isfinite(losses)
        self._broken += int((~finite).sum())
        self._lowest = np.fmin(self._lowest, np.fmin.reduce(losses[finite], initial=np.nan))
        begin = int(when.argmin())
        self._first = min(self._first, (float(when[begin]), float(losses[begin])))

    def read(self) -> Totals:
        """What was counted so far."""
        measured = sum(int(page.sum()) for page in self._measured.values())
        return Totals(measured, self._broken, self._first[1], float(self._lowest))


class RunNumbers:
    """The numbers of a run on disk, taken in as they are written.

    A look costs what has come since the last one. ``table`` is thinned: of each series the last measurement of each
    column, whole as long as the run has fewer measured steps than columns.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._follower = Follower(path)
        self._pyramid = Pyramid()
        self._keys: list[Key] = []
        self._index: dict[Key, int] = {}
        self._table: Measurements | None = None
        self._arrays: dict[Key, ArrayMeasurement] = {}  # the latest of each series
        self._totals = _Counter()
        self.summary = Summary()
        self.meta: dict[str, Any] = {}

    @property
    def path(self) -> Any:
        return self._follower.path

    @property
    def status(self) -> str:
        return status_of(self.summary, self.path)

    @property
    def width(self) -> int:
        return self._pyramid.width

    def refresh(self) -> bool:
        """Take in what is new; whether anything was."""
        news = self._follower.news()
        if news is None:
            return False
        if news.again:
            self._pyramid, self._keys, self._arrays, self._totals = Pyramid(), [], {}, _Counter()
        self.summary, self.meta, self._table = news.summary, news.meta | {"forecasts": news.forecasts}, None
        if len(news.series) != len(self._keys):
            self._keys = list(news.series)
            self._index = {key: i for i, key in enumerate(self._keys)}
        self._arrays.update(((a.vital, a.site, a.metric), a) for a in news.arrays)
        for batch in news.batches:
            self._pyramid.add(batch.steps, batch.series, batch.values)
            self._totals.add(batch.steps, batch.series, batch.values, self._keys)
        return True

    @property
    def table(self) -> Measurements:
        """All series, thinned, with the latest arrays."""
        if self._table is None:
            columns = {key: self._pyramid.latest(i) for i, key in enumerate(self._keys)}
            self._table = measurements_by_run(
                {k: c for k, c in columns.items() if len(c[0])}, self._arrays.values(), self.meta, self._totals.read()
            )
        return self._table

    def read(self, keys: Sequence[Key], start: int | None = None, stop: int | None = None) -> PyramidColumns:
        """Some series in columns; a part of the steps is read anew from the run where that shows more."""
        rows = [self._index[k] for k in keys]
        if start is None or stop is None or self._pyramid.width == 1:
            return self._pyramid.read(rows, start, stop)
        raw = self._follower.between(start, stop, ZOOMED)
        if raw is None:
            return self._pyramid.read(rows, start, stop)
        closer = Pyramid(512)
        here = np.isin(raw.series, rows)
        place = np.zeros(max(rows) + 1, int)
        place[rows] = np.arange(len(rows))
        closer.add(raw.steps[here], place[raw.series[here]], raw.values[here])
        return closer.read(range(len(rows)))
