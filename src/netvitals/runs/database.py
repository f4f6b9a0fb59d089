"""The database side of a writer: one transaction a commit, sealed rows, and the file put back where it was lost."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Iterable
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from netvitals._help import hint
from netvitals.runs.checked import opened
from netvitals.runs.checksum import Summary, pack, seal
from netvitals.runs.lock import FileLock, FileLocked, this_machine
from netvitals.runs.sparkline import Sparkline
from netvitals.runs.store import FORECASTS, create, make_folder, numbered, open_to_write, remove
from netvitals.runs.write_queue import Columns, Key, Pending, text

BATCH = 50_000  # measurements in one blob at most
LOSS, RATE = ("loss", "model", "loss"), ("optimizer", "group 0", "lr")
SHOWN = ("model", "status", "started", "steps")  # metadata that a list of runs shows


class FileGone(OSError):
    """The run's file is no longer at its place."""


class RunDatabase:
    """One run's file, open for writing by this process alone."""

    def __init__(self, path: str | os.PathLike[str], existing: str) -> None:
        if existing not in ("number", "refuse", "resume", "overwrite"):
            raise ValueError(
                "existing= (what to do if the run exists) must be 'number', 'refuse', 'resume' or 'overwrite', got "
                f"{existing!r}"
            )
        self.summary = Summary()
        self.series: dict[Key, int] = {}
        self.meta: dict[str, Any] = {}
        self.resumed = False
        self._names: dict[Key, int] = {}  # as they are stored
        self._seals: dict[str, int] = {}  # of metadata
        self._layouts: dict[Any, np.ndarray] = {}
        number = 1
        while True:
            file = numbered(path, number)
            make_folder(file)
            if existing == "number" and file.exists() and FileLock.holder(file) in (None, os.getpid()):
                number += 1
                continue
            try:
                self.lock = FileLock(file)
            except FileLocked:
                if existing != "number" or FileLock.holder(file) != os.getpid():
                    raise
                number += 1
                continue
            try:
                if file.exists() and existing == "resume":
                    self._load(file)
                else:
                    if existing == "overwrite" and file.exists():
                        remove(file)
                    create(file)
                break
            except FileExistsError:
                self.lock.release()
                if existing == "refuse":
                    raise
                number += 1
            except BaseException:
                self.lock.release()
                raise
        self.path = file
        try:
            self.connection = open_to_write(file)
        except sqlite3.Error as error:
            self.lock.release()
            raise OSError(
                f"the run file {file} cannot be written ({error}); choose another path {hint('run-not-writable')}"
            ) from None
        self._inode = _inode(file)

    def commit(self, pending: Pending) -> None:
        """Write all of it, or nothing and raise."""
        if _inode(self.path) != self._inode:
            self._put_back()
        series, names, seals, summary = dict(self.series), dict(self._names), dict(self._seals), copy(self.summary)
        run = self.connection
        try:
            run.execute("BEGIN IMMEDIATE")
            self._measurements(pending.columns)
            for a in pending.arrays:
                self.summary.arrays += 1
                number = self._id((a.vital, a.site, a.metric))
                shape, data = json.dumps(a.value.shape), np.ascontiguousarray(a.value).tobytes()
                row = (self.summary.arrays, self.summary.segment, a.step, number, a.value.dtype.str, shape)
                run.execute(
                    "INSERT INTO array (head, id, segment, step, series, dtype, shape, crc, data) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (seal(*row), *row, seal(data), data),
                )
            self._meta(pending.notes)
            self._findings(pending.findings, pending.replace_findings)
            self._forecasts(pending.forecasts)
            self.summary.commits += 1
            self.summary.shown = {**self.summary.shown, "heartbeat": time.time(), "machine": this_machine()}
            run.execute("INSERT OR REPLACE INTO summary (id, crc, record) VALUES (?, ?, ?)", self.summary.row())
            run.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                if run.in_transaction:
                    run.execute("ROLLBACK")
            self.series, self._names, self._seals, self.summary = series, names, seals, summary
            self._layouts.clear()
            raise

    def close(self) -> None:
        """Make the file whole (no side files remain) and let others write it."""
        try:
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self.connection.execute("PRAGMA journal_mode=DELETE")
        except sqlite3.Error:
            pass  # a reader holds the file open: the side files stay, nothing is lost
        with contextlib.suppress(sqlite3.Error):
            self.connection.close()
        self.lock.release()

    def _measurements(self, columns: Iterable[Columns]) -> None:
        parts = [c for c in columns if len(c)]
        if not parts:
            return
        steps = np.concatenate([c.steps for c in parts])
        numbers = np.concatenate([self._ids(c) for c in parts])
        values = np.concatenate([np.asarray(c.values, np.float64) for c in parts])
        for start in range(0, len(steps), BATCH):
            part = slice(start, start + BATCH)
            self.summary.batches += 1
            data = pack(steps[part], numbers[part], values[part])
            self.connection.execute(
                "INSERT INTO batch (id, crc, segment, data) VALUES (?, ?, ?, ?)",
                (
                    self.summary.batches,
                    seal(self.summary.batches, self.summary.segment, data),
                    self.summary.segment,
                    data,
                ),
            )
        self._shown_of(steps, numbers, values)
        self.summary.measurements += len(steps)
        self.summary.last_step = max(self.summary.last_step, int(steps.max()))

    def _shown_of(self, steps: np.ndarray, numbers: np.ndarray, values: np.ndarray) -> None:
        """The loss as a list of runs draws it, and the learning rate in force."""
        shown = dict(self.summary.shown)
        loss, rate = (self._names.get(key, -1) for key in (LOSS, RATE))
        here = numbers == loss
        if here.any():
            line = Sparkline(shown.get("loss"))
            line.add(steps[here], values[here])
            shown["loss"] = line.record()
        here = numbers == rate
        if here.any() and np.isfinite(values[here][-1]):
            shown["lr"] = float(values[here][-1])
        self.summary.shown = shown

    def _ids(self, columns: Columns) -> np.ndarray:
        """The series of the measurements; pages of one layout come again and again."""
        if columns.layout is None:
            return np.array([self._id(key) for key in columns.keys], np.int64)
        ids = self._layouts.get(columns.layout)
        if ids is None:
            ids = self._layouts[columns.layout] = np.array([self._id(key) for key in columns.keys], np.int64)
        return ids

    def _id(self, key: Key) -> int:
        number = self.series.get(key)
        if number is None:
            stored = (text(key[0]), text(key[1]), text(key[2]))
            number = self._names.get(stored)
            if number is None:
                number = self._names[stored] = self.summary.series = self.summary.series + 1
                self.connection.execute(
                    "INSERT INTO series (id, crc, vital, site, metric) VALUES (?, ?, ?, ?, ?)",
                    (number, seal(number, *stored), *stored),
                )
            self.series[key] = number
        return number

    def _meta(self, notes: dict[str, str]) -> None:
        for key, value in notes.items():
            crc = seal(key, value)
            self.summary.meta_sum ^= self._seals.get(key, 0) ^ crc
            self._seals[key] = crc
            self.connection.execute("INSERT OR REPLACE INTO meta (key, crc, value) VALUES (?, ?, ?)", (key, crc, value))
        self.summary.metas = len(self._seals)
        shown = {key: json.loads(notes[key]) for key in SHOWN if key in notes}
        self.summary.shown = {**self.summary.shown, **shown}

    def _findings(self, findings: list[str], replace: bool) -> None:
        if replace:
            self.connection.execute("DELETE FROM finding")
            self.summary.findings = self.summary.findings_sum = 0
        for record in findings:
            self.summary.findings += 1
            crc = seal(self.summary.findings, record)
            self.summary.findings_sum ^= crc
            self.connection.execute(
                "INSERT INTO finding (id, crc, record) VALUES (?, ?, ?)", (self.summary.findings, crc, record)
            )

    def _forecasts(self, forecasts: list[str]) -> None:
        if forecasts and not self.summary.forecasts:
            self.connection.execute(FORECASTS)
        for record in forecasts:
            self.summary.forecasts += 1
            row = (self.summary.forecasts, self.summary.segment, record)
            self.connection.execute(
                "INSERT INTO forecast (id, segment, record, crc) VALUES (?, ?, ?, ?)", (*row, seal(*row))
            )

    def _load(self, file: Path) -> None:
        """Continue a run: what is in it is checked first, since nothing is added to a damaged one."""
        with opened(file, mine=True) as tables:
            old = tables.old
        if old:
            raise ValueError(
                f"{file} was written by an older version of netvitals: it can be read but not continued; begin a new "
                f"run {hint('run-layout')}"
            )
        with opened(file) as tables:
            self.summary, self.meta = tables.summary(), tables.meta()
            self._names = {(vital, site, metric): number for number, vital, site, metric in tables.series()}
            for _ in tables.batches():
                pass
            tables.array_heads(), tables.findings(), tables.forecasts()
            self._seals = tables.meta_seals()
        self.resumed = True

    def _put_back(self) -> None:
        """The file was removed or replaced: write what it held again, out of the connection that still has it."""
        if not self.path.parent.is_dir():
            raise FileGone(f"its folder {self.path.parent} is gone {hint('run-not-writable')}")
        if self.path.exists():
            raise FileGone(f"another file has taken its place {hint('run-not-writable')}")
        self.lock.release()
        self.lock = FileLock(self.path)
        draft = self.path.with_name(f".{self.path.name}.new")
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with contextlib.closing(sqlite3.connect(draft)) as copy_of_it:
            self.connection.backup(copy_of_it)
            copy_of_it.execute("PRAGMA journal_mode=DELETE")
        os.rename(draft, self.path)
        self.connection.close()
        self.connection = open_to_write(self.path)
        self._inode = _inode(self.path)


def _inode(file: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino
