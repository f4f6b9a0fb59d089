"""The runs below a folder."""

from __future__ import annotations

import os
from pathlib import Path

from netvitals._help import hint
from netvitals.runs.store import FILE_NAME


def runs_below(folder: str | os.PathLike[str]) -> list[str]:
    """Names of the runs below ``folder``, the latest first; a run's own folder counts as one run named ``.``.

    A link that leads out of the folder is no run of it.
    """
    root = Path(folder)
    if not root.exists():
        raise FileNotFoundError(f"there is no folder {str(root)!r}; give a folder that contains runs {hint('no-run')}")
    home = root.resolve()
    found: list[tuple[float, str]] = []
    waiting = [str(root)]
    while waiting:  # without recursion: folders may lie thousands deep
        place = waiting.pop()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.name == FILE_NAME and (not entry.is_symlink() or _leads_into(entry.path, home)):
                        found.append((entry.stat().st_mtime, os.path.relpath(place, root)))
        except (OSError, RuntimeError):  # no permission, a link to nothing or to itself, a path too long for the system
            continue
    return [name for _, name in sorted(found, key=lambda pair: (-pair[0], pair[1]))]


def _leads_into(link: str, home: Path) -> bool:
    return Path(link).resolve().is_relative_to(home)
