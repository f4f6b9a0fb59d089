"""Damage of a results file is told: a checksum for every trial, and one sentence for what SQLite cannot read.

The checksums are in a table of their own, which older versions of netvitals leave alone: a trial that one of them has
stored since has another time of ending than its checksum, and is not judged by it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from netvitals.runs.checksum import seal

TABLE = "CREATE TABLE IF NOT EXISTS seal (key TEXT PRIMARY KEY, finished REAL NOT NULL, crc INTEGER NOT NULL)"


class ResultsDamaged(ValueError):
    """A results file that does not hold what was written to it."""


def seal_trial(db: sqlite3.Connection, key: str, finished: float, *fields: Any) -> None:
    """Keep the checksum of a trial that is stored in the same transaction."""
    db.execute("INSERT OR REPLACE INTO seal VALUES (?, ?, ?)", (key, finished, seal(key, *fields)))


def seals(db: sqlite3.Connection) -> dict[str, tuple[float, int]]:
    """Key → (time of ending, checksum); empty where the file has none yet."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'seal'").fetchone():
        return {}
    return {key: (finished, crc) for key, finished, crc in db.execute("SELECT key, finished, crc FROM seal")}


def check_trial(known: dict[str, tuple[float, int]], key: str, finished: float, *fields: Any) -> None:
    """A trial that is not what was written is a ``ValueError``."""
    kept = known.get(key)
    if kept is not None and kept[0] == finished and kept[1] != seal(key, *fields):
        raise ValueError(f"the trial {key[:16]} is not what was written")


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Whatever cannot be read inside the block becomes one :class:`ResultsDamaged`.

    >>> with readable(Path("studies.sqlite")):
    ...     raise sqlite3.DatabaseError("database disk image is malformed")
    Traceback (most recent call last):
    netvitals_lab.engine.checksums.ResultsDamaged: studies.sqlite is damaged (database disk image is malformed); ...
    """
    try:
        yield
    except ResultsDamaged:
        raise
    except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
        if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
            raise OSError(f"{path} is written by somebody else for longer than a minute; try again") from None
        raise ResultsDamaged(
            f"{path} is damaged ({error}); move it away, and netvitals reproduce runs the trials again. "
            "Copies of it may be intact: --results takes any of them"
        ) from None
