"""Rows of a run as they were written, or a sentence: every table is read through here and checked as it is read."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from netvitals._help import hint
from netvitals.runs import wal
from netvitals.runs.checksum import Summary, parsed, seal, unpack
from netvitals.runs.lock import FileLock
from netvitals.runs.store import OLD, NoRun, RunDamaged, connect, layout_of
from netvitals.runs.untrusted import Budget, check_side_files

LONGEST_PATH = 480  # bytes of a path that SQLite opens, with room for the names of side files
CHUNK = 1000  # rows of the old layout taken at a time


class Batch(NamedTuple):
    """Measurements of one batch, in columns."""

    segment: int
    steps: np.ndarray
    series: np.ndarray
    values: np.ndarray


class ArrayHead(NamedTuple):
    """An array without its numbers."""

    id: int
    segment: int
    step: int
    series: int
    dtype: str
    shape: str


class Tables:
    """The tables of one run in one moment. Every method checks what it reads; :func:`opened` words what fails."""

    def __init__(self, connection: sqlite3.Connection, budget: Budget) -> None:
        self._run = budget
        self.old = layout_of(connection) == OLD

    def summary(self) -> Summary:
        if self.old:
            return self._old_summary()
        rows = list(islice(self._run.rows("SELECT crc, record FROM summary"), 2))
        if len(rows) != 1:
            raise ValueError(
                f"the run file has {'several summaries' if rows else 'no summary'}, but must have exactly one"
            )
        return Summary.from_row(*rows[0])

    def meta(self) -> dict[str, Any]:
        if self.old:
            return {key: parsed(value) for key, value in self._run.rows("SELECT key, value FROM meta")}
        expected, sums, found = self.summary(), 0, {}
        for key, crc, value in self._run.rows("SELECT key, crc, value FROM meta"):
            _same(crc, seal(key, value), f"the metadata {key!r}")
            found[key] = parsed(value)
            sums ^= crc
        _whole(len(found), expected.metas, sums == expected.meta_sum, "metadata")
        return dict(sorted(found.items()))

    def meta_seals(self) -> dict[str, int]:
        """Key → seal of the metadata, for who goes on writing."""
        return {str(key): int(crc) for key, crc in self._run.rows("SELECT key, crc FROM meta")}

    def series(self) -> list[tuple[int, str, str, str]]:
        if self.old:
            return [
                (int(n), *names)
                for n, *names in self._run.rows("SELECT id, vital, site, metric FROM series ORDER BY id")
            ]
        found: list[tuple[int, str, str, str]] = []
        rows = self._run.rows("SELECT id, crc, vital, site, metric FROM series ORDER BY id")
        for number, crc, vital, site, metric in rows:
            _same(crc, seal(number, vital, site, metric), f"the name of series {number}")
            _same(number, len(found) + 1, f"the number of series {number}")
            found.append((number, vital, site, metric))
        _whole(len(found), self.summary().series, True, "series")
        return found

    def batches(self, after: int = 0) -> Iterator[Batch]:
        """The measurements, batch by batch; those up to number ``after`` are known already."""
        if self.old:
            yield from self._old_batches()
            return
        expected, count, measurements = self.summary(), after, 0
        rows = self._run.rows("SELECT id, crc, segment, data FROM batch WHERE id > ? ORDER BY id", (after,))
        for number, crc, segment, data in rows:
            count += 1
            _same(crc, seal(number, segment, data), f"batch {number} of the measurements")
            _same(number, count, f"the number of batch {count}")
            batch = _named(Batch(segment, *unpack(data)), expected.series, number)
            measurements += len(batch.steps)
            yield batch
        _whole(count, expected.batches, bool(after) or measurements == expected.measurements, "batches of measurements")

    def batch(self, number: int) -> Batch:
        """One batch by its number."""
        row = self._run.row("SELECT crc, segment, data FROM batch WHERE id = ?", (number,))
        crc, segment, data = row if row else (None, 0, b"")
        _same(crc, seal(number, segment, data), f"batch {number} of the measurements")
        return _named(Batch(segment, *unpack(data)), self.summary().series, number)

    def array_heads(self, after: int = 0) -> list[ArrayHead]:
        """All arrays without their numbers; those up to number ``after`` are known already."""
        if self.old:
            rows = self._run.rows("SELECT rowid, step, series, dtype, shape FROM array ORDER BY rowid")
            return [ArrayHead(number, 0, step, series, dtype, shape) for number, step, series, dtype, shape in rows]
        expected = self.summary()
        found: list[ArrayHead] = []
        for head, *row in self._run.rows(
            "SELECT head, id, segment, step, series, dtype, shape FROM array WHERE id > ? ORDER BY id", (after,)
        ):
            _same(head, seal(*row), f"the description of array {row[0]}")
            _same(row[0], after + len(found) + 1, f"the number of array {row[0]}")
            found.append(ArrayHead(*row))
            _same(0 < found[-1].series <= expected.series, True, f"the series of array {row[0]}")
        _whole(len(found) + after, expected.arrays, True, "arrays")
        return found

    def array(self, head: ArrayHead) -> np.ndarray:
        crc, data = None, None
        if self.old:
            row = self._run.row("SELECT data FROM array WHERE rowid = ?", (head.id,))
            data = row[0] if row else None
        else:
            row = self._run.row("SELECT crc, data FROM array WHERE id = ?", (head.id,))
            crc, data = row if row else (None, None)
            _same(crc, None if data is None else seal(data), f"array {head.id}")
        if not isinstance(data, bytes):
            raise ValueError(f"array {head.id} is missing from the run file")
        dtype, shape = np.dtype(head.dtype), parsed(head.shape)
        if (
            dtype.kind not in "biufc"
            or not isinstance(shape, list)
            or not all(type(n) is int and n >= 0 for n in shape)
        ):
            raise ValueError(f"array {head.id} has the invalid dtype {head.dtype[:20]!r} or shape {head.shape[:20]}")
        return np.frombuffer(data, dtype).reshape(shape).copy()

    def findings(self) -> list[Any]:
        if self.old:
            return [parsed(record) for (record,) in self._run.rows("SELECT record FROM finding ORDER BY id")]
        expected, sums = self.summary(), 0
        found: list[Any] = []
        for number, crc, record in self._run.rows("SELECT id, crc, record FROM finding ORDER BY id"):
            _same(crc, seal(number, record), f"finding {number}")
            _same(number, len(found) + 1, f"the number of finding {number}")
            found.append(parsed(record))
            sums ^= crc
        _whole(len(found), expected.findings, sums == expected.findings_sum, "findings")
        return found

    def forecasts(self, after: int = 0) -> list[tuple[int, Any]]:
        """(segment, record) of every forecast, in the order they were made; those up to ``after`` are known already."""
        expected = 0 if self.old else self.summary().forecasts
        if not expected:
            return []
        found: list[tuple[int, Any]] = []
        for number, crc, segment, record in self._run.rows(
            "SELECT id, crc, segment, record FROM forecast WHERE id > ? ORDER BY id", (after,)
        ):
            _same(crc, seal(number, segment, record), f"forecast {number}")
            _same(number, after + len(found) + 1, f"the number of forecast {number}")
            found.append((segment, parsed(record)))
        _whole(len(found) + after, expected, True, "forecasts")
        return found

    def _old_summary(self) -> Summary:
        last = self._run.row("SELECT step, rowid FROM reading ORDER BY rowid DESC LIMIT 1") or (-1, 0)
        return Summary(last_step=last[0], measurements=last[1], shown=self.meta())

    def _old_batches(self) -> Iterator[Batch]:
        rows = self._run.rows("SELECT step, series, value FROM reading")
        while chunk := list(islice(rows, CHUNK)):
            step, number, value = zip(*chunk)
            yield Batch(  # NULL becomes NaN
                0, np.array(step, np.int64), np.array(number, np.int64), np.array(value, np.float64)
            )


@contextmanager
def opened(file: Path, *, mine: bool = False) -> Iterator[Tables]:
    """The tables of ``file`` as they stand in one moment; whatever cannot be read becomes one :class:`RunDamaged`.

    ``mine`` says that the caller holds the lock of the file, and that nobody else writes it.
    """
    connection: sqlite3.Connection | None = None
    try:
        check_side_files(file)
        if mine or FileLock.holder(file) is None:
            wal.check(file)
        connection, budget = connect(file)
        connection.execute("BEGIN")  # one moment, however much is written meanwhile
        yield Tables(connection, budget)
    except (RunDamaged, NoRun):
        raise
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            raise OSError(
                f"{file} is being recovered by another process; try again in a moment {hint('run-locked')}"
            ) from None
        if "unable to open" in str(error) and (long := len(os.fsencode(file.absolute()))) > LONGEST_PATH:
            raise OSError(
                f"the path of {file.name} has {long:,} bytes, which is too long for SQLite: move the run to a shorter "
                f"path (it is at {file}) {hint('no-run')}"
            ) from None
        raise damaged(file, error) from None
    except (sqlite3.Error, ValueError, TypeError, KeyError, OverflowError, MemoryError, RecursionError) as error:
        raise damaged(file, error) from None
    finally:
        if connection is not None:
            connection.close()


def damaged(file: Path, error: Exception) -> ValueError:
    """The sentence for a run that cannot be read as it was written."""
    from netvitals.runs.recovery import survey  # it reads through this file

    intact = survey(file)
    if intact is None:
        return RunDamaged(f"{file} is not a netvitals run, or nothing of it is intact: {error} {hint('run-damaged')}")
    why = "" if str(error) in intact else f": {error}"
    return RunDamaged(f"{file} is damaged{why}. {intact} {hint('run-damaged')}")


def _named(batch: Batch, series: int, number: int) -> Batch:
    """The batch, if all of its numbers belong to a series that has a name."""
    if len(batch.series) and not 0 < batch.series.min() <= batch.series.max() <= series:
        raise ValueError(f"batch {number} of the measurements belongs to a series without a name")
    return batch


def _same(found: Any, expected: Any, what: str) -> None:
    if found != expected or found is None:
        raise ValueError(f"{what} does not match its checksum")


def _whole(found: int, expected: int, agree: bool, what: str) -> None:
    if found != expected:
        raise ValueError(f"the run file has {found} {what}, but {expected} were written")
    if not agree:
        raise ValueError(f"the checksum over all {what} does not match")
