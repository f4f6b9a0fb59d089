"""A run in the terminal: loss, vital signs at a glance, findings; drawn by rich, or in one line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from netvitals.findings import Findings, Measurements, diagnose, is_pooled
from netvitals.report import words
from netvitals.report.glossary import rank, sign
from netvitals.report.live.series import RunNumbers

if TYPE_CHECKING:
    from rich.console import RenderableType

BLOCKS = "▁▂▃▄▅▆▇█"
TONES = {"critical": "bold red", "warning": "bold yellow", "note": "bold blue", "info": "dim"}
STATE_TONES = {
    **TONES,
    "good": "green",
    "not asked": "dim",
    "stale": "dim",
    "not finite": "bold magenta",
}  # green is said only of what was checked
SHOWN = 6  # findings in a panel


def spark(values: Sequence[float] | np.ndarray, width: int = 40) -> str:
    """A curve in blocks.

    >>> spark([3.0, 2.0, 1.0, 1.0])
    '█▄▁▁'
    """
    good = np.asarray(values, float)
    good = good[np.isfinite(good)]
    if not len(good):
        return ""
    if len(good) > width:
        edges = np.linspace(0, len(good), width + 1).astype(int)
        good = np.add.reduceat(good, edges[:-1]) / np.diff(edges)
    low, span = good.min(), np.ptp(good) or 1.0
    return "".join(BLOCKS[int((v - low) / span * (len(BLOCKS) - 1))] for v in good)


class RunPanel:
    """What a run has to say now; :meth:`refresh` looks again."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._numbers = RunNumbers(path)
        self._name = str(path)
        self._found: Findings | None = None

    def refresh(self) -> None:
        """Take in what is new, and judge it."""
        if self._numbers.refresh() or self._found is None:
            self._found = diagnose(self._numbers.table)

    @property
    def status(self) -> str:
        """How the run stands."""
        return self._numbers.status

    def line(self) -> str:
        """Everything in one line, for a log file."""
        measurements = self._numbers.table
        loss = measurements.loss
        grave = next(iter(self._found or ()), None)
        worded = f"{grave.severity}: {grave.what}" if grave else "no critical finding or warning"
        last = "" if loss is None else f" loss {words.number(loss.last)}"
        return f"{self._name} {self.status} step {self._numbers.summary.last_step:,}{last}; {worded}"

    def __rich__(self) -> RenderableType:
        from rich.panel import Panel

        return Panel(
            body(self._numbers.table, self._found or Findings(())), title=f"{self.status} · {self._name}", expand=True
        )


def body(measurements: Measurements, found: Findings) -> RenderableType:
    """The inside of a panel: loss, one line a vital sign, the most severe findings."""
    from rich.console import Group
    from rich.table import Table as Grid
    from rich.text import Text

    parts: list[RenderableType] = []
    loss = measurements.loss
    if loss is not None:
        parts.append(Text.assemble(("loss ", "bold"), f"{words.number(loss.last)}  ", (spark(loss.values, 60), "cyan")))
    grid = Grid.grid(padding=(0, 2))
    for vital in sorted({v for v, _, _ in measurements.series} - {"loss"}, key=rank):
        row = _glance(measurements, vital)
        if row is not None:
            stand = found.status.get(vital)
            tone = STATE_TONES[stand.state] if stand is not None else "dim"
            grid.add_row(Text("●", style=tone), sign(vital).title, row[0], row[1], Text(row[2], style="cyan"))
    parts.append(grid)
    for f in list(found)[:SHOWN]:
        parts.append(Text.assemble((f"{f.severity:9}", TONES[f.severity]), f.what))
    if len(found) > SHOWN:
        parts.append(Text(f"… and {len(found) - SHOWN} more", style="dim"))
    return Group(*parts)


def _glance(measurements: Measurements, vital: str) -> tuple[str, str, str] | None:
    """Name, number now and curve of the first metric of a vital sign: the median over its sites."""
    known = {m for v, _, m in measurements.series if v == vital}
    name = next((h for h in sign(vital).headline if h in known), next(iter(sorted(known)), ""))
    curves = [c for (v, s, m), c in measurements.series.items() if (v, m) == (vital, name) and not is_pooled(s)]
    curves = curves or [c for (v, _, m), c in measurements.series.items() if (v, m) == (vital, name)]
    if not curves:
        return None
    steps = np.unique(np.concatenate([c.steps for c in curves]))
    table = np.full((len(curves), len(steps)), np.nan)
    for row, c in zip(table, curves):
        row[np.searchsorted(steps, c.steps)] = c.values
    table[~np.isfinite(table)] = np.nan
    kept = ~np.isnan(table).all(0)
    if not kept.any():
        return name, "not finite", ""
    middle = np.nanmedian(table[:, kept], axis=0)
    return name, words.number(float(middle[-1])), spark(middle, 24)
