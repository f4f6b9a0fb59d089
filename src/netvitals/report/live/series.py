"""The numbers behind a page: of measurements in memory, or of a run that may still be written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from netvitals.capture import ArrayMeasurement
from netvitals.findings import Measurements, measurements_by_run
from netvitals.report.live.pyramid import Pyramid, PyramidColumns
from netvitals.runs import Follower, Summary, status_of

Key = tuple[str, str, str]  # vital, site, metric
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
        self.summary = Summary()
        self.meta: dict[str, Any] = {}

    @property
    def path(self) -> Any:
        return self._follower.path

    @property
    def status(self) -> str:
        return status_of(self.summary)

    @property
    def width(self) -> int:
        return self._pyramid.width

    def refresh(self) -> bool:
        """Take in what is new; whether anything was."""
        news = self._follower.news()
        if news is None:
            return False
        if news.again:
            self._pyramid, self._keys, self._arrays = Pyramid(), [], {}
        self.summary, self.meta, self._table = news.summary, news.meta | {"forecasts": news.forecasts}, None
        if len(news.series) != len(self._keys):
            self._keys = list(news.series)
            self._index = {key: i for i, key in enumerate(self._keys)}
        self._arrays.update(((a.vital, a.site, a.metric), a) for a in news.arrays)
        for batch in news.batches:
            self._pyramid.add(batch.steps, batch.series, batch.values)
        return True

    @property
    def table(self) -> Measurements:
        """All series, thinned, with the latest arrays."""
        if self._table is None:
            columns = {key: self._pyramid.latest(i) for i, key in enumerate(self._keys)}
            self._table = measurements_by_run(
                {k: c for k, c in columns.items() if len(c[0])}, self._arrays.values(), self.meta
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
