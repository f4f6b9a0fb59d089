"""How rows of these studies become verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from netvitals_lab import Claim, Config, Expected, Row, Verdict
from netvitals_lab.engine.judges import at_most, largest_gap, matches, some

SLOPE = 0.05  # tolerance of a fitted exponent (spec §5–6)


def check_is(*names: str) -> Callable[[Config], bool]:
    return matches(check=names)


def topic_is(*names: str) -> Callable[[Config], bool]:
    return matches(check="probe", topic=names)


def exponents(*readouts: str, **options: Any) -> Callable[[Sequence[Row]], Verdict]:
    """The predicted exponents are measured, at these readouts of networks with these options."""

    def judge(rows: Sequence[Row]) -> Verdict:
        found = read(rows, *readouts, **options)
        gap, worst = largest_gap(found)
        where = f"{worst['options']} {worst['layer']}"
        return at_most(gap, SLOPE, "largest gap of an exponent", facts={"exponents": predicted(found), "at": where})

    return judge


def read(rows: Sequence[Row], *readouts: str, **options: Any) -> list[Row]:
    """Rows of these readouts (of G by default), of networks with these options."""
    holds = matches(**options)
    return [r for r in some(rows, readout=readouts or ("G",)) if holds(r["options"])]


def predicted(rows: Sequence[Row]) -> int:
    """How many rows have a prediction."""
    return sum(r.get("predicted") is not None for r in rows)


def claim(
    study: str,
    number: str,
    statement: str,
    expected: Expected,
    judge: Callable[[Sequence[Row]], Verdict],
    uses: Callable[[Config], bool],
    **more: Any,
) -> Claim:
    return Claim(
        id=f"dead-directions/{number}",
        study=study,
        statement=statement,
        expected=expected,
        judge=judge,
        uses=uses,
        **more,
    )
