"""Recover: everything in a damaged run that is still what was written, as a new run."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from netvitals._help import hint
from netvitals.capture import ArrayMeasurement
from netvitals.runs import wal
from netvitals.runs.checked import Batch
from netvitals.runs.checksum import Summary, seal, unpack
from netvitals.runs.database import RunDatabase
from netvitals.runs.lock import FileLock
from netvitals.runs.store import OLD, SCHEMA, lay_out, layout_of, run_file
from netvitals.runs.untrusted import Budget, beside, check_side_files, check_tables
from netvitals.runs.write_queue import Columns, Key, Pending, as_json

PAGE = 4096  # bytes, SQLite's default
NEAR = 100_000  # rows looked for one by one where a table cannot be walked
MOST_LENGTHENED = 100  # times as long as it is, a file that was cut is taken to have been
SURVEYED = 256 << 20  # bytes of a file that is looked through only to word an error

COLUMNS = {
    "meta": ("key", "crc", "value"),
    "series": ("id", "crc", "vital", "site", "metric"),
    "batch": ("id", "crc", "segment", "data"),
    "array": ("id", "head", "crc", "segment", "step", "series", "dtype", "shape", "data"),
    "finding": ("id", "crc", "record"),
    "forecast": ("id", "crc", "segment", "record"),
    "summary": ("id", "crc", "record"),
}


class NoChecksums(ValueError):
    """A run of the old layout."""


@dataclass
class Recovered:
    """What of a run is intact, and how much was written of what is not.

    Returned by :func:`recover`.

    Attributes:
        summary: what the run's summary row says there was; None where that row is damaged.
        meta: intact metadata, as JSON by key.
        series: (vital, site, metric) by number.
        batches: measurements whose seal holds.
        arrays: (segment, step, series, value) of intact arrays.
        findings: intact findings, as JSON.
        forecasts: (segment, JSON) of intact forecasts.
        path: the new run, where one was written.
        cut: what is missing at the end of a killed run whose side file is damaged; empty where nothing is.
    """

    summary: Summary | None = None
    meta: dict[str, str] = field(default_factory=dict)
    series: dict[int, Key] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    arrays: list[tuple[int, int, int, np.ndarray]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    forecasts: list[tuple[int, str]] = field(default_factory=list)
    path: Path | None = None
    cut: str = ""

    @property
    def measurements(self) -> int:
        return sum(len(batch.steps) for batch in self.batches)

    def __str__(self) -> str:
        known = None if self.cut else self.summary  # the summary that was meant is not there
        last = max((int(b.steps.max()) for b in self.batches if len(b.steps)), default=None)
        parts = [
            (self.measurements, "measurements", known and known.measurements),
            (len(self.arrays), "arrays", known and known.arrays),
            (len(self.meta), "notes", known and known.metas),
        ]
        words = ", ".join(f"{n} of {of} {what}" if of is not None else f"{n} {what}" for n, what, of in parts)
        end = "" if last is None else f", up to step {last}"
        return f"Intact: {words}{end}" + (f" ({self.cut})" if self.cut else "")


def survey(file: Path) -> str | None:
    """One sentence about what of a damaged run can be rescued, and how; None where nothing can."""
    try:
        if file.stat().st_size > SURVEYED:
            return f"netvitals recover {file} writes what is intact to a new run."
        found = _find(file)
    except (OSError, sqlite3.Error, ValueError, TypeError, KeyError, OverflowError, MemoryError, RecursionError):
        return None
    return f"{found}; netvitals recover {file} writes that to a new run."


def recover(path: str | os.PathLike[str], out: str | os.PathLike[str] | None = None) -> Recovered:
    """Copy all intact measurements of a damaged run to a new run; the damaged file is not changed.

    Args:
        path: the run, its folder or file.
        out: path of the new run; by default beside the old one, with ``-recovered`` in its name. An existing path is
            refused.

    Returns:
        A summary of what was recovered, with the ``path`` of the new run. Its metadata entry ``recovered`` says what
        was lost.

    >>> import tempfile
    >>> from netvitals.capture import Measurement
    >>> from netvitals.runs import RunWriter, open_run
    >>> folder = tempfile.mkdtemp()
    >>> with RunWriter(folder + "/first") as writer:
    ...     writer.write([Measurement(0, "loss", "", "loss", 2.5)])
    >>> found = recover(folder + "/first", folder + "/rescued")
    >>> found.measurements, open_run(found.path).steps
    (1, [0])
    """
    file = run_file(path)
    if not file.is_file():
        raise FileNotFoundError(
            f"there is no file {file}; give the folder or file of a run to recover {hint('no-run')}"
        )
    found = _find(file)
    ledger = RunDatabase(out if out is not None else _beside(file), "refuse")
    try:
        for batch in found.batches:
            ledger.summary.segment = batch.segment
            keys = [found.series.get(n, ("lost", f"series {n}", "name")) for n in batch.series.tolist()]
            ledger.commit(Pending(columns=[Columns(batch.steps, keys, batch.values)]))
        for segment, step, number, value in found.arrays:
            ledger.summary.segment = segment
            key = found.series.get(number, ("lost", f"series {number}", "name"))
            ledger.commit(Pending(arrays=[ArrayMeasurement(step, *key, value)]))
        for segment, record in found.forecasts:
            ledger.summary.segment = segment
            ledger.commit(Pending(forecasts=[record]))
        notes = {"status": as_json("unknown"), **found.meta, "recovered": as_json(str(found))}
        ledger.commit(Pending(notes=notes, findings=found.findings))
    finally:
        ledger.close()
    found.path = ledger.path
    return found


def _beside(file: Path) -> Path:
    folder = file.parent if file.name == "run.sqlite" else file
    return folder.with_name(f"{folder.stem}-recovered{folder.suffix}")


def _find(file: Path) -> Recovered:
    with tempfile.TemporaryDirectory(prefix="netvitals-") as folder:  # SQLite may write to what it recovers
        copy = Path(folder) / "run.sqlite"
        check_side_files(file)
        shutil.copyfile(file, copy)
        log = beside(file, "-wal")
        if log.is_file():
            shutil.copyfile(log, beside(copy, "-wal"))
        _lengthen(copy)
        found = _read(copy)
        if not found.measurements and not found.meta:  # the first page has the names of all tables
            _graft(copy, Path(folder) / "blank.sqlite")
            found = _read(copy)
    try:
        if FileLock.holder(file) is None:
            wal.check(file)
    except ValueError as error:
        found.cut = str(error)
    if not (found.measurements or found.meta or found.arrays):
        raise ValueError("the file contains no intact row of a netvitals run")
    return found


def _lengthen(copy: Path) -> None:
    """Give a file that was cut the length that its header states: SQLite refuses it otherwise, whatever is missing."""
    size = copy.stat().st_size
    with open(copy, "rb") as source:
        head = source.read(32)
    stated = PAGE * int.from_bytes(head[28:32], "big")
    if size < stated <= MOST_LENGTHENED * size:
        os.truncate(copy, stated)  # holes


def _graft(copy: Path, blank: Path) -> None:
    """Give the file the first page of an empty run: tables begin on the same pages in all of them."""
    with contextlib.closing(sqlite3.connect(blank, isolation_level=None)) as connection:
        lay_out(connection)
    page = bytearray(blank.read_bytes()[:PAGE])
    page[28:32] = (copy.stat().st_size // PAGE).to_bytes(4, "big")  # pages in the file
    with open(copy, "r+b") as target:
        target.write(page)
    with contextlib.suppress(FileNotFoundError):
        copy.with_name("run.sqlite-wal").unlink()


def _read(copy: Path) -> Recovered:
    found = Recovered()
    with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        try:
            run = Budget(connection, copy)
            if layout_of(connection) == OLD:
                raise NoChecksums("it has the old layout without checksums, so nothing tells what is intact")
            check_tables(run, SCHEMA)
        except NoChecksums:
            raise
        except (sqlite3.Error, ValueError):
            return found
        for _, crc, record in _rows(run, "summary"):
            with contextlib.suppress(ValueError, TypeError):
                found.summary = Summary.from_row(crc, record)
        for key, crc, value in _rows(run, "meta"):
            if _intact(crc, key, value):
                found.meta[key] = value
        for number, crc, *names in _rows(run, "series"):
            if _intact(crc, number, *names):
                found.series[number] = (names[0], names[1], names[2])
        for number, crc, segment, data in _rows(run, "batch"):
            if _intact(crc, number, segment, data):
                found.batches.append(Batch(segment, *unpack(data)))
        for number, head, crc, segment, step, series, dtype, shape, data in _rows(run, "array"):
            if _intact(head, number, segment, step, series, dtype, shape) and _intact(crc, data):
                value = np.frombuffer(data, dtype).reshape(json.loads(shape)).copy()
                found.arrays.append((segment, step, series, value))
        for number, crc, record in _rows(run, "finding"):
            if _intact(crc, number, record):
                found.findings.append(record)
        if found.summary is None or found.summary.forecasts:
            for number, crc, segment, record in _rows(run, "forecast"):
                if _intact(crc, number, segment, record):
                    found.forecasts.append((segment, record))
    return found


def _intact(crc: Any, *fields: Any) -> bool:
    return isinstance(crc, int) and crc == seal(*fields)


def _rows(run: Budget, table: str) -> Iterator[tuple[Any, ...]]:
    """Rows from the front as far as it goes, then from the back, then one by one in between."""
    columns = COLUMNS[table]
    select = f"SELECT {', '.join(columns)} FROM {table}"
    seen: set[Any] = set()
    broken = False
    for order in ("ASC", "DESC"):
        try:
            for row in run.rows(f"{select} ORDER BY {columns[0]} {order}"):
                if row[0] in seen:
                    break
                seen.add(row[0])
                yield row
            else:
                if not broken:
                    return
        except (sqlite3.Error, ValueError):
            broken = True
    if columns[0] != "id":
        return
    numbers = sorted(n for n in seen if isinstance(n, int))
    gaps = zip([0, *numbers], [*numbers, (numbers[-1] if numbers else 0) + 1000])
    wanted = (number for first, last in gaps for number in range(first + 1, last))
    for number in islice(wanted, NEAR):
        try:
            found = run.row(f"{select} WHERE id = ?", (number,))
        except (sqlite3.Error, ValueError):
            continue
        if found is not None and found[0] not in seen:
            yield found
