"""The paper's numbers against each other: what one passage prints, and what follows from another.

Nothing is trained. A check has the printed number with half a unit of its last digit, and the interval that follows
from the other printed numbers, with theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import nn

from netvitals_lab import Config, Resources, Row, Study
from netvitals_lab.papers.gate_density import reconstruction as rec
from netvitals_lab.papers.gate_density.setups import spectral_norm

Interval = tuple[float, float]
FIT = {"minimum": 0.782, "midpoint": 28.97, "width": 6.29}  # A.9.4: the sigmoid through IoU by stiffness
BOOTSTRAP, ONSET = 28.83, 17.2  # midpoint and onset of the transition
IOU = {20.0: (0.947, 0.007), 40.0: (0.830, 0.012), 60.0: (0.771, 0.018)}  # Table 7, mean and deviation
RATES = {16.0: 0.031, 20.0: 0.029, 25.0: 0.026, 40.0: 0.017, 60.0: 0.012}  # Table 8, c by stiffness
TABLE_6_ACTIVE = (0.470, 0.359, 0.328, 0.278, 0.270)  # at stiffness 20, by method


@dataclass(frozen=True)
class Passages:
    """Every check is run at every scale, unless some are named."""

    names: tuple[str, ...] = ()


def rounded(*values: float, unit: float) -> Interval:
    """The interval of numbers that are printed like these, with a last digit of ``unit``.

    >>> rounded(0.5, unit=0.1)
    (0.45, 0.55)
    """
    return min(values) - unit / 2, max(values) + unit / 2


def prelu_variance() -> Interval:
    """Var f' of a PReLU with its default slope cannot exceed a quarter of its range squared (Popoviciu)."""
    x = torch.tensor([-1.0, 1.0], requires_grad=True)
    nn.PReLU()(x).sum().backward()
    assert x.grad is not None
    return 0.0, float((x.grad.max() - x.grad.min()) ** 2 / 4)


def sign_test(successes: int, sides: int) -> float:
    """p of ``successes`` of as many, under an exact sign test.

    >>> sign_test(12, 1)
    0.000244140625
    """
    return sides * 0.5**successes


def p_of(correlation: float, n: int) -> float:
    """Two-sided p of a correlation over n points.

    >>> round(p_of(0.082, 10), 2)
    0.82
    """
    t = abs(correlation) * math.sqrt((n - 2) / (1 - correlation**2))
    return float(2 * stats.t.sf(t, n - 2))


def p_between(correlation: float, n: int, unit: float = 1e-3) -> Interval:
    found = [p_of(r, n) for r in rounded(abs(correlation), unit=unit)]
    return min(found), max(found)


def retained() -> float:
    """Share of the order parameter that the printed sigmoid keeps at the printed onset."""
    return 1 / (1 + math.exp((ONSET - FIT["midpoint"]) / FIT["width"]))


def success() -> Interval:
    """P[IoU > .7] by stiffness, for a Gaussian of the printed mean and deviation."""
    found = [float(stats.norm.cdf((mean - 0.7) / deviation)) for mean, deviation in IOU.values()]
    return min(found), max(found)


def power_law(rates: Mapping[float, float]) -> tuple[float, float]:
    """(c, exponent) of c·α^exponent through rates by stiffness, fitted in logarithms.

    >>> power_law({1.0: 2.0, 10.0: 0.2})
    (2.0, -1.0)
    """
    line = stats.linregress(np.log(list(rates)), np.log(list(rates.values())))
    return round(math.exp(line.intercept), 6), round(float(line.slope), 6)


def exponents() -> Interval:
    """The exponent over all ways in which the five rates may have been rounded to three digits."""
    ends = product(*(rounded(v, unit=1e-3) for v in RATES.values()))
    found = [power_law(dict(zip(RATES, rates)))[1] for rates in ends]
    return min(found), max(found)


