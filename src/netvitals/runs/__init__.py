"""The run store: write while training, read while writing, survive a crash. Reading a run loads no torch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from netvitals.runs.checksum import Summary as Summary
    from netvitals.runs.exporting import FORMATS as FORMATS
    from netvitals.runs.exporting import export as export
    from netvitals.runs.finding import SEVERITIES as SEVERITIES
    from netvitals.runs.finding import Evidence as Evidence
    from netvitals.runs.finding import Finding as Finding
    from netvitals.runs.finding import Remedy as Remedy
    from netvitals.runs.finding import Severity as Severity
    from netvitals.runs.folder import runs_below as runs_below
    from netvitals.runs.following import Follower as Follower
    from netvitals.runs.following import file_state as file_state
    from netvitals.runs.lock import FileLock as FileLock
    from netvitals.runs.lock import FileLocked as FileLocked
    from netvitals.runs.reader import Run as Run
    from netvitals.runs.reader import open_run as open_run
    from netvitals.runs.reader import status_of as status_of
    from netvitals.runs.recovery import Recovered as Recovered
    from netvitals.runs.recovery import recover as recover
    from netvitals.runs.store import FILE_NAME as FILE_NAME
    from netvitals.runs.store import RunDamaged as RunDamaged
    from netvitals.runs.store import run_file as run_file
    from netvitals.runs.writer import RunWriter as RunWriter

_HOMES = {
    "checksum": ("Summary",),
    "exporting": (
        "FORMATS",
        "export",
    ),
    "finding": (
        "SEVERITIES",
        "Evidence",
        "Finding",
        "Remedy",
        "Severity",
    ),
    "folder": ("runs_below",),
    "following": (
        "Follower",
        "file_state",
    ),
    "lock": (
        "FileLock",
        "FileLocked",
    ),
    "reader": (
        "Run",
        "open_run",
        "status_of",
    ),
    "recovery": (
        "Recovered",
        "recover",
    ),
    "store": (
        "FILE_NAME",
        "RunDamaged",
        "run_file",
    ),
    "writer": ("RunWriter",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
__all__ = [
    "SEVERITIES",
    "Evidence",
    "Finding",
    "Run",
    "RunWriter",
    "export",
    "open_run",
    "recover",
    "run_file",
]


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"netvitals.runs has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(f"netvitals.runs.{_HOME[name]}"), name)
        return value
