"""The run store: write while training, read while writing, survive a crash."""

from netvitals.runs.exporting import FORMATS, export
from netvitals.runs.finding import SEVERITIES, Evidence, Finding, Severity
from netvitals.runs.reader import Run, open_run
from netvitals.runs.store import run_file
from netvitals.runs.writer import RunWriter

__all__ = [
    "FORMATS",
    "SEVERITIES",
    "Evidence",
    "Finding",
    "Run",
    "RunWriter",
    "Severity",
    "export",
    "open_run",
    "run_file",
]
