"""Runs in a place that is no folder of this machine: copied here when they have changed, and only read."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from netvitals._help import hint

SUFFIXES = ("run.sqlite", "run.sqlite-wal")
TOLD = ("mtime", "created", "LastModified", "etag", "updated")  # how file systems tell that a file has changed
EVERY_S = 5.0  # between looks at the place


class Mirror:
    """A local copy of the runs below an address that fsspec understands: ``s3://…``, ``gs://…``, ``ssh://…``."""

    def __init__(self, address: str, every: float = EVERY_S) -> None:
        from fsspec.core import url_to_fs

        self.address = address
        try:
            self._there, self._path = url_to_fs(address)
        except (ValueError, ImportError) as error:
            raise ValueError(f"the address {address!r} cannot be opened: {error} {hint('no-run')}") from None
        self._home = tempfile.TemporaryDirectory(prefix="netvitals-mirror-")
        self.folder = Path(self._home.name) / Path(self._path.rstrip("/")).name
        self.folder.mkdir()
        self._every, self._looked = every, -float("inf")
        self._known: dict[str, Any] = {}
        self.failure = ""  # why the last look failed; the copies of the one before are shown
        self._busy = threading.Lock()
        try:
            there = self._there.exists(self._path)
        except Exception as error:  # every service has errors of its own
            raise OSError(f"{self._sentence(error)} {hint('no-run')}") from None
        if not there:
            raise FileNotFoundError(
                f"there is no folder {address!r}; give a folder that contains runs {hint('no-run')}"
            )

    def sync(self) -> None:
        """Copy what has changed, unless that was done just now or another thread is at it; see ``failure``."""
        if time.monotonic() - self._looked < self._every or not self._busy.acquire(blocking=False):
            return
        try:
            self._looked = time.monotonic()
            self._copy()
            self.failure = ""
        except Exception as error:
            self.failure = f"{self._sentence(error)}; the runs are shown as they were copied last {hint('no-run')}"
        finally:
            self._looked = time.monotonic()
            self._busy.release()

    def _sentence(self, error: Exception) -> str:
        return f"{self.address!r} cannot be read: {type(error).__name__}: {error}"

    def _copy(self) -> None:
        self._there.invalidate_cache()
        found = {
            name: info for name, info in self._there.find(self._path, detail=True).items() if name.endswith(SUFFIXES)
        }
        drafts: dict[Path, list[tuple[str, Any, Path, Path]]] = {}
        for name, info in found.items():
            state = (info.get("size"), *(str(info.get(k)) for k in TOLD))
            local = self.folder / os.path.relpath("/" + name.lstrip("/"), "/" + self._path.lstrip("/"))
            if self._known.get(name) != state and local.resolve().is_relative_to(self.folder.resolve()):
                local.parent.mkdir(parents=True, exist_ok=True)
                draft = local.with_name(local.name + ".part")
                self._there.get_file(name, str(draft))
                drafts.setdefault(local.parent, []).append((name, state, draft, local))
        for one in drafts.values():  # a run and its side file belong together
            for name, state, draft, local in one:
                draft.replace(local)
                self._known[name] = state
        for name in set(self._known) - set(found):
            del self._known[name]
            local = self.folder / os.path.relpath("/" + name.lstrip("/"), "/" + self._path.lstrip("/"))
            with contextlib.suppress(FileNotFoundError):
                local.unlink()
