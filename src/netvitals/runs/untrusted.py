"""A run may come from anybody: what its file can make a reader do is bounded by the size of the file.

A file of SQLite can hold views and triggers in place of tables, computed columns, tables whose pages refer to each
other in circles, side files that are pipes. ``docs/reliability.md`` has the threat model. The answer is the same to
all of it: the tables must be the ones that netvitals writes, letter for letter, and a statement may take so many steps
and give so many bytes as the file can honestly hold.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

SIDE_FILES = ("-wal", "-shm", "-journal")
STEPS, STEPS_PER_BYTE = 1_000_000, 20  # of SQLite's virtual machine, for one statement
EACH = 1000  # steps between two looks at the count
SLACK = 64 << 20  # bytes by which a file that is being written may grow while it is read


class Budget:
    """What reading one file may cost; installed on a connection, and used up by each statement anew."""

    def __init__(self, connection: sqlite3.Connection, file: Path) -> None:
        self.bytes = SLACK
        held = 0
        for name in (file, beside(file, "-wal")):
            try:
                found = os.stat(name)
            except OSError:
                continue
            self.bytes += found.st_size
            held += min(found.st_size, 512 * getattr(found, "st_blocks", found.st_size))  # without holes
        self._most = (STEPS + STEPS_PER_BYTE * held) // EACH
        self._left = self._most
        self._run = connection
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(self.bytes, 1_000_000_000))
        connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 10_000)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.set_progress_handler(self._step, EACH)
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA cell_size_check=ON")

    def _step(self) -> bool:
        self._left -= 1
        return self._left < 0  # True ends the statement

    def rows(self, statement: str, values: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a statement; a ``ValueError`` where it gives more than the file can hold."""
        self._left, given = self._most, 0
        try:
            for row in self._run.execute(statement, values):
                for value in row:
                    if isinstance(value, (str, bytes)):
                        given += len(value)
                if given > self.bytes:
                    raise ValueError("the tables of the run file contain more bytes than the file has")
                yield row
        except sqlite3.OperationalError:
            if self._left < 0:
                raise ValueError(
                    "reading the run file takes longer than a file of this size should; it is probably damaged"
                ) from None
            raise

    def row(self, statement: str, values: tuple[Any, ...] = ()) -> tuple[Any, ...] | None:
        """The first row of a statement; None where it has none."""
        return next(self.rows(statement, values), None)


def beside(file: Path, ending: str) -> Path:
    """The side file of ``file`` with that ending."""
    return file.with_name(f"{file.name}{ending}")


def check_side_files(file: Path) -> None:
    """Refuse side files that are pipes, devices or links: SQLite would open them, and may wait for ever."""
    for ending in SIDE_FILES:
        try:
            mode = os.lstat(beside(file, ending)).st_mode
        except OSError:
            continue
        if not stat.S_ISREG(mode):
            raise ValueError(f"the side file {file.name}{ending} of the run is not a regular file")


def check_tables(budget: Budget, layout: int) -> None:
    """The tables are the ones that netvitals makes, and there is nothing else: a ``ValueError`` says what is odd."""
    expected, optional = _tables(layout)
    found = {}
    for kind, name, sql in budget.rows("SELECT type, name, sql FROM sqlite_master LIMIT 50"):
        if str(name) in found or " ".join(str(sql).split()) != {**expected, **optional}.get(str(name)):
            raise ValueError(
                f"the run file contains the {str(kind)[:20]} {str(name)[:40]!r}, which netvitals does not write"
            )
        found[str(name)] = True
    missing = [name for name in expected if name not in found]
    if missing:
        raise ValueError(f"the table {missing[0]!r} of the run file is missing")


@cache
def _tables(layout: int) -> tuple[dict[str, str], dict[str, str]]:
    """Name → statement of the tables that a run has, and of those that it may have."""
    from netvitals.runs.store import FORECASTS, LAYOUT, OLD, OLD_LAYOUT

    made = []
    for script in (OLD_LAYOUT if layout == OLD else LAYOUT, "" if layout == OLD else FORECASTS):
        connection = sqlite3.connect(":memory:")
        connection.executescript(script)
        made.append({n: " ".join(sql.split()) for n, sql in connection.execute("SELECT name, sql FROM sqlite_master")})
        connection.close()
    return made[0], made[1]
