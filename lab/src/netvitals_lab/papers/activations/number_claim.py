"""A claim that one number of the activation tables has one value."""

from __future__ import annotations

from typing import Any

from netvitals_lab import Claim, Expected, within
from netvitals_lab.engine.judges import matches, one

STUDY = "activations"
GATES, SADDLE, DRIFT = "gate-density", "saddle-escape", "weight-drift"


def number(
    name: str,
    paper: str,
    section: str,
    statement: str,
    quantity: str,
    expected: float,
    tolerance: float,
    uses: dict[str, Any],
    **where: Any,
) -> Claim:
    """A claim that one number of the tables has one value."""
    want = Expected(expected, tolerance=tolerance)
    return Claim(
        f"activations/{name}",
        STUDY,
        statement,
        want,
        section=section,
        paper=paper,
        uses=matches(**uses),
        judge=lambda rows: within(float(one(rows, quantity=quantity, **where)["value"]), want),
    )


def classed(a: str) -> dict[str, Any]:
    return {"table": "class", "activation": a}
