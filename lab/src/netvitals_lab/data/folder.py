"""Where data is looked for, and the sentence when it is not there."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

VARIABLE = "NETVITALS_DATA"


def root(folder: str | Path | None) -> Path | None:
    """The folder given, else the one that NETVITALS_DATA names, else None."""
    chosen = folder or os.environ.get(VARIABLE)
    return Path(chosen).expanduser() if chosen else None


def places(folder: Path | None, subfolders: Iterable[str]) -> list[Path]:
    """The folders (or, when ``folder`` is a file, that file) to look into, in order."""
    if folder is None:
        return []
    return [folder] if folder.is_file() else [folder / s if s else folder for s in subfolders]


def missing(name: str, files: Iterable[str], observed: Iterable[Path]) -> FileNotFoundError:
    """Which files were looked for, and where."""
    where = ", ".join(map(str, observed))
    if not where:
        return FileNotFoundError(
            f"{name} was not found: no folder to look in; give folder=..., or set {VARIABLE}, to "
            f"the folder with {', '.join(files)}"
        )
    return FileNotFoundError(
        f"{name} was not found: looked for {', '.join(files)} in {where}; "
        f"put the files there, give folder=..., or set {VARIABLE}"
    )