def quotient(over: float, under: float, unit: float = 1e-3) -> Interval:
    (a, b), (c, d) = rounded(over, unit=unit), rounded(under, unit=unit)
    return a / d, b / c


def random_norms() -> Interval:
    found = [spectral_norm(rec.kernel("random_norm", seed=s)) for s in range(200)]
    return min(found), max(found)


def same(value: float) -> Callable[[], Interval]:
    return lambda: (value, value)


CHECKS: dict[str, tuple[Interval, Callable[[], Interval]]] = {
    "sides": (rounded(2.44e-4, unit=1e-6), lambda: (sign_test(12, 2),) * 2),  # as for Adam in §6.1
    "sweep": (rounded(6.1e-7, unit=1e-8), lambda: p_between(0.710, 37)),
    "conditions": (rounded(0.0045, unit=1e-4), lambda: p_between(0.731, 12)),
    "runs": ((114, math.inf), same(18 + 48 + 24)),
    "prelu": (rounded(0.261, unit=1e-3), prelu_variance),
    "shrinkage": (rounded(67, 77, unit=2), same(66.2)),  # "~67–77": to a point
    "wilcoxon": (rounded(0.0078, unit=1e-4), same(sign_test(20, 2))),
    "scale": (rounded(0.767, unit=1e-3), lambda: rounded(1.0, unit=1e-3)),
    "attack": ((0.0, 0.2), success),
    "widths": ((0.5, 1.5), same((BOOTSTRAP - ONSET) / FIT["width"])),
    "retained": (rounded(0.81, unit=1e-2), lambda: (retained(),) * 2),
    "midpoint": (rounded(0.893, unit=2e-3), lambda: rounded((1 + FIT["minimum"]) / 2, unit=1e-3)),
    "excess": (rounded(0.63, unit=1e-2), lambda: rounded(1.64 - 1, unit=1e-2)),
    "validity": (rounded(16, unit=0), same(40)),
    "active": (rounded(0.147, unit=1e-3), lambda: rounded(*TABLE_6_ACTIVE, unit=1e-3)),
    "exponent": (rounded(-0.674, unit=1e-3), exponents),
    "ratio 20": (rounded(0.531, unit=1e-3), lambda: quotient(0.078, 0.147)),
    "ratio 40": (rounded(0.302, unit=1e-3), lambda: quotient(0.018, 0.059)),
    "sobel": (rounded(4, unit=1), lambda: (spectral_norm(rec.kernel("sobel_x")),) * 2),
    "random kernel": (rounded(1.0, unit=0.1), random_norms),
    "pathways": (rounded(0.82, unit=1e-2), lambda: p_between(0.082, 14)),
    "amplification": (rounded(2.0, unit=0.1), same(1 / 0.72)),
}


def trials(p: Passages) -> list[Config]:
    return [{"check": name} for name in p.names or CHECKS]


def trial(config: Config) -> list[Row]:
    printed, follows = CHECKS[config["check"]]
    return [{"printed": list(printed), "follows": list(follows())}]


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    apart = [r["check"] for r in rows if not overlap(r["printed"], r["follows"])]
    return {"checks": len(rows), "printed and what follows do not overlap": ", ".join(apart)}


def overlap(a: Sequence[float], b: Sequence[float]) -> bool:
    """
    >>> overlap((0, 1), (1, 2)), overlap((0, 1), (1.1, 2))
    (True, False)
    """
    return bool(a[0] <= b[1] + 1e-12 and b[0] <= a[1] + 1e-12)


STUDIES = (
    Study(
        name="gate-density-arithmetic",
        paper="gate-density",
        title="N3 to N24: what one passage prints against what follows from another",
        scales=dict.fromkeys(("smoke", "small", "medium", "paper"), Passages()),
        settled="arithmetic of printed numbers: there is no larger run",
        resources=Resources(cpus=1, memory_gb=1, core_hours=0.01),
        trials=trials,
        trial=trial,
        summary=summary,
    ),
)
