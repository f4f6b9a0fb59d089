"""The file a run lives in: its layout, its place on disk, and who may open it.

One SQLite file per run. Numbers come in batches, one or more a commit: columns (step, series, value) in one blob, where
a series is a (vital, site, metric) triple, told once. Every row carries the CRC-32 of its content, and the one row of
``summary`` says how many rows there are, so that neither a changed bit nor a lost row goes unnoticed.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from netvitals._help import hint
from netvitals.runs.checksum import Summary
from netvitals.runs.untrusted import SIDE_FILES, Budget, beside, check_tables

FILE_NAME = "run.sqlite"
APPLICATION = 0x4E565253  # "NVRS": marks the file as a netvitals run
SCHEMA = 2  # raised when the layout changes; older files are read as they are, or refused
OLD = 1  # one row a number, no checksums: still read
SUFFIXES = (".sqlite", ".sqlite3", ".db")

LAYOUT = """
CREATE TABLE summary (id INTEGER PRIMARY KEY, crc INTEGER, record TEXT);
CREATE TABLE meta (key TEXT PRIMARY KEY, crc INTEGER, value TEXT) WITHOUT ROWID;
CREATE TABLE series (id INTEGER PRIMARY KEY, crc INTEGER, vital TEXT, site TEXT, metric TEXT);
CREATE TABLE batch (id INTEGER PRIMARY KEY, crc INTEGER, segment INTEGER, data BLOB);
CREATE TABLE array (id INTEGER PRIMARY KEY, head INTEGER, crc INTEGER, segment INTEGER, step INTEGER, series INTEGER,
                    dtype TEXT, shape TEXT, data BLOB);
CREATE TABLE finding (id INTEGER PRIMARY KEY, crc INTEGER, record TEXT);
"""
OLD_LAYOUT = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE series (id INTEGER PRIMARY KEY, vital TEXT NOT NULL, site TEXT NOT NULL, metric TEXT NOT NULL);
CREATE TABLE reading (step INTEGER NOT NULL, series INTEGER NOT NULL, value REAL);
CREATE TABLE array (step INTEGER NOT NULL, series INTEGER NOT NULL, dtype TEXT NOT NULL, shape TEXT NOT NULL,
                    data BLOB NOT NULL);
CREATE TABLE finding (id INTEGER PRIMARY KEY, record TEXT NOT NULL);
"""
FORECASTS = """
CREATE TABLE IF NOT EXISTS forecast (id INTEGER PRIMARY KEY, crc INTEGER, segment INTEGER, record TEXT);
"""  # made with the first forecast: a run without any has the tables it always had


class RunDamaged(ValueError):
    """A run whose file does not hold what was written to it.

    Raised by :func:`open_run` and by everything that reads a run.
    """


def run_file(path: str | os.PathLike[str]) -> Path:
    """Return the SQLite file of a run: ``path`` itself if it has the suffix of a database, else ``path/run.sqlite``.

    Args:
        path: a run's folder, or a file that ends in ``.sqlite``, ``.sqlite3`` or ``.db``; ``~`` is the home folder.

    Returns:
        The path of the file, whether or not it exists.

    >>> run_file("runs/first").as_posix()
    'runs/first/run.sqlite'
    >>> run_file("first.sqlite").as_posix()
    'first.sqlite'
    """
    path = Path(path).expanduser()
    return path if path.suffix in SUFFIXES else path / FILE_NAME


def numbered(path: str | os.PathLike[str], number: int) -> Path:
    """The ``number``-th place for a run that should have been at ``path``: ``path-2``, ``path-3``, …"""
    wanted = Path(path).expanduser()
    if number < 2:
        return run_file(wanted)
    ending = wanted.suffix if wanted.suffix in SUFFIXES else ""
    return run_file(wanted.with_name(f"{wanted.stem if ending else wanted.name}-{number}{ending}"))


