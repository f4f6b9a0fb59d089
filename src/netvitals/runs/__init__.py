"""The run store: write while training, read while writing, survive a crash."""

from netvitals.runs.checksum import Summary
from netvitals.runs.exporting import FORMATS, export
from netvitals.runs.finding import SEVERITIES, Evidence, Finding, Remedy, Severity

# for other packages of netvitals, not public
from netvitals.runs.following import Follower as Follower
from netvitals.runs.following import file_state as file_state
from netvitals.runs.lock import FileLock, FileLocked
from netvitals.runs.reader import Run, open_run, status_of
from netvitals.runs.recovery import Recovered, recover
from netvitals.runs.store import RunDamaged, run_file
from netvitals.runs.writer import RunWriter

__all__ = [
    "FORMATS",
    "SEVERITIES",
    "Evidence",
    "FileLock",
    "FileLocked",
    "Finding",
    "Recovered",
    "Remedy",
    "Run",
    "RunDamaged",
    "RunWriter",
    "Severity",
    "Summary",
    "export",
    "open_run",
    "recover",
    "run_file",
    "status_of",
]
