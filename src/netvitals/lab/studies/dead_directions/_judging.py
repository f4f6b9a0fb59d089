"""How rows of these studies become verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from netvitals.lab.engine.judges import matches
from netvitals.lab.studies import Claim, Config, Expected, Row, Verdict, decide

SLOPE = 0.05  # tolerance of a fitted exponent (spec §5–6)


def check_is(*names: str) -> Callable[[Config], bool]:
    return matches(check=names)


def topic_is(*names: str) -> Callable[[Config], bool]:
    return matches(check="probe", topic=names)


def gap_of(rows: Sequence[Row]) -> tuple[float, int, str]:
    """Largest |measured − predicted| over rows that have both, how many there are, and where the largest is."""
    both = [r for r in rows if r.get("predicted") is not None and r.get("measured") is not None]
    missing = [r for r in rows if r.get("predicted") is not None and r.get("measured") is None]
    if missing:
        raise LookupError(
            f"{len(missing)} predicted exponents have no measurement, such as {missing[0]['layer']} of "
            f"{missing[0].get('topic')}"
        )
    if not both:
        raise LookupError("no exponent was both predicted and measured")
    worst = max(both, key=lambda r: abs(r["measured"] - r["predicted"]))
    where = f"{worst.get('options', '')} {worst.get('layer', '')}".strip()
    return abs(worst["measured"] - worst["predicted"]), len(both), where


def agree(*readouts: str, tolerance: float = SLOPE) -> Callable[[Sequence[Row]], Verdict]:
    """The predicted exponents are measured, at these readouts."""

    def judge(rows: Sequence[Row]) -> Verdict:
        gap, count, where = gap_of([r for r in rows if r.get("readout") in readouts])
        return decide(gap <= tolerance, gap, note=f"largest gap over {count} exponents, at {where}")

    return judge


def claim(
    study: str,
    number: str,
    statement: str,
    expected: Expected,
    judge: Callable[[Sequence[Row]], Verdict],
    section: str,
    uses: Callable[[Config], bool],
    **more: Any,
) -> Claim:
    return Claim(
        id=f"dead-directions/{number}",
        study=study,
        statement=statement,
        expected=expected,
        judge=judge,
        section=section,
        uses=uses,
        **more,
    )
