"""What claims ask of rows: runs of a condition, signs of a change, and the sentences that tell them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from netvitals_lab import Row, stats
from netvitals_lab.engine import judges
from netvitals_lab.papers.gate_density._recorder import POOLINGS, key
from netvitals_lab.papers.gate_density._training import SMOOTH

COINCIDE = "layers of one width, so element, site and channel pooling coincide"


def some(rows: Iterable[Row], quantity: str | None = "run", **where: Any) -> list[Row]:
    """Rows of a quantity that hold all of ``where``; there must be one."""
    return judges.some(rows, **(where if quantity is None else {"quantity": quantity, **where}))


def changes(runs: Sequence[Row], theta: float, pooling: str = "element", kind: str = "all") -> list[float]:
    """Change of density since before training, one number per run; runs without such sites are left out."""
    name = f"{key(theta, pooling, kind)} change"
    return [float(r[name]) for r in runs if name in r]


def acts(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(r["act"] for r in rows))


def split(runs: Sequence[Row], theta: float, pooling: str, kind: str = "all") -> tuple[bool, str]:
    """Whether ReLU falls and the smooth activations rise in every run, and the mean changes in points with their 95 %
    intervals, activation by activation."""
    facts, ok = [], True
    for act in acts(runs):
        values = changes([r for r in runs if r["act"] == act], theta, pooling, kind)
        if not values:
            continue
        smooth = act in SMOOTH
        good = sum(v > 0 if smooth else v < 0 for v in values)
        ok &= good == len(values)
        facts.append(f"{act} {average([100 * v for v in values])} ({good}/{len(values)} {'up' if smooth else 'down'})")
    return ok, ", ".join(facts)


def span(values: Sequence[float], form: str = "+.2f") -> str:
    """
    >>> span([1.0, -0.5]), span([2.0])
    ('-0.50 to +1.00', '+2.00')
    """
    low, high = min(values), max(values)
    return f"{low:{form}}" if low == high else f"{low:{form}} to {high:{form}}"


def average(values: Sequence[float], form: str = "+.2f") -> str:
    """Mean with its 95 % interval; of one value the value.

    >>> average([1.0, 2.0, 3.0]), average([2.0])
    ('+2.00 [-0.48, +4.48]', '+2.00')
    """
    if len(values) < 2:
        return f"{values[0]:{form}}"
    found = judges.difference(values)
    return f"{found.value:{form}} [{found.low:{form}}, {found.high:{form}}]"


def poolings(runs: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    """(pooling, kind of site) under which the runs can be read: each pooling over all sites, and every kind apart."""
    kinds = runs[0]["kinds"]
    return (*((p, "all") for p in POOLINGS), *((p, k) for k in kinds for p in POOLINGS if len(kinds) > 1))


def shrinkage(runs: Sequence[Row], name: str = "sigma") -> list[float]:
    """Relative change of a quantity over the run."""
    return [r[f"{name} last"] / r[f"{name} first"] - 1 for r in runs]


def errors(sites: Sequence[Row], of: str = "predicted") -> np.ndarray:
    """|predicted − measured| density of every site, in points."""
    return np.array([100 * abs(r[of] - r["density"]) for r in sites if of in r])


def test(values: Sequence[float]) -> str:
    """Exact sign test in words, both sides."""
    t = stats.sign_test(values)
    return f"p = {min(t.p_above, t.p_below):.2g} one-sided, {t.p_two_sided:.2g} two-sided"
