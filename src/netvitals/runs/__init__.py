"""The run store: write while training, read while writing, survive a crash."""

from netvitals.runs.checksum import Summary as Summary
from netvitals.runs.exporting import FORMATS as FORMATS
from netvitals.runs.exporting import export
from netvitals.runs.finding import SEVERITIES, Evidence, Finding
from netvitals.runs.finding import Remedy as Remedy
from netvitals.runs.finding import Severity as Severity
from netvitals.runs.following import Follower as Follower
from netvitals.runs.following import file_state as file_state
from netvitals.runs.lock import FileLock as FileLock
from netvitals.runs.lock import FileLocked as FileLocked
from netvitals.runs.reader import Run, open_run
from netvitals.runs.reader import status_of as status_of
from netvitals.runs.recovery import Recovered as Recovered
from netvitals.runs.recovery import recover
from netvitals.runs.store import RunDamaged as RunDamaged
from netvitals.runs.store import run_file
from netvitals.runs.writer import RunWriter

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
