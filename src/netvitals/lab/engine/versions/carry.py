"""Stored trials move from one way of naming their code to the next, once, when a results file is opened.

A trial's key contains the version of the code behind it. When the way to compute versions changes and the code does
not, ``carried.json`` says for every study which old version is which new one; the trials and verdicts under the old
version get the new one and are found again instead of being run again.

    python -m netvitals.lab.engine.versions.carry OLD.json

writes that file from the code as it is now; ``OLD.json`` maps the names of studies to their versions at the old commit.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Mapping
from pathlib import Path

from netvitals.lab.engine.study import trial_key

CARRIED = Path(__file__).with_name("carried.json")

Versions = Mapping[str, Mapping[str, str]]  # study → old version → new version


def carried(path: str | os.PathLike[str] = CARRIED) -> dict[str, dict[str, str]]:
    """Study → old version → new version, as this netvitals ships it."""
    path = Path(path)
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def carry_over(db: sqlite3.Connection, versions: Versions) -> int:
    """Give the trials, failures and verdicts that are stored under old versions the new ones.

    A trial that is already stored under the new version stays, and so does the old one beside it.

    Args:
        db: a results file within a transaction of the caller's.
        versions: study → old version → new version.

    Returns:
        How many trials were carried over.
    """
    moved = 0
    for study, pairs in versions.items():
        for old, new in pairs.items():
            stored = db.execute("SELECT key, config FROM trial WHERE study = ? AND code = ?", (study, old)).fetchall()
            for key, config in stored:
                fresh = trial_key(study, json.loads(config), new)
                changed = db.execute("UPDATE OR IGNORE trial SET key = ?, code = ? WHERE key = ?", (fresh, new, key))
                db.execute("UPDATE failure SET key = ? WHERE key = ?", (fresh, key))
                moved += changed.rowcount
            if stored:
                _carry_verdicts(db, study, old, new)
    return moved


def _carry_verdicts(db: sqlite3.Connection, study: str, old: str, new: str) -> None:
    """A stored verdict does not name its study; its claim does."""
    from netvitals.lab.engine.registry import all_claims  # reads every paper's folder: only where there is something

    claims = [(new, c.id, old) for c in all_claims() if c.study == study]
    db.executemany("UPDATE verdict SET code = ? WHERE claim = ? AND code = ?", claims)


def write_carried(old: Mapping[str, str], path: str | os.PathLike[str] = CARRIED) -> dict[str, dict[str, str]]:
    """Write which old version of each study is which new one, from the code as it is now.

    Args:
        old: study → its version at the old commit.
        path: the file that is shipped.

    Returns:
        What was written.
    """
    from netvitals.lab.engine.registry import all_studies
    from netvitals.lab.engine.versions import code_version

    now = {s.name: code_version(s) for s in all_studies()}
    gone = sorted(set(old) - set(now))
    if gone:
        raise ValueError(f"there are no studies {', '.join(gone)} any more; take them out of the old versions")
    table = {name: {version: now[name]} for name, version in sorted(old.items())}
    Path(path).write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    return table


def main(arguments: list[str]) -> None:
    if len(arguments) != 1:
        raise SystemExit(
            "usage: python -m netvitals.lab.engine.versions.carry OLD.json (study → version at the old commit)"
        )
    table = write_carried(json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    print(f"{CARRIED}: {len(table)} studies")


if __name__ == "__main__":
    main(sys.argv[1:])
