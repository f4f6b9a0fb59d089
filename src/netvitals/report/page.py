"""The report: one HTML file that holds its data, its style and its script, and needs no network."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from netvitals.findings import Findings
from netvitals.report.model import report_model
from netvitals.report.shell import render_html, write_html


def write(
    source: Any, path: str | os.PathLike[str], *, title: str | None = None, findings: Findings | None = None
) -> Path:
    """Write the report of a run, a checkup, a frame or readings to ``path`` and return it.

    Args:
        source: what :func:`netvitals.findings.diagnose` takes.
        path: the HTML file; a folder gets ``report.html``. An existing file is replaced once the new one is whole.
        title: the headline; by default the run's name.
        findings: shown instead of a fresh diagnosis.

    Returns:
        The file that was written.

    >>> import tempfile; from netvitals.capture import Reading
    >>> write([Reading(i, "loss", "model", "loss", 1 / (1 + i)) for i in range(9)], tempfile.mkdtemp()).name
    'report.html'
    """
    return write_html(render(source, title=title, findings=findings), path, "report.html")


def render(source: Any, *, title: str | None = None, findings: Findings | None = None) -> str:
    """The page as text.

    Args:
        source: what :func:`netvitals.findings.diagnose` takes.
        title: the headline; by default the run's name.
        findings: shown instead of a fresh diagnosis.

    Returns:
        One HTML document.
    """
    return render_html("page.html.j2", report_model(source, title=title, findings=findings), script="page.js")
