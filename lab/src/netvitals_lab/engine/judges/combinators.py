"""Seven ways in which numbers decide a claim. Each takes what was measured and returns the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from netvitals_lab import stats
from netvitals_lab.engine.claim import Expected, within
from netvitals_lab.engine.study import Row
from netvitals_lab.engine.verdict import Value, Verdict, decide, erratum, fails

Z = 4.5  # standard errors by which a mean may miss its expectation; chance exceeds it once in 150,000 times


def at_most(value: float, limit: float, note: str = "", **more: Any) -> Verdict:
    """``holds`` if the value does not exceed the limit.

    >>> at_most(0.2, 0.1).status
    'fails'
    """
    return decide(value <= limit, value, note=note, **more)


def near(value: float, wanted: float, tolerance: float, note: str = "", **more: Any) -> Verdict:
    """``holds`` if the value lies within the tolerance of the one wanted.

    >>> near(0.51, 0.5, 0.02).status
    'holds'
    """
    return within(value, Expected(wanted, tolerance=tolerance), note=note, **more)


def all_near(
    found: Mapping[str, Sequence[float]], wanted: Mapping[str, tuple[float, float]], note: str = "", **more: Any
) -> Verdict:
    """``holds`` if all values of every quantity lie within its tolerance of the one wanted.

    >>> all_near({"order": [2.01], "ratio": [1.2]}, {"order": (2, 0.1), "ratio": (1, 0.1)}).measured
    1.2
    """
    gaps = {q: max(abs(v - value) / tolerance for v in found[q]) for q, (value, tolerance) in wanted.items()}
    worst = max(gaps, key=gaps.__getitem__)
    facts = {f"{q} ({value:g} ± {tolerance:g})": found[q][0] for q, (value, tolerance) in wanted.items()}
    return decide(gaps[worst] <= 1, found[worst][0], note=note, facts=facts, **more)


def corrected(printed: bool, right: bool, measured: Value, note: str = "", otherwise: str = "", **more: Any) -> Verdict:
    """What becomes of a statement for which there is a correction."""
    if printed:
        return decide(True, measured, note=note, **more)
    return erratum(measured, note=note, **more) if right else fails(measured, note=otherwise or note, **more)


def sign_of(mean: stats.Mean, sign: int, z: float = 3.0, note: str = "", **more: Any) -> Verdict:
    """``holds`` if a mean is on the claimed side of zero by more than ``z`` standard errors.

    >>> sign_of(stats.Mean(-0.5, 0.1, 8), -1).status
    'holds'
    """
    return decide(sign * mean.z(0) > z, mean.value, mean.stderr, note, **more)


def slope_of(
    x: Sequence[float],
    y: Sequence[float],
    wanted: float,
    tolerance: float,
    *,
    log: bool = False,
    note: str = "",
    **more: Any,
) -> Verdict:
    """``holds`` if the slope of a straight line through the points (of their logarithms) is the one wanted.

    >>> slope_of([1, 2, 4, 8], [3, 12, 48, 192], wanted=2.0, tolerance=1e-6, log=True).status
    'holds'
    """
    line = stats.loglog_slope(x, y) if log else stats.slope(x, y)
    return near(line.value, wanted, tolerance, note, uncertainty=line.stderr, **more)


def agree(rows: Iterable[Row], limit: float = Z, note: str = "", **more: Any) -> Verdict:
    """``holds`` if every row's ``mean`` is within ``limit`` standard errors of what it has as ``expected``."""
    distances = [abs(departure(row)) for row in rows]
    words = note or f"largest of {len(distances)} comparisons, in standard errors"
    return decide(max(distances) < limit, max(distances), note=words, **more)


def departure(row: Row) -> float:
    """(mean − expected) / standard error; a gap of rounding only is none."""
    gap = row["mean"] - row["expected"]
    if abs(gap) < 1e-12:  # some quantities are the same in every draw
        return 0.0
    return gap / row["stderr"] if row["stderr"] else float("inf")
