"""The file a run lives in: its layout, its place on disk, and who may open it.

One SQLite file per run. A number is a row ``(step, series, value)``; a series is a (vital, site, metric) triple, told
once. NaN is stored as NULL, since SQLite has no NaN.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

FILE_NAME = "run.sqlite"
APPLICATION = 0x4E565253  # "NVRS": marks the file as a netvitals run
SCHEMA = 1  # raised when the layout changes; older files are migrated or refused
SUFFIXES = (".sqlite", ".sqlite3", ".db")

LAYOUT = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE series (id INTEGER PRIMARY KEY, vital TEXT NOT NULL, site TEXT NOT NULL, metric TEXT NOT NULL);
CREATE TABLE reading (step INTEGER NOT NULL, series INTEGER NOT NULL, value REAL);
CREATE TABLE array (step INTEGER NOT NULL, series INTEGER NOT NULL, dtype TEXT NOT NULL, shape TEXT NOT NULL,
                    data BLOB NOT NULL);
CREATE TABLE finding (id INTEGER PRIMARY KEY, record TEXT NOT NULL);
"""


def run_file(path: str | os.PathLike[str]) -> Path:
    """The SQLite file that ``path`` means: itself when it ends like one, else ``run.sqlite`` in that folder.

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


def claim(path: str | os.PathLike[str], *, existing: str = "number") -> Path:
    """Make an empty file for a new run. A place that is taken is never overwritten.

    Args:
        path: folder or file.
        existing: ``"number"`` moves on to ``path-2``, ``path-3``, …; ``"refuse"`` raises ``FileExistsError``.
    """
    if existing not in ("number", "refuse"):
        raise ValueError(f"existing must be 'number' or 'refuse', got {existing!r}")
    wanted = Path(path).expanduser()
    candidate, number = wanted, 1
    while True:
        file = run_file(candidate)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise FileExistsError(
                f"a run is a folder, and {file.parent} cannot be one: there is a file of that name "
                "on the way; choose another path"
            ) from None
        try:
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644))  # two processes cannot both win
            return file
        except FileExistsError:
            if existing == "refuse":
                raise FileExistsError(f"{file} already holds a run; choose another path or remove it first") from None
        number += 1
        candidate = wanted.with_name(
            f"{wanted.stem if wanted.suffix in SUFFIXES else wanted.name}-{number}"
            f"{wanted.suffix if wanted.suffix in SUFFIXES else ''}"
        )


def create(file: Path) -> sqlite3.Connection:
    """Lay out a claimed file and return the writing connection."""
    connection = sqlite3.connect(file, timeout=30.0, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")  # a reader never waits for the writer, nor the other way
    connection.execute("PRAGMA synchronous=NORMAL")  # in WAL mode safe against a killed process
    connection.executescript(
        f"BEGIN; {LAYOUT} PRAGMA application_id={APPLICATION}; PRAGMA user_version={SCHEMA}; COMMIT;"
    )
    return connection


def connect(file: Path) -> sqlite3.Connection:
    """Open an existing run for reading, whether or not somebody writes it; refuse what is not a run."""
    if not file.is_file():
        raise FileNotFoundError(f"there is no run at {file}{_near(file)}")
    try:
        connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=30.0)
        _check(connection, file)
    except sqlite3.OperationalError:
        # a folder that cannot be written has no place for the shared-memory file of WAL
        connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        _check(connection, file)
    return connection


def _check(connection: sqlite3.Connection, file: Path) -> None:
    try:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{file} is not a netvitals run ({error})") from None
    if application != APPLICATION:
        raise ValueError(f"{file} is not a netvitals run: it lacks the mark that every run carries")
    if version != SCHEMA:
        raise ValueError(
            f"{file} has layout {version} and this netvitals reads layout {SCHEMA}; "
            f"{'upgrade netvitals' if version > SCHEMA else 'export it with the netvitals that wrote it'}"
        )


def _near(file: Path) -> str:
    folder = file.parent if file.parent.is_dir() else file.parent.parent
    found = sorted(p.parent for p in folder.glob(f"*/{FILE_NAME}")) + sorted(
        p for suffix in SUFFIXES for p in folder.glob(f"*{suffix}")
    )
    return f"; runs near it: {', '.join(map(str, found[:5]))}" if found else "; nothing was recorded there"
