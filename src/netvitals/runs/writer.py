"""Writing a run while training goes on: a bounded buffer, and one thread that takes it to disk."""

from __future__ import annotations

import atexit
import json
import os
import platform
import sqlite3
import threading
import time
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch

from netvitals._version import __version__
from netvitals.capture import ArrayReading, Reading, StepColumns
from netvitals.capture.result import plain
from netvitals.runs.finding import Finding
from netvitals.runs.store import claim, create

HEARTBEAT_S = 10.0  # an idle writer says this often that it is alive


class RunWriter:
    """Writes one run. No call waits for the disk except :meth:`flush` and :meth:`close`.

    ``write`` puts its lists in a buffer; a background thread commits the buffer every ``flush_every`` seconds. A
    process that is killed loses at most what was not yet committed. When the disk fails, that is said once, the
    writer keeps trying, and training goes on; what no longer fits in the buffer is dropped and counted
    (``meta["dropped"]``).

    Args:
        path: a folder (the file is ``run.sqlite`` in it) or a file ending in ``.sqlite``. A place that already
            holds a run is left alone: see ``existing``.
        meta: what should be known of the run (model, sites, skipped, seeds, configuration); any plain values.
        existing: ``"number"`` writes to ``path-2`` and warns; ``"refuse"`` raises ``FileExistsError``.
        flush_every: seconds between commits.
        capacity: readings held in memory at most.

    >>> import tempfile; folder = tempfile.mkdtemp()
    >>> with RunWriter(folder + "/first", meta={"model": "MLP"}) as writer:
    ...     writer.write([Reading(0, "loss", "", "loss", 2.3)])
    >>> from netvitals.runs import open_run
    >>> open_run(folder + "/first").frame()["value"].to_list()
    [2.3]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        meta: Mapping[str, Any] | None = None,
        *,
        existing: str = "number",
        flush_every: float = 1.0,
        capacity: int = 500_000,
    ) -> None:
        self.path: Path = claim(path, existing=existing)
        self._connection = create(self.path)
        self._series: dict[tuple[str, str, str], int] = {}
        self._layouts: dict[tuple[Any, ...], list[int]] = {}
        self._capacity = capacity
        self._interval = flush_every
        self._wake = threading.Condition()
        self._readings: list[Iterable[Reading] | StepColumns] = []
        self._arrays: list[ArrayReading] = []
        self._notes: dict[str, str] = {}
        self._findings: list[str] = []
        self._replace_findings = False
        self._held = 0  # readings and array elements in the buffer
        self._dropped = 0
        self._asked = self._served = 0  # flushes asked for, flushes done
        self._closing = False
        self._complained = False
        self._writable = True
        self._process = os.getpid()
        self.closed = False
        for key, value in {
            **_versions(),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "status": "running",
            "heartbeat": time.time(),
            **(meta or {}),
        }.items():
            self.note(key, value)
        self._commit()  # an unwritable place is said here, before training begins
        self._thread = threading.Thread(target=self._work, name="netvitals-run-writer", daemon=True)
        self._thread.start()
        atexit.register(self._at_exit)
        if Path(path).expanduser() not in (self.path, self.path.parent):
            warnings.warn(f"{path} already holds a run; this one is written to {self.path}", stacklevel=2)

    def write(self, readings: Iterable[Reading], arrays: Iterable[ArrayReading] = ()) -> None:
        """Hand over the readings of a step; returns at once."""
        readings, arrays = list(readings), [_storable(a) for a in arrays]
        size = len(readings) + sum(a.value.size for a in arrays)
        if self.closed:
            raise ValueError(f"the run at {self.path} is closed; nothing can be written to it any more")
        if os.getpid() != self._process:  # a forked data loader has no writing thread
            return
        with self._wake:
            if self._held + size > self._capacity:
                self._dropped += len(readings) + len(arrays)
                full = self._dropped == len(readings) + len(arrays)
            else:
                self._held += size
                self._readings.append(readings)
                self._arrays.extend(arrays)
                full = False
            if self._held > self._capacity // 4:
                self._wake.notify()
        if full:
            self._complain(f"readings come faster than {self.path} can be written; some are dropped and counted")

    def write_page(self, page: StepColumns) -> None:
        """Hand over the readings of a step in columns, as a watch has them; returns at once."""
        self.write((), page.array_readings())
        with self._wake:
            if self._held + len(page.values) <= self._capacity:
                self._held += len(page.values)
                self._readings.append(page)
                return
            self._dropped += len(page.values)
        self._complain(f"readings come faster than {self.path} can be written; some are dropped and counted")

    def note(self, key: str, value: Any) -> None:
        """Set one entry of the run's metadata (kept as JSON; what JSON cannot hold is kept as its text)."""
        with self._wake:
            self._notes[key] = _json(value)

    def finding(self, *findings: Finding) -> None:
        """Add findings to the run."""
        with self._wake:
            self._findings += [_json(f) for f in findings]

    def replace_findings(self, findings: Iterable[Finding]) -> None:
        """Put these findings in the place of all earlier ones."""
        with self._wake:
            self._replace_findings = True
            self._findings = [_json(f) for f in findings]

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until everything handed over so far is on disk; False if that did not happen in time."""
        if self.closed:
            return True
        with self._wake:
            self._asked += 1
            mine = self._asked
            self._wake.notify_all()
            self._wake.wait_for(lambda: self._served >= mine, timeout)
            return self._served >= mine and self._writable

    def close(self, status: str = "finished") -> None:
        """Write what is left, note how the run ended, and make the file whole (no side files remain)."""
        if self.closed or os.getpid() != self._process:
            return
        self.note("status", status)
        self.note("ended", datetime.now(UTC).isoformat(timespec="seconds"))
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        self._thread.join()
        self.closed = True
        atexit.unregister(self._at_exit)
        if self._held:
            warnings.warn(f"{self._held} readings could not be written to {self.path} and are lost", stacklevel=2)
        try:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._connection.execute("PRAGMA journal_mode=DELETE")
        except sqlite3.Error:
            pass  # a reader holds the file open: the side files stay, nothing is lost
        self._connection.close()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close("finished" if kind is None else f"stopped by {kind.__name__}")

    def _at_exit(self) -> None:
        self.close("never closed")

    def _work(self) -> None:
        alive = time.monotonic()
        while True:
            with self._wake:
                self._wake.wait_for(
                    lambda: self._closing or self._asked > self._served or self._held > self._capacity // 4,
                    self._interval,
                )
                closing, asked = self._closing, self._asked
                idle = not (self._held or self._notes or self._findings)
            if not idle or time.monotonic() - alive > HEARTBEAT_S or closing:
                alive = time.monotonic()
                try:
                    self.note("heartbeat", time.time())
                    self._commit()
                    self._writable = True
                except (sqlite3.Error, OSError) as error:
                    self._writable = False
                    self._complain(
                        f"{self.path} cannot be written ({error}); training goes on, readings are kept in "
                        f"memory while they fit, and writing is tried again"
                    )
                    if not closing:
                        time.sleep(min(self._interval, 0.2))
            with self._wake:
                self._served = asked
                self._wake.notify_all()
            if closing:
                return

    def _commit(self) -> None:
        with self._wake:
            readings, arrays, held = self._readings, self._arrays, self._held
            notes, findings, replace = self._notes, self._findings, self._replace_findings
            self._readings, self._arrays, self._notes, self._findings = [], [], {}, []
            self._replace_findings = False
            if self._dropped:
                notes.setdefault("dropped", json.dumps(self._dropped))
        known = dict(self._series)
        try:
            run = self._connection
            run.execute("BEGIN IMMEDIATE")
            run.executemany(
                "INSERT INTO reading VALUES (?, ?, ?)",
                [
                    (r.step, self._id(r.vital, r.site, r.metric), r.value)
                    for batch in readings
                    if not isinstance(batch, StepColumns)
                    for r in batch
                ],
            )
            for page in readings:
                if isinstance(page, StepColumns):
                    run.executemany(
                        "INSERT INTO reading VALUES (?, ?, ?)",
                        zip(repeat(page.step), self._ids(page), page.values.tolist()),
                    )
            run.executemany(
                "INSERT INTO array VALUES (?, ?, ?, ?, ?)",
                [
                    (
                        a.step,
                        self._id(a.vital, a.site, a.metric),
                        a.value.dtype.str,
                        json.dumps(a.value.shape),
                        np.ascontiguousarray(a.value).tobytes(),
                    )
                    for a in arrays
                ],
            )
            run.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", list(notes.items()))
            if replace:
                run.execute("DELETE FROM finding")
            run.executemany("INSERT INTO finding (record) VALUES (?)", [(f,) for f in findings])
            run.execute("COMMIT")
        except (sqlite3.Error, OSError):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._series = known
            self._layouts.clear()
            with self._wake:  # nothing was written: keep it for the next attempt, in the order it came
                self._readings, self._arrays = readings + self._readings, arrays + self._arrays
                self._notes = {**notes, **self._notes}
                if not self._replace_findings:
                    self._findings, self._replace_findings = findings + self._findings, replace
            raise
        with self._wake:
            self._held -= held

    def _id(self, vital: str, site: str, metric: str) -> int:
        key = (vital, site, metric)
        number = self._series.get(key)
        if number is None:
            number = self._series[key] = len(self._series) + 1
            self._connection.execute("INSERT INTO series VALUES (?, ?, ?, ?)", (number, *key))
        return number

    def _ids(self, page: StepColumns) -> list[int]:
        """The series of a page's columns; pages of one layout come again and again."""
        ids = self._layouts.get(page.layout)
        if ids is None:
            ids = self._layouts[page.layout] = [self._id(*key) for key in page.names()]
        return ids

    def _complain(self, sentence: str) -> None:
        if not self._complained:
            self._complained = True
            warnings.warn(f"netvitals: {sentence}", RuntimeWarning, stacklevel=3)


def _storable(array: ArrayReading) -> ArrayReading:
    value = np.asarray(array.value)
    if value.dtype.kind not in "biufc":
        raise TypeError(f"{array.vital}/{array.metric} at {array.site}: arrays hold numbers, got dtype {value.dtype}")
    return array if value is array.value else replace(array, value=value)


def _versions() -> dict[str, str]:
    return {
        "netvitals": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def _json(value: Any) -> str:
    """JSON as Python reads it back: NaN and infinities stay what they are."""
    return json.dumps(plain(value, odd=float))
