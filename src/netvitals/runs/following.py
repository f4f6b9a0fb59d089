"""Following a run while it is written: what came since the last look, and nothing twice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from netvitals.capture import ArrayMeasurement
from netvitals.runs.checked import Batch, Tables, opened
from netvitals.runs.checksum import Summary
from netvitals.runs.reader import _begins, _current, _end, _is_current
from netvitals.runs.store import run_file

FORECASTS = 4000  # the latest so many are kept


@dataclass(frozen=True)
class News:
    """What a look at a run brought."""

    summary: Summary
    meta: dict[str, Any]
    series: list[tuple[str, str, str]]  # all (vital, site, metric), by number
    batches: list[Batch] = field(default_factory=list)  # new ones; their series are numbered from 0
    arrays: list[ArrayMeasurement] = field(default_factory=list)  # of each series that has new ones, the latest
    forecasts: list[dict[str, Any]] = field(default_factory=list)  # all that count, at most FORECASTS of the latest
    again: bool = (
        False  # the run was resumed at an earlier step or replaced: these are all measurements, from the first
    )


class Follower:
    """Reads a run bit by bit. A look at a run that has not changed opens no file.

    >>> import tempfile; from netvitals.capture import Measurement; from netvitals.runs import RunWriter
    >>> writer = RunWriter(tempfile.mkdtemp() + "/run")
    >>> writer.write([Measurement(0, "loss", "model", "loss", 2.0)]); _ = writer.flush()
    >>> follower = Follower(writer.path)
    >>> follower.news().batches[0].values.tolist(), follower.news() is None
    ([2.0], True)
    >>> writer.write([Measurement(1, "loss", "model", "loss", 1.0)]); writer.close()
    >>> follower.news().batches[0].values.tolist()
    [1.0]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: Path = run_file(path)
        self._seen: Any = None
        self._commits = -1
        self._batch = self._array = self._read = 0
        self._made: list[tuple[int, dict[str, Any]]] = []  # forecasts with their segment
        self._segments: list[int] = []
        self._series: list[tuple[str, str, str]] = []
        self._steps: list[tuple[int, int, int]] = []  # number of a batch, its first and its last step

    def news(self) -> News | None:
        """What has come since the last call; None if nothing has."""
        state = file_state(self.path)
        if state == self._seen:
            return None
        with opened(self.path) as tables:
            summary = tables.summary()
            if summary.commits == self._commits and not tables.old:
                self._seen = state
                return None
            begins = _begins(tables)
            again = tables.old or begins != self._segments or summary.batches < self._batch
            if again:
                self._batch, self._array, self._series, self._steps = 0, 0, [], []
                self._made, self._read = [], 0
            if summary.series != len(self._series) or tables.old:
                self._series = [(vital, site, metric) for _, vital, site, metric in tables.series()]
            batches, arrays = list(self._new(tables, begins)), list(self._new_arrays(tables, begins))
            self._made = (self._made + tables.forecasts(self._read))[-FORECASTS:]
            self._read = summary.forecasts
            current = [r for segment, r in self._made if (end := _end(segment, begins)) is None or r["made_at"] < end]
            found = News(
                summary=summary,
                meta=tables.meta(),
                series=self._series,
                batches=batches,
                arrays=arrays,
                forecasts=current,
                again=again,
            )
        self._seen, self._commits, self._segments = state, summary.commits, begins
        return found

    def between(self, start: int, stop: int, most: int) -> Batch | None:
        """The measurements of steps ``start`` to ``stop``, out of the batches that hold such; None where these have
        more
        than ``most`` measurements."""
        wanted = [n for n, first, last in self._steps if first <= stop and last >= start]
        parts: list[Batch] = []
        with opened(self.path) as tables:
            if tables.old or not wanted:
                return None
            begins = _begins(tables)
            for number in wanted:
                for batch in _current([tables.batch(number)], begins):
                    here = (batch.steps >= start) & (batch.steps <= stop)
                    parts.append(Batch(batch.segment, batch.steps[here], batch.series[here] - 1, batch.values[here]))
                if sum(len(p.steps) for p in parts) > most:
                    return None
        return Batch(0, *(np.concatenate([p[i] for p in parts]) for i in (1, 2, 3)))

    def _new(self, tables: Tables, begins: list[int]) -> Iterator[Batch]:
        for raw in tables.batches(self._batch):
            self._batch += 1
            for batch in _current([raw], begins):
                if len(batch.steps):
                    self._steps.append((self._batch, int(batch.steps.min()), int(batch.steps.max())))
                    yield Batch(batch.segment, batch.steps, batch.series - 1, batch.values)

    def _new_arrays(self, tables: Tables, begins: list[int]) -> Iterator[ArrayMeasurement]:
        heads = tables.array_heads(0 if tables.old else self._array)
        self._array += len(heads)
        for head in {h.series: h for h in heads if _is_current(h, begins)}.values():
            yield ArrayMeasurement(head.step, *self._series[head.series - 1], tables.array(head))


def file_state(file: Path) -> tuple[Any, ...]:
    """What changes when a run is written to: times and sizes of its file and of its journal."""
    found = []
    for name in (file, file.with_name(file.name + "-wal")):
        try:
            stat = os.stat(name)
            found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
        except OSError:
            found.append((0, 0, 0))
    return tuple(found)
