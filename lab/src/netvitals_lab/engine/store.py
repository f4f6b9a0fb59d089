"""The results file: one SQLite file for all studies, written by the driver only.

The same laws as the run store: WAL, so that a reader never waits and a killed process loses nothing that was
committed; a mark and a layout number; an older layout is migrated, an unknown one refused, nothing is overwritten.
Every finished trial is one transaction.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from netvitals.runs.lock import FileLock
from netvitals_lab.engine import checksums
from netvitals_lab.engine.checksums import check_trial, readable, seal_trial, seals
from netvitals_lab.engine.study import Config, Row, canonical
from netvitals_lab.engine.verdict import Verdict

DEFAULT = Path("runs/studies.sqlite")
APPLICATION = 0x4E565354  # "NVST": marks the file as netvitals results
LAYOUT_NUMBER = 2  # raised when the layout changes
MIGRATIONS: dict[int, str] = {1: ""}  # layout n → SQL that makes it layout n + 1; trials of 1 are stale
COLUMNS = "key, study, config, code, status, rows, error, attempts, seconds, engine, finished"  # of a trial
LAYOUT = """
CREATE TABLE trial (key TEXT PRIMARY KEY, study TEXT NOT NULL, config TEXT NOT NULL, code TEXT NOT NULL,
                    status TEXT NOT NULL CHECK (status IN ('done', 'failed')), rows TEXT, error TEXT,
                    attempts INTEGER NOT NULL, seconds REAL NOT NULL, engine TEXT NOT NULL, finished REAL NOT NULL);