def make_folder(file: Path) -> None:
    """The folder of a run's file; what is in the way gets a sentence."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise FileExistsError(
            f"a run needs a folder, but {file.parent} cannot be made because a file of that name exists; choose "
            f"another path {hint('run-exists')}"
        ) from None


def create(file: Path) -> None:
    """Lay out a new run, readable by its owner only. It gets its name when it is whole, and never replaces a file.

    Call it under the lock of ``file``.
    """
    draft = file.with_name(f".{file.name}.new")
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()  # of a process that was killed here
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            lay_out(connection)
        try:
            os.link(draft, file)  # unlike a renaming it fails where something is
        except FileExistsError:
            raise FileExistsError(
                f"{file} already contains a run; choose another path, or remove the run first {hint('run-exists')}"
            ) from None
        except OSError:  # a file system without hard links; the lock keeps other writers away
            if file.exists():
                raise FileExistsError(
                    f"{file} already contains a run; choose another path {hint('run-exists')}"
                ) from None
            os.rename(draft, file)
    except sqlite3.Error as error:
        raise OSError(
            f"the run file {file} cannot be created ({error}); choose another path {hint('run-not-writable')}"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def lay_out(connection: sqlite3.Connection) -> None:
    """The tables of a run, in a file that holds nothing yet."""
    connection.executescript(
        f"BEGIN; {LAYOUT} PRAGMA application_id={APPLICATION}; PRAGMA user_version={SCHEMA}; COMMIT;"
    )
    # a run that is killed before its first commit is an empty one, and no damaged one
    connection.execute("INSERT INTO summary (id, crc, record) VALUES (?, ?, ?)", Summary().row())


def remove(file: Path) -> None:
    """Remove the run at ``file``; a file that is no run is left alone. Call it under the lock of ``file``."""
    try:
        connect(file)[0].close()
    except sqlite3.DatabaseError:
        raise NoRun(
            f"{file} exists but is not a netvitals run, so it is not overwritten; choose another path {hint('no-run')}"
        ) from None
    for one in (file, *(beside(file, end) for end in SIDE_FILES)):
        one.unlink(missing_ok=True)


def open_to_write(file: Path) -> sqlite3.Connection:
    """The writing connection of a laid-out run."""
    connection = sqlite3.connect(
        f"{file.absolute().as_uri()}?mode=rw", uri=True, timeout=30.0, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA journal_mode=WAL")  # a reader never waits for the writer, nor the other way
    connection.execute("PRAGMA synchronous=NORMAL")  # in WAL mode safe against a killed process
    return connection


class NoRun(ValueError):
    """A file that is no run, or one of another version."""


def connect(file: Path) -> tuple[sqlite3.Connection, Budget]:
    """Open an existing run for reading, whether or not somebody writes it; refuse what is not a run."""
    if not file.is_file():
        raise FileNotFoundError(f"there is no run at {file}{_near(file)} {hint('no-run')}")
    with open(file, "rb"):
        pass  # no permission is said here, in the system's words
    uri = file.absolute().as_uri()
    connection = sqlite3.connect(f"{uri}?mode=ro", uri=True, timeout=30.0, isolation_level=None)
    try:
        return connection, _check(connection, file)
    except sqlite3.OperationalError:
        connection.close()
    except BaseException:
        connection.close()
        raise
    log = beside(file, "-wal")
    if log.exists() and log.stat().st_size:
        raise OSError(
            f"{file} was not closed properly: its last measurements are in {log.name}, which cannot be read in a "
            f"read-only folder. Copy the folder, or use netvitals recover {file} --out FOLDER "
            f"{hint('run-not-writable')}"
        )
    # a folder that cannot be written has no place for the shared-memory file of WAL
    connection = sqlite3.connect(f"{uri}?mode=ro&immutable=1", uri=True, isolation_level=None)
    try:
        return connection, _check(connection, file)
    except BaseException:
        connection.close()
        raise


def layout_of(connection: sqlite3.Connection) -> int:
    """The number of the layout of an open run."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _check(connection: sqlite3.Connection, file: Path) -> Budget:
    budget = Budget(connection, file)
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = layout_of(connection)
    if application != APPLICATION:
        raise sqlite3.DatabaseError("the file is not marked as a netvitals run")
    if version not in (OLD, SCHEMA):
        raise NoRun(
            f"{file} has file format {version}, but this version of netvitals reads format {SCHEMA}; "
            f"{'upgrade netvitals' if version > SCHEMA else 'export it with the netvitals that wrote it'} "
            f"{hint('run-layout')}"
        )
    check_tables(budget, version)
    return budget


def _near(file: Path) -> str:
    folder = file.parent if file.parent.is_dir() else file.parent.parent
    found = sorted(p.parent for p in folder.glob(f"*/{FILE_NAME}")) + sorted(
        p for suffix in SUFFIXES for p in folder.glob(f"*{suffix}")
    )
    return f"; runs near it: {', '.join(map(str, found[:5]))}" if found else "; nothing was recorded there"
