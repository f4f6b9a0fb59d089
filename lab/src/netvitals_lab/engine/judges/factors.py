"""One claim, several data sets or networks: the claim is one, and what varies is a factor.

as the claim says at every level → holds;  at some or none → fails, or not reproduced where a level says so
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from netvitals._plot import Plot
from netvitals_lab.engine.study import Row
from netvitals_lab.engine.verdict import Status, Verdict

Judge = Callable[[Sequence[Row]], Verdict]
WORST: tuple[Status, ...] = (
    "not-run",
    "not-judged",
    "fails",
    "not-reproduced",
    "underspecified",
    "erratum",
    "reproduced",
)


def by_factor(judge: Judge, factor: str) -> Judge:
    """A judge that asks ``judge`` at every level of ``factor``, a name in the rows.

    >>> from netvitals_lab.engine.verdict import decide
    >>> rows = [{"data": "digits", "rise": 0.2}, {"data": "teacher,inputs=64", "rise": -0.1}]
    >>> print(by_factor(lambda rows: decide(rows[0]["rise"] > 0, rows[0]["rise"]), "data")(rows))
    fails: digits 0.2; teacher -0.1; as the claim says on 1 of 2: digits
    """

    def judged(rows: Sequence[Row]) -> Verdict:
        levels = dict.fromkeys(str(r[factor]) for r in rows)
        return together({label(v): judge([r for r in rows if str(r[factor]) == v]) for v in levels})

    return judged


def at_level(plot: Callable[[Sequence[Row]], Plot], factor: str, level: str) -> Callable[[Sequence[Row]], Plot]:
    """The picture of one level of a factor; of the rows' first level where ``level`` was not run."""

    def drawn(rows: Sequence[Row]) -> Plot:
        wanted = level if any(str(r[factor]) == level for r in rows) else str(rows[0][factor])
        return plot([r for r in rows if str(r[factor]) == wanted])

    return drawn


def label(level: str) -> str:
    """The name of a level, without its options.

    >>> label("teacher,inputs=64,classes=10")
    'teacher'
    """
    return level.split(",")[0]


def together(found: Mapping[str, Verdict]) -> Verdict:
    """One verdict of those at the levels of a factor."""
    first = next(iter(found.values()))
    if len(found) == 1:
        return first
    agreeing = [name for name, v in found.items() if v.status in ("holds", "reproduced")]
    statuses = [v.status for v in found.values()]
    status: Status = next((s for s in WORST if s in statuses), "holds")
    powers = [v.power for v in found.values() if v.power is not None]
    counted = f"as the claim says on {len(agreeing)} of {len(found)}" + (f": {', '.join(agreeing)}" if agreeing else "")
    words = {name: replace(v, status="holds", power=None).words for name, v in found.items()}
    notes = [counted, *(f"{name}: {text}" for name, text in words.items() if text)]
    return replace(
        first,
        status=status,
        measured="; ".join(f"{name} {v.number}".strip() for name, v in found.items()),
        uncertainty=None,
        interval=None,
        note="; ".join(notes),
        facts={},
        power=max(powers) if status == "not-reproduced" and powers else None,
        span=first.span if status == "underspecified" else None,
        setups=None,
    )
