"""The report: one HTML file that holds its data, its style and its script, and needs no network.

The page that draws it is the one that ``netvitals view`` serves; what that asks a server for, this file has inside.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from netvitals.findings import Findings, Measurements, diagnose, table
from netvitals.report import words
from netvitals.report.arrays import drawn
from netvitals.report.live import api
from netvitals.report.live.series import Numbers
from netvitals.report.page_shell import render_html, write_html
from netvitals.runs import Run

CELLS = 600_000  # numbers embedded in one page at most (about 3 MB)
COLUMNS = (40, 300)  # of a picture: at least, at most
ROWS = 20_000  # numbers in the tables that need no script


def write(
    source: Any, path: str | os.PathLike[str], *, title: str | None = None, findings: Findings | None = None
) -> Path:
    """Write the HTML report of a run, a checkup, a frame or measurements, and return its path.

    Args:
        source: what :func:`netvitals.findings.diagnose` takes.
        path: the HTML file; a folder gets ``report.html``. An existing file is replaced once the new one is whole.
        title: the headline; by default the run's name.
        findings: findings to show; by default they are computed from ``source``.

    Returns:
        The file that was written.

    >>> import tempfile; from netvitals.capture import Measurement
    >>> write([Measurement(i, "loss", "model", "loss", 1 / (1 + i)) for i in range(9)], tempfile.mkdtemp()).name
    'report.html'
    """
    return write_html(render(source, title=title, findings=findings), path, "report.html")


def render(source: Any, *, title: str | None = None, findings: Findings | None = None) -> str:
    """Return the report of a run, a checkup, a frame or measurements as HTML text.

    Args:
        source: what :func:`netvitals.findings.diagnose` takes.
        title: the headline; by default the run's name.
        findings: findings to show; by default they are computed from ``source``.

    Returns:
        One HTML document.

    >>> from netvitals.capture import Measurement
    >>> page = render([Measurement(step, "loss", "", "loss", 1 / (1 + step)) for step in range(3)], title="A first run")
    >>> "<title>" in page and "A first run" in page
    True
    """
    return render_html("page.html.j2", report_model(source, title=title, findings=findings), script="app")


@dataclass(frozen=True, kw_only=True)
class ReportModel:
    """What ``page.html.j2`` knows: what is said where no script runs, and what the script draws."""

    title: str
    head: dict[str, Any]
    tables: tuple[tuple[str, tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...]], ...]
    binned: str
    data: Any  # JSON, as markup


def report_model(source: Any, *, title: str | None = None, findings: Findings | None = None) -> ReportModel:
    """The model of a run's or a checkup's page."""
    measurements = table(source)
    own = getattr(source, "findings", None)
    judged = findings if findings is not None else own if isinstance(own, Findings) else diagnose(measurements)
    status = source.status if isinstance(source, Run) else str(measurements.meta.get("status", "finished"))
    columns = int(np.clip(CELLS / max(1, len(measurements.series)), *COLUMNS)) // 2 * 2
    numbers = Numbers(measurements, columns)
    kind = "run" if len(measurements.steps) > 1 else "checkup"
    name = title or (source.name if isinstance(source, Run) else _title(measurements, kind))
    head = api.head(numbers, judged, title=name, status=status, original=source)
    return ReportModel(
        title=name,
        head=head,
        tables=tuple(_tables(measurements, head["vitals"])),
        binned="" if numbers.width == 1 else f"; a column of a picture is the mean of up to {numbers.width} steps",
        data=_embedded(numbers, head),
    )


def _title(measurements: Measurements, kind: str) -> str:
    model = measurements.meta.get("model")
    return f"{kind.capitalize()} of {model}" if isinstance(model, str) else kind.capitalize()


def _embedded(numbers: Numbers, head: dict[str, Any]) -> Any:
    """What the script draws, as JSON that no module name can break out of."""
    from markupsafe import Markup

    pairs = {(v["vital"], m["name"]) for v in head["vitals"] for m in v["metrics"]}
    if head["loss"] is not None:
        pairs.add(("loss", head["loss"]["metric"]))
    stated: dict[str, Any] = {"head": head}
    for vital, name in sorted(pairs):
        stated[f"metric?vital={_quoted(vital)}&metric={_quoted(name)}"] = api.metric(numbers, vital, name)
    arrays: dict[str, list[Any]] = {}
    for (_, site, _), array in list(numbers.table.arrays.items())[:400]:
        arrays.setdefault(site, []).append(drawn(array))
    stated["arrays"] = arrays
    text = api.to_json(stated)
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _quoted(text: str) -> str:
    """As ``encodeURIComponent`` writes it."""
    from urllib.parse import quote

    return quote(text, safe="!~*'()")


def _tables(measurements: Measurements, vitals: Sequence[dict[str, Any]]) -> Any:
    """The last numbers of every site, for a reader without script."""
    left = ROWS
    for vital in vitals:
        names = tuple(m["name"] for m in vital["metrics"])
        sites = dict.fromkeys(site for (v, site, _) in measurements.series if v == vital["vital"])
        rows = []
        for site in sites:
            left -= len(names)
            if left < 0:
                break
            curves = [measurements.get(vital["vital"], site, name) for name in names]
            rows.append((site or "model", tuple("" if c is None else words.number(c.last) for c in curves)))
        yield vital["title"], (*names, *(f"{a} (array)" for a in vital["arrays"])), tuple(rows)