CREATE INDEX trial_of_study ON trial (study);
CREATE TABLE failure (key TEXT NOT NULL, study TEXT NOT NULL, config TEXT NOT NULL, attempt INTEGER NOT NULL,
                      error TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE hypothesis (study TEXT PRIMARY KEY, text TEXT NOT NULL, hash TEXT NOT NULL, registered TEXT NOT NULL,
                         trials_before INTEGER NOT NULL);
CREATE TABLE verdict (claim TEXT NOT NULL, scale TEXT NOT NULL, record TEXT NOT NULL, code TEXT NOT NULL,
                      judged TEXT NOT NULL, PRIMARY KEY (claim, scale));
"""


@dataclass(frozen=True)
class TrialRecord:
    """One trial as it ended: its rows, or the traceback of its last attempt."""

    key: str
    study: str
    config: Config
    code: str
    rows: list[Row] = field(default_factory=list)
    error: str = ""
    attempts: int = 1
    seconds: float = 0.0  # of computing
    engine: str = ""

    @property
    def done(self) -> bool:
        return not self.error


@dataclass(frozen=True)
class Hypothesis:
    text: str
    hash: str
    registered: str  # when, in UTC
    trials_before: int  # trials of the study that were already stored then; 0 for a true pre-registration


@dataclass(frozen=True)
class StoredVerdict:
    claim: str
    scale: str
    verdict: Verdict
    code: str
    judged: str


class Results:
    """An open results file. ``Results(path)`` writes (and makes the file); ``Results(path, write=False)`` reads.

    >>> import tempfile
    >>> with Results(tempfile.mkdtemp() + "/studies.sqlite") as results:
    ...     results.record(TrialRecord("k", "demo", {"seed": 0}, "c", rows=[{"loss": 0.5}]))
    ...     results.trials(["k"])["k"].rows
    [{'loss': 0.5}]
    """

    def __init__(self, path: str | os.PathLike[str] = DEFAULT, *, write: bool = True) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise IsADirectoryError(
                f"{self.path} is a folder; name the results file in it, e.g. {self.path / DEFAULT.name}"
            )
        self.lock: FileLock | None = None  # of who runs studies for it
        self._db = self._open_to_write() if write else self._open_to_read()

    def record(self, trial: TrialRecord) -> None:
        """Keep a trial; the same trial again replaces what was there, so nothing is counted twice."""
        status, now = "done" if trial.done else "failed", time.time()
        stated = (trial.study, canonical(trial.config), trial.code, status, json.dumps(trial.rows), trial.error)
        spent = (trial.attempts, trial.seconds, trial.engine)
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO trial VALUES (?,?,?,?,?,?,?,?,?,?,?)", (trial.key, *stated, *spent, now))
            seal_trial(db, trial.key, now, *stated)

    def record_failure(self, key: str, study: str, config: Config, attempt: int, error: str) -> None:
        """Keep the traceback of one attempt, whatever becomes of the next one."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO failure VALUES (?,?,?,?,?,?)", (key, study, canonical(config), attempt, error, time.time())
            )

    def trials(self, keys: Iterable[str] | None = None, study: str | None = None) -> dict[str, TrialRecord]:
        """Stored trials by key: the ones asked for, or all of a study."""
        wanted = None if keys is None else set(keys)
        where, values = (" WHERE study = ?", (study,)) if study is not None else ("", ())
        found: dict[str, TrialRecord] = {}
        with readable(self.path):
            known = seals(self._db)
            for key, name, config, code, status, rows, error, attempts, seconds, engine, finished in self._db.execute(
                f"SELECT {COLUMNS} FROM trial{where} ORDER BY finished", values
            ):
                if wanted is None or key in wanted:
                    check_trial(known, key, finished, name, config, code, status, rows, error)
                    found[key] = TrialRecord(
                        key=key,
                        study=name,
                        config=json.loads(config),
                        code=code,
                        rows=json.loads(rows),
                        error=error or "",
                        attempts=attempts,
                        seconds=seconds,
                        engine=engine,
                    )
        return found

    def failures(self, study: str | None = None) -> list[tuple[str, Config, int, str]]:
        """(key, configuration, attempt, traceback) of every attempt that failed, also where the next one did not."""
        where, values = (" WHERE study = ?", (study,)) if study is not None else ("", ())
        with readable(self.path):
            return [
                (k, json.loads(c), n, e)
                for k, c, n, e in self._db.execute(
                    f"SELECT key, config, attempt, error FROM failure{where} ORDER BY at", values
                )
            ]

    def register(self, study: str, text: str) -> Hypothesis:
        """Keep the hypothesis of a study the first time it is seen; later calls return what was kept then."""
        kept = self.hypothesis(study)
        if kept is not None:
            return kept
        before = self._db.execute("SELECT COUNT(*) FROM trial WHERE study = ?", (study,)).fetchone()[0]
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self._transaction() as db:
            db.execute("INSERT INTO hypothesis VALUES (?,?,?,?,?)", (study, text, fingerprint(text), now, before))
        return Hypothesis(text, fingerprint(text), now, before)

    def hypothesis(self, study: str) -> Hypothesis | None:
        with readable(self.path):
            row = self._db.execute(
                "SELECT text, hash, registered, trials_before FROM hypothesis WHERE study = ?", (study,)
            ).fetchone()
            if row is not None and row[1] != fingerprint(row[0]):
                raise ValueError(f"the hypothesis of {study} is not what was registered")
        return None if row is None else Hypothesis(*row)

    def save_verdicts(self, verdicts: dict[str, Verdict], scale: str, code: str) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self._transaction() as db:
            db.executemany(
                "INSERT OR REPLACE INTO verdict VALUES (?,?,?,?,?)",
                [(claim, scale, json.dumps(v.to_dict()), code, now) for claim, v in verdicts.items()],
            )

    def verdicts(self) -> list[StoredVerdict]:
        with readable(self.path):
            return [
                StoredVerdict(
                    claim=claim, scale=scale, verdict=Verdict.from_dict(json.loads(record)), code=code, judged=judged
                )
                for claim, scale, record, code, judged in self._db.execute(
                    "SELECT claim, scale, record, code, judged FROM verdict ORDER BY claim, judged"
                )
            ]

    def close(self) -> None:
        """Make the file whole: no side files remain unless somebody else reads it now."""
        try:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._db.execute("PRAGMA journal_mode=DELETE")
        except sqlite3.Error:
            pass  # a reader holds the file, or it is open for reading only; nothing is lost
        self._db.close()

    def __enter__(self) -> Results:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                with suppress(sqlite3.Error):  # the disk may refuse this too; the next opening rolls back
                    self._db.execute("ROLLBACK")
            raise OSError(
                f"{self.path} cannot be written ({error}); the trials stored so far are intact. Make room or "
                "permission there and run the same command again"
            ) from error

    def _open_to_write(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(self.path, timeout=60.0, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise OSError(f"{self.path} cannot be made ({error}); choose another place with --results") from None
        try:
            if _is_blank(db, self.path):
                db.execute("PRAGMA journal_mode=WAL")
                _lay_out(db, self.path)
            version = _check(db, self.path)
            db.execute("PRAGMA journal_mode=WAL")
            _migrate(db, self.path, version)
            db.execute(checksums.TABLE)
            db.execute("PRAGMA synchronous=NORMAL")  # in WAL mode safe against a killed process
        except sqlite3.OperationalError as error:
            db.close()
            raise OSError(f"{self.path} cannot be written ({error}); choose another place with --results") from None
        except BaseException:
            db.close()
            raise
        return db

    def _open_to_read(self) -> sqlite3.Connection:
        if not self.path.is_file():
            raise FileNotFoundError(f"there are no results at {self.path}; netvitals reproduce makes them")
        uri = self.path.absolute().as_uri()
        try:
            db = sqlite3.connect(f"{uri}?mode=ro", uri=True, timeout=60.0)
            blank = _is_blank(db, self.path)
        except sqlite3.OperationalError:  # a folder that cannot be written has no place for WAL's side files
            db = sqlite3.connect(f"{uri}?mode=ro&immutable=1", uri=True)
            blank = _is_blank(db, self.path)
        if blank:
            db.close()
            raise FileNotFoundError(f"there are no results in {self.path} yet; netvitals reproduce makes them")
        version = _check(db, self.path)
        if version < LAYOUT_NUMBER:
            db.close()
            raise ValueError(
                f"{self.path} has the older layout {version}; netvitals reproduce brings it to layout "
                f"{LAYOUT_NUMBER} when it next writes there"
            )
        return db


def fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


def _is_blank(db: sqlite3.Connection, path: Path) -> bool:
    """Whether the file holds nothing yet: new, or made by a driver that was killed at once."""
    try:
        return not _pragma(db, "application_id") and not _pragma(db, "schema_version")
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{path} is not a netvitals results file ({error}); choose another place") from None


def _lay_out(db: sqlite3.Connection, path: Path) -> None:
    db.execute("BEGIN IMMEDIATE")
    if _is_blank(db, path):  # no other driver was faster
        for statement in (
            *LAYOUT.split(";")[:-1],
            f"PRAGMA application_id={APPLICATION}",
            f"PRAGMA user_version={LAYOUT_NUMBER}",
        ):
            db.execute(statement)
    db.execute("COMMIT")


def _check(db: sqlite3.Connection, path: Path) -> int:
    """The layout number of a results file; what is not one, or is too new or too old, is refused."""
    application, version = _pragma(db, "application_id"), _pragma(db, "user_version")
    if application != APPLICATION:
        raise ValueError(f"{path} is not a netvitals results file: it lacks the mark of one; choose another place")
    if version > LAYOUT_NUMBER:
        raise ValueError(
            f"{path} has layout {version} and this netvitals knows layout {LAYOUT_NUMBER}; "
            "upgrade netvitals or choose another place"
        )
    if any(step not in MIGRATIONS for step in range(version, LAYOUT_NUMBER)):
        raise ValueError(
            f"{path} has layout {version}, which this netvitals (layout {LAYOUT_NUMBER}) can no longer "
            "bring up to date; keep it for the netvitals that wrote it and choose another place"
        )
    return version


def _migrate(db: sqlite3.Connection, path: Path, version: int) -> None:
    if version == LAYOUT_NUMBER:
        return
    try:
        db.executescript("BEGIN IMMEDIATE;")
        for step in range(_pragma(db, "user_version"), LAYOUT_NUMBER):  # another driver may have done it meanwhile
            for statement in MIGRATIONS[step].split(";"):
                db.execute(statement)
        db.execute(f"PRAGMA user_version={LAYOUT_NUMBER}")
        db.execute("COMMIT")
    except sqlite3.Error as error:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise ValueError(
            f"{path} has layout {version} and could not be brought to layout {LAYOUT_NUMBER} ({error}); it is unchanged"
        ) from None
