"""Rows of a run as they were written, or a sentence: every table is read through here and checked as it is read."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from netvitals._help import hint
from netvitals.runs.checksum import Summary, seal, unpack
from netvitals.runs.store import OLD, RunDamaged, connect, layout_of

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

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._run = connection
        self.old = layout_of(connection) == OLD

    def summary(self) -> Summary:
        if self.old:
            return self._old_summary()
        rows = self._run.execute("SELECT crc, record FROM summary").fetchall()
        if len(rows) != 1:
            raise ValueError(f"it has {len(rows)} summaries instead of one")
        return Summary.from_row(*rows[0])

    def meta(self) -> dict[str, Any]:
        if self.old:
            return {key: json.loads(value) for key, value in self._run.execute("SELECT key, value FROM meta")}
        expected, sums, found = self.summary(), 0, {}
        for key, crc, value in self._run.execute("SELECT key, crc, value FROM meta"):
            _same(crc, seal(key, value), f"the metadata {key!r}")
            found[key] = json.loads(value)
            sums ^= crc
        _whole(len(found), expected.metas, sums == expected.meta_sum, "metadata")
        return dict(sorted(found.items()))

    def meta_seals(self) -> dict[str, int]:
        """Key → seal of the metadata, for who goes on writing."""
        return dict(self._run.execute("SELECT key, crc FROM meta"))

    def series(self) -> list[tuple[int, str, str, str]]:
        if self.old:
            return list(self._run.execute("SELECT id, vital, site, metric FROM series ORDER BY id"))
        found = []
        for number, crc, vital, site, metric in self._run.execute(
            "SELECT id, crc, vital, site, metric FROM series ORDER BY id"
        ):
            _same(crc, seal(number, vital, site, metric), f"the name of series {number}")
            found.append((number, vital, site, metric))
        _whole(len(found), self.summary().series, found[-1][0] == len(found) if found else True, "series")
        return found

    def batches(self, after: int = 0) -> Iterator[Batch]:
        """The measurements, batch by batch; those up to number ``after`` are known already."""
        if self.old:
            yield from self._old_batches()
            return
        expected, count, measurements = self.summary(), after, 0
        rows = self._run.execute("SELECT id, crc, segment, data FROM batch WHERE id > ? ORDER BY id", (after,))
        for number, crc, segment, data in rows:
            count += 1
            _same(crc, seal(number, segment, data), f"batch {number} of the measurements")
            _same(number, count, f"the number of batch {count}")
            batch = Batch(segment, *unpack(data))
            measurements += len(batch.steps)
            yield batch
        _whole(count, expected.batches, bool(after) or measurements == expected.measurements, "batches of measurements")

    def batch(self, number: int) -> Batch:
        """One batch by its number."""
        row = self._run.execute("SELECT crc, segment, data FROM batch WHERE id = ?", (number,)).fetchone()
        crc, segment, data = row if row else (None, 0, b"")
        _same(crc, seal(number, segment, data), f"batch {number} of the measurements")
        return Batch(segment, *unpack(data))

    def array_heads(self, after: int = 0) -> list[ArrayHead]:
        """All arrays without their numbers; those up to number ``after`` are known already."""
        if self.old:
            rows = self._run.execute("SELECT rowid, step, series, dtype, shape FROM array ORDER BY rowid")
            return [ArrayHead(number, 0, step, series, dtype, shape) for number, step, series, dtype, shape in rows]
        found = []
        for head, *row in self._run.execute(
            "SELECT head, id, segment, step, series, dtype, shape FROM array WHERE id > ? ORDER BY id", (after,)
        ):
            _same(head, seal(*row), f"the description of array {row[0]}")
            found.append(ArrayHead(*row))
        last = found[-1].id if found else after
        _whole(len(found) + after, self.summary().arrays, last == len(found) + after, "arrays")
        return found

    def array(self, head: ArrayHead) -> np.ndarray:
        crc, data = None, None
        if self.old:
            row = self._run.execute("SELECT data FROM array WHERE rowid = ?", (head.id,)).fetchone()
            data = row[0] if row else None
        else:
            row = self._run.execute("SELECT crc, data FROM array WHERE id = ?", (head.id,)).fetchone()
            crc, data = row if row else (None, None)
            _same(crc, None if data is None else seal(data), f"array {head.id}")
        if not isinstance(data, bytes):
            raise ValueError(f"array {head.id} is missing")
        return np.frombuffer(data, head.dtype).reshape(json.loads(head.shape)).copy()

    def findings(self) -> list[Any]:
        if self.old:
            return [json.loads(record) for (record,) in self._run.execute("SELECT record FROM finding ORDER BY id")]
        expected, sums, found = self.summary(), 0, []
        for number, crc, record in self._run.execute("SELECT id, crc, record FROM finding ORDER BY id"):
            _same(crc, seal(number, record), f"finding {number}")
            found.append(json.loads(record))
            sums ^= crc
        _whole(len(found), expected.findings, sums == expected.findings_sum, "findings")
        return found

    def forecasts(self, after: int = 0) -> list[tuple[int, Any]]:
        """(segment, record) of every forecast, in the order they were made; those up to ``after`` are known already."""
        expected = 0 if self.old else self.summary().forecasts
        if not expected:
            return []
        found = []
        for number, crc, segment, record in self._run.execute(
            "SELECT id, crc, segment, record FROM forecast WHERE id > ? ORDER BY id", (after,)
        ):
            _same(crc, seal(number, segment, record), f"forecast {number}")
            found.append((segment, json.loads(record)))
        _whole(len(found) + after, expected, True, "forecasts")
        return found

    def _old_summary(self) -> Summary:
        last = self._run.execute("SELECT step, rowid FROM reading ORDER BY rowid DESC LIMIT 1").fetchone() or (-1, 0)
        return Summary(last_step=last[0], measurements=last[1], shown=self.meta())

    def _old_batches(self) -> Iterator[Batch]:
        rows = self._run.execute("SELECT step, series, value FROM reading")
        while chunk := rows.fetchmany(CHUNK):
            step, number, value = zip(*chunk)
            yield Batch(  # NULL becomes NaN
                0, np.array(step, np.int64), np.array(number, np.int64), np.array(value, np.float64)
            )


@contextmanager
def opened(file: Path) -> Iterator[Tables]:
    """The tables of ``file`` as they stand in one moment; whatever cannot be read becomes one :class:`RunDamaged`."""
    connection = connect(file)
    try:
        connection.execute("BEGIN")  # one moment, however much is written meanwhile
        yield Tables(connection)
    except RunDamaged:
        raise
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            raise OSError(
                f"{file} is being recovered by another process; try again in a moment {hint('run-locked')}"
            ) from None
        raise damaged(file, error) from None
    except (sqlite3.Error, ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
        raise damaged(file, error) from None
    finally:
        connection.close()


def damaged(file: Path, error: Exception) -> RunDamaged:
    """The sentence for a run that cannot be read as it was written."""
    from netvitals.runs.recovery import survey  # it reads through this file

    return RunDamaged(f"{file} is damaged: {error}. {survey(file)} {hint('run-damaged')}")


def _same(found: Any, expected: Any, what: str) -> None:
    if found != expected or found is None:
        raise ValueError(f"{what} is not what was written")


def _whole(found: int, expected: int, agree: bool, what: str) -> None:
    if found != expected:
        raise ValueError(f"{found} {what} are there, {expected} were written")
    if not agree:
        raise ValueError(f"the {what} are not the ones that were written")
