"""What the claims of this paper share: the tolerance of an exponent, and the rows that measure one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netvitals_lab import Measured, Row
from netvitals_lab.engine.judges import largest_gap, matches, some

SLOPE = 0.05  # tolerance of a fitted exponent (spec §5–6)


def exponents(rows: Sequence[Row], *readouts: str, **options: Any) -> Measured:
    """The largest gap of a measured exponent to the predicted one, at these readouts of networks with these options."""
    found = read(rows, *readouts, **options)
    gap, worst = largest_gap(found)
    where = f"{worst['options']} {worst['layer']}"
    return Measured(gap, "largest gap of an exponent", facts={"exponents": predicted(found), "at": where})


def read(rows: Sequence[Row], *readouts: str, **options: Any) -> list[Row]:
    """Rows of these readouts (of G by default), of networks with these options."""
    holds = matches(**options)
    return [r for r in some(rows, readout=readouts or ("G",)) if holds(r["options"])]


def predicted(rows: Sequence[Row]) -> int:
    """How many rows have a prediction."""
    return sum(r.get("predicted") is not None for r in rows)
