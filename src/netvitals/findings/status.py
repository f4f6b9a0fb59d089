"""The status of a vital sign, in seven states. Green is said only where a rule looked at measurements of the last
steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from netvitals.findings.series import Measurements
from netvitals.runs import SEVERITIES, Finding

State = Literal["critical", "warning", "note", "good", "not asked", "stale", "not finite"]
STATES: tuple[State, ...] = ("critical", "warning", "note", "good", "not asked", "stale", "not finite")
WORDS: Mapping[str, str] = {
    "critical": "critical",
    "warning": "warning",
    "note": "note",
    "good": "checked and good",
    "not asked": "not asked",
    "stale": "stale",
    "not finite": "not finite",
}
READINGS_LATE = 3  # a vital sign may miss so many of its own intervals before its measurements are stale


@dataclass(frozen=True)
class Status:
    """How a vital sign stands, and why.

    Attributes:
        state: one of :data:`STATES`.
        why: the reason, in words; empty where the vital sign is read as it should be.

    >>> print(Status("stale", "last read at step 0, the run is at step 90"))
    stale (last read at step 0, the run is at step 90)
    """

    state: State
    why: str = ""

    def __str__(self) -> str:
        return WORDS[self.state] + (f" ({self.why})" if self.why else "")


def status_of_vitals(
    measurements: Measurements, findings: Iterable[Finding], checked: Sequence[Any], rules: Sequence[Any]
) -> dict[str, Status]:
    """The status of every vital sign that has measurements."""
    found = list(findings)
    asked = {c.rule for c in checked if c.series and not c.trouble}
    vitals = dict.fromkeys(vital for vital, _, _ in measurements.series)
    return {vital: _status(vital, measurements, found, asked, rules) for vital in vitals}


def _status(
    vital: str, measurements: Measurements, found: list[Finding], asked: set[str], rules: Sequence[Any]
) -> Status:
    """As grave as the most severe finding on its card or from its measurements."""
    mine = [s for s in measurements.series.values() if s.vital == vital]
    broken = [s for s in mine if len(s.values) and not np.isfinite(s.values[-1]) and np.isfinite(s.values).any()]
    never = [s for s in mine if len(s.values) and not np.isfinite(s.values).any()]
    last = max(int(s.steps[-1]) for s in mine)
    run = measurements.steps
    grave = min(
        (f for f in found if f.severity != "info" and (f.vital == vital or any(e.vital == vital for e in f.evidence))),
        key=lambda f: SEVERITIES.index(f.severity),
        default=None,
    )
    lost = _lost(measurements)
    if broken and (len(broken) * 2 >= len(mine) or vital == "loss" or lost is not None):
        first = min(int(s.steps[~np.isfinite(s.values)][0]) for s in broken)
        return Status("not finite", f"since step {first}")
    if len(never) == len(mine):
        return Status("not finite", "no finite number was ever read")
    if grave is not None:
        return Status(grave.severity, grave.rule)  # type: ignore[arg-type]
    if lost is not None and last < lost:
        return Status("stale", f"last read at step {last}; the loss is not finite since step {lost}")
    interval = _interval(mine)
    if run and run[-1] - last > READINGS_LATE * interval:
        return Status("stale", f"last read at step {last}, the run is at step {run[-1]}")
    judged = [r for r in rules if r.vital == vital or vital in r.also]
    ran = [r.name for r in judged if r.name in asked]
    if ran:
        return Status("good", ", ".join(ran))
    if judged:
        return Status("not asked", f"{judged[0].name} needs {judged[0]}")
    return Status("not asked", "no rule judges it")


def _lost(measurements: Measurements) -> int | None:
    """The step from which the loss is not finite to the end."""
    loss = measurements.loss
    if loss is None or not len(loss.values) or np.isfinite(loss.values[-1]):
        return None
    good = np.flatnonzero(np.isfinite(loss.values))
    return int(loss.steps[good[-1] + 1]) if len(good) else int(loss.steps[0])


def _interval(curves: Sequence[Any]) -> float:
    """Training steps between two measurements of a vital sign, by the series that is read most seldom."""
    gaps = [float(np.median(np.diff(s.steps))) for s in curves if len(s.steps) > 1]
    return max(gaps, default=float("inf"))
