"""Writing a run while training goes on: a bounded buffer, and one thread that takes it to disk."""

from __future__ import annotations

import atexit
import os
import platform
import sqlite3
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch

from netvitals._help import hint
from netvitals._version import __version__
from netvitals.capture import ArrayMeasurement, Measurement, StepColumns
from netvitals.runs.database import FileGone, RunDatabase
from netvitals.runs.finding import Finding
from netvitals.runs.store import make_folder, run_file
from netvitals.runs.write_queue import REMARKS_KEPT, Columns, Pending, as_json, storable, storable_array, text

HEARTBEAT_S = 10.0  # an idle writer says this often that it is alive
# of close(): a signal may have come while the training thread had the lock that the other one needs
PATIENCE_S = 20.0


class RunWriter:
    """Writes the measurements of one run to disk, in a background thread.

    Only :meth:`flush` and :meth:`close` wait for the disk. The background thread commits the buffer every
    ``flush_every`` seconds, so a killed process loses at most that many seconds. If the disk is full or the file is
    gone, a warning is given at once, writing is retried, and training continues. Measurements that no longer fit in the
    buffer are dropped and counted in ``meta["dropped"]``. A value that cannot be stored is replaced, and
    ``meta["replaced"]`` lists it.

    Args:
        path: a folder (the file is ``run.sqlite`` in it) or a file ending in ``.sqlite``. A place that already
            holds a run is left alone: see ``existing``. One that another process writes now is refused.
        meta: what should be known of the run (model, sites, skipped, seeds, configuration); any plain values.
        existing: ``"number"`` writes to ``path-2`` and warns; ``"refuse"`` raises ``FileExistsError``; ``"resume"``
            continues the run that is there; ``"overwrite"`` removes it.
        at: the step to continue at; measurements from there on that are in the file already are marked as abandoned.
        None continues after the last one.
        flush_every: seconds between commits.
        capacity: measurements held in memory at most.
        at_exit: close the run when the program ends; False where somebody else does.

    >>> import tempfile; folder = tempfile.mkdtemp()
    >>> with RunWriter(folder + "/first", meta={"model": "MLP"}) as writer:
    ...     writer.write([Measurement(0, "loss", "", "loss", 2.3)])
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
        at: int | None = None,
        flush_every: float = 0.5,
        capacity: int = 500_000,
        at_exit: bool = True,
    ) -> None:
        self._ledger = RunDatabase(path, existing)
        self.path: Path = self._ledger.path
        self.source: Callable[[], None] | None = None  # asked before each commit for what it still holds
        self.next_step = 0  # where a resumed run goes on
        self._capacity = capacity
        self._interval = flush_every
        self._wake = threading.Condition()
        self._pending = Pending()
        self._dropped = 0
        self._remarks: list[str] = []
        self._asked = self._served = 0  # flushes asked for, flushes done
        self._closing = self._complained = False
        self._writable = True
        self._process = os.getpid()
        self.closed = False
        now = datetime.now(UTC).isoformat(timespec="seconds")
        notes = {**_versions(), "started": now, "status": "running", **(meta or {})}
        try:
            if self._ledger.resumed:
                notes = {k: v for k, v in notes.items() if k != "started" and (v or k not in self._ledger.meta)}
                notes.update(self._continued(at, now, notes))
            for key, value in notes.items():
                self.note(key, value)
            self._commit()  # an unwritable place is said here, before training begins
        except BaseException:
            self._ledger.close()
            raise
        self._thread = threading.Thread(target=self._work, name="netvitals-run-writer", daemon=True)
        self._thread.start()
        if at_exit:
            atexit.register(self._at_exit)
        if run_file(path) != self.path:
            warnings.warn(
                f"{path} already contains a run; this run is written to {self.path} {hint('run-exists')}", stacklevel=2
            )

    @property
    def resumed(self) -> bool:
        """Whether this continues a run that was there."""
        return self._ledger.resumed

    def _continued(self, at: int | None, now: str, notes: Mapping[str, Any]) -> dict[str, Any]:
        """A new segment: measurements of earlier ones at its first step and after it belong to an abandoned branch."""
        summary, meta = self._ledger.summary, self._ledger.meta
        for key in ("model", "parameters"):
            if key in notes and key in meta and notes[key] != meta[key]:
                raise ValueError(
                    f"the run at {self.path} has {key} {meta[key]}, but now {key} is {notes[key]}: resume it with the "
                    f"same model, or choose another path {hint('run-of-another')}"
                )
        end = max(summary.last_step + 1, int(summary.shown.get("steps", 0)))
        self.next_step = end if at is None else at
        summary.segment += 1
        summary.last_step = min(summary.last_step, self.next_step - 1)
        return {
            "verdict": None,  # of the segment before
            "segments": [*meta.get("segments", [0]), self.next_step],
            "resumed": [
                *meta.get("resumed", []),
                {"at": now, "step": self.next_step, "abandoned_to": end},
            ],
        }

    def write(self, measurements: Iterable[Measurement], arrays: Iterable[ArrayMeasurement] = ()) -> None:
        """Add the ``measurements`` and ``arrays`` of a step to the write queue; returns at once."""
        self._check_open()
        columns, remarks = storable(measurements)
        stored: list[ArrayMeasurement] = []
        for array in arrays:
            one, more = storable_array(array)
            stored.append(one)
            remarks += more
        self._take([columns] if len(columns) else [], stored, remarks)

    def write_page(self, page: StepColumns) -> None:
        """Add a ``page`` (the measurements of a step as columns) to the write queue; returns at once."""
        self._check_open()
        arrays = [storable_array(a)[0] for a in page.array_measurements()]
        self._take([Columns.of_page(page)] if len(page.values) else [], arrays, [])

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(
                f"the run at {self.path} is closed, so nothing can be written to it any more {hint('closed')}"
            )

    def _take(self, columns: list[Columns], arrays: list[ArrayMeasurement], remarks: list[str]) -> None:
        if os.getpid() != self._process:  # a forked data loader has no writing thread
            return
        size = sum(map(len, columns)) + sum(a.value.size for a in arrays)
        full = False
        with self._wake:
            if remarks:
                self._remarks += remarks[: max(0, REMARKS_KEPT - len(self._remarks))]
                self._pending.notes["replaced"] = as_json(self._remarks)
            if self._pending.held + size > self._capacity:
                full = True
                self._dropped += sum(map(len, columns)) + len(arrays)
            else:
                self._pending.held += size
                self._pending.columns += columns
                self._pending.arrays += arrays
            if self._pending.held > self._capacity // 4:
                self._wake.notify()
        if full:
            self._complain(
                f"measurements come faster than {self.path} can be written; some are dropped and counted",
                "lost-measurements",
            )

    def note(self, key: str, value: Any) -> None:
        """Set the metadata entry ``key`` to ``value``, stored as JSON or, if this is not possible, as text."""
        with self._wake:
            self._pending.notes[text(key)] = as_json(value)

    def finding(self, *findings: Finding) -> None:
        """Add one or several findings to the run."""
        with self._wake:
            self._pending.findings += [as_json(f) for f in findings]

    def forecast(self, *records: Mapping[str, Any]) -> None:
        """Add forecasts to the run, as dicts of plain values with the step ``made_at``."""
        with self._wake:
            self._pending.forecasts += [as_json(record) for record in records]

    def replace_findings(self, findings: Iterable[Finding]) -> None:
        """Replace all earlier findings of the run by ``findings``."""
        with self._wake:
            self._pending.replace_findings = True
            self._pending.findings = [as_json(f) for f in findings]

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until everything in the write queue is on disk, at most ``timeout`` seconds. Returns False if the queue
        is not on disk by then, or if measurements were dropped.
        """
        if not self.closed:
            with self._wake:
                self._asked += 1
                mine = self._asked
                self._wake.notify_all()
                self._wake.wait_for(lambda: self._served >= mine or not self._thread.is_alive(), timeout)
                if self._served < mine:
                    return False
        return self._writable and not self._dropped and not self._pending.held

    def close(self, status: str = "finished") -> None:
        """Write everything that is left, store the ``status`` of the run, and merge the side files into the run
        file.
        """
        if self.closed or os.getpid() != self._process:
            return
        self.note("status", status)
        self.note("ended", datetime.now(UTC).isoformat(timespec="seconds"))
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        if threading.current_thread() is not self._thread:  # as where the garbage collector ends a watch
            self._thread.join(PATIENCE_S)
        self.closed = True
        atexit.unregister(self._at_exit)

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
                    lambda: self._closing or self._asked > self._served or self._pending.held > self._capacity // 4,
                    self._interval,
                )
                closing, asked = self._closing, self._asked
            self._ask_source()
            if self._pending or time.monotonic() - alive > HEARTBEAT_S or closing:
                alive = time.monotonic()
                self._try_to_commit(closing)
            with self._wake:
                self._served = asked
                self._wake.notify_all()
            if closing:
                break
        if self._pending.held:
            self._warn(
                f"{self._pending.held} measurements could not be written to {self.path} and have been lost",
                "lost-measurements",
            )
        self._ledger.close()

    def _ask_source(self) -> None:
        try:
            if self.source is not None:
                self.source()
        except Exception as error:
            self._complain(
                f"measurements that wait could not be finished: {type(error).__name__}: {error}", "measurement-failed"
            )

    def _try_to_commit(self, closing: bool) -> None:
        try:
            try:
                self._commit()
            except FileGone:
                if not closing:
                    raise
                make_folder(self.path)  # the last chance to keep what was measured
                self._commit()
            if not self._writable:
                self._warn(f"netvitals: writing to {self.path} works again", "run-not-writable")
            self._writable, self._complained = True, False
        except Exception as error:
            self._writable = False
            self._complain(
                f"{self.path} cannot be written ({error}); training goes on, measurements are kept in "
                f"memory while they fit, and writing is tried again",
                "run-not-writable",
            )
            if not closing:
                time.sleep(min(self._interval, 0.2))

    def _commit(self) -> None:
        with self._wake:
            pending, self._pending = self._pending, Pending(held=self._pending.held)
            if self._dropped:
                pending.notes["dropped"] = as_json(self._dropped)
        try:
            self._ledger.commit(pending)
        except (OSError, sqlite3.OperationalError, sqlite3.DatabaseError) as error:
            if isinstance(error, sqlite3.DataError | sqlite3.InterfaceError | sqlite3.IntegrityError):
                self._commit_parts(pending)
            else:
                with self._wake:  # nothing was written: keep it for the next attempt, in the order it came
                    later, self._pending = self._pending, Pending()
                    later.held -= pending.held
                    self._pending = pending.before(later)
                raise
        except Exception:
            self._commit_parts(pending)
        with self._wake:
            self._pending.held -= pending.held

    def _commit_parts(self, pending: Pending) -> None:
        """Something in it cannot be stored: store the rest, and count what is left out."""
        for part in pending.parts():
            try:
                self._ledger.commit(part)
            except Exception as error:
                with self._wake:
                    self._dropped += part.held
                self._complain(
                    f"something could not be stored in {self.path} and is dropped: {error}", "lost-measurements"
                )

    def _complain(self, sentence: str, trouble: str) -> None:
        if not self._complained:
            self._complained = True
            self._warn(f"netvitals: {sentence}", trouble)

    def _warn(self, sentence: str, trouble: str) -> None:
        sentence = f"{sentence} {hint(trouble)}"
        try:
            warnings.warn(sentence, RuntimeWarning, stacklevel=4)
        except Warning:  # warnings are errors in this program; here it would end the thread, not the training
            print(sentence, file=sys.stderr)


def _versions() -> dict[str, str]:
    return {
        "netvitals": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
