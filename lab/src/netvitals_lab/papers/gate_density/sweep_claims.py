"""Claims on thirteen activations: C6 beyond the four, E6 direction by z_low, C14 dose and response."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from netvitals_lab import Claims, Measured, Row, Verdict, fails, stats
from netvitals_lab.engine.claim import PAIRS
from netvitals_lab.engine.judges import at_level
from netvitals_lab.papers.gate_density import _pictures as pictures
from netvitals_lab.papers.gate_density._reading import acts, changes, some, span, test
from netvitals_lab.papers.gate_density._recorder import key
from netvitals_lab.papers.gate_density.drift_claims import TABLE_4, THETA, z_low
from netvitals_lab.papers.gate_density.sweep import LADDER, SOFTPLUS, THIRTEEN
from netvitals_lab.papers.gate_density.trajectories import NINE, TEACHER

STUDY = "gate-density-sweep"


def _rank(x: np.ndarray, y: np.ndarray) -> float:
    return stats.spearman(x, y).value if np.ptp(x) > 0 and np.ptp(y) > 0 else 0.0


claim = Claims("gate-density", study=STUDY, seeds=PAIRS)


@claim("E6", "6 rise, 3 fall", factor="data")
def family(rows: Sequence[Row]) -> Measured:
    """ReLU, leaky ReLU and Softplus 50 decline, Softplus 20 and all smoother ones rise

    E6: trend by z_low; the sign changes inside the softplus family.
    """
    rho = {a: [r[f"{key(THETA)} rho"] for r in some(rows, act=a) if r[f"{key(THETA)} rho"] is not None] for a in NINE}
    down = [a for a in NINE if rho[a] and max(rho[a]) < 0]
    up = [a for a in NINE if rho[a] and min(rho[a]) > 0]
    expected_down = {a for a, (_, way) in TABLE_4.items() if way < 0}
    facts = ", ".join(f"{a} ({z_low(a):+.3f}) {span(v)}" for a, v in rho.items() if v)
    sizes = [c for a in NINE if a not in expected_down for c in changes(some(rows, act=a), THETA)]
    return Measured(
        f"{len(up)} rise, {len(down)} fall",
        note=f"ρ of density with the epoch, θ = .10, (z_low): {facts}; the rising ones displaced "
        f"{span([100 * c for c in sizes])} points, {test(sizes)}",
        ok=set(down) == expected_down and len(up) == len(NINE) - len(down),
    )


@claim(
    "C14",
    "ρ = −0.71 over seeds, −0.73 over conditions; negative, p < 0.05",
    factor="data",
    plot=at_level(
        partial(
            pictures.by_condition,
            x="variance",
            y=f"{key(THETA)} change",
            x_label="Var f' at initialisation",
            y_label="change of density, θ = 0.10",
        ),
        "data",
        TEACHER,
    ),
)
def dose(rows: Sequence[Row]) -> Measured:
    """The smoother the activation, the more density rises: Var f' and trend correlate negatively"""
    runs = [r for r in some(rows) if r["act"] in THIRTEEN and r["act"] != "prelu"]
    trend = [r for r in runs if r[f"{key(THETA)} rho"] is not None]
    index, rho, size = ([r[name] for r in trend] for name in ("variance", f"{key(THETA)} rho", f"{key(THETA)} change"))
    seeds, amount = stats.spearman(index, rho), stats.spearman(index, size)
    by = {a: [r for r in trend if r["act"] == a] for a in acts(trend)}
    means = np.array(
        [
            [np.mean([r[n] for r in rs]) for n in ("variance", f"{key(THETA)} rho", f"{key(THETA)} change")]
            for rs in by.values()
        ]
    )
    whole = stats.spearman(means[:, 0], means[:, 1])
    interval = stats.bootstrap(
        np.column_stack([index, size]),
        lambda m: _rank(m[:, 0], m[:, 1]),
        method="percentile",
        resamples=500,
        groups=[r["act"] for r in trend],
    )
    learned = [r for r in some(rows) if r["act"] == "prelu"]
    return Measured(
        seeds.value,
        note=f"index Var f' against trend, θ = .10, over "
        f"seeds: {seeds}; over conditions: {whole}; against the change itself: {amount}, bootstrap over "
        f"conditions {interval.low:+.2f} to {interval.high:+.2f}. PReLU left out: index "
        f"{span([r['variance'] for r in learned], '.3f')} (slope 0.25 opens every gate at θ ≤ .10, so its "
        "density cannot rise)",
        ok=max(seeds.value, whole.value) < 0 and max(seeds.p, whole.p) < 0.05,
    )


@claim("C6-softplus", "no flip", factor="data", effect="change of density at θ = .01 and at .10")
def stiff_threshold(rows: Sequence[Row]) -> Measured | Verdict:
    """The sign does not depend on the threshold, for Softplus 50 either"""
    runs = some(rows, act="softplus:50")
    low, high = (changes(runs, t) for t in (0.01, THETA))
    flips = sum(a * b < 0 for a, b in zip(low, high))
    note = (
        f"softplus:50 changes by {span([100 * v for v in low])} points at θ = .01 and "
        f"{span([100 * v for v in high])} at .10; the Gaussian law gives a rise at .01 and a fall at .10 for μ = "
        f"−.05 and a σ that shrinks to a third; here μ ends at {span([r['mu last'] for r in runs], '+.3f')}"
    )
    return (
        Measured(f"{flips} of {len(runs)} runs flip", note, ok=flips == 0)
        if flips == 0
        else fails(f"{flips} of {len(runs)} runs flip", note=note)
    )


@claim("X-transition", "between the neighbours of β* on the ladder", factor="data")
def transition(rows: Sequence[Row]) -> Measured:
    """Inside softplus the trend turns at β* = ln((1−θ)/θ)/|μ|

    β at which the change of density turns, between neighbours of the ladder, against ln((1−θ)/θ)/|μ|.
    """
    facts, ok = [], True
    for theta in (0.01, THETA):
        stiff = sorted(
            (
                (
                    float(a.split(":")[1]),
                    np.mean(changes(some(rows, act=a), theta)),
                    np.mean([r["mu last"] for r in some(rows, act=a)]),
                )
                for a in (*SOFTPLUS, *LADDER)
            ),
            reverse=True,
        )
        turn = next(((a, b) for a, b in pairwise(stiff) if a[1] < 0 < b[1]), None)
        ladder = ", ".join(f"{b:g}: {100 * d:+.2f}" for b, d, _ in stiff)
        mu = float(np.mean([m for *_, m in stiff]))
        expected = math.log((1 - theta) / theta) / -mu if mu < 0 else math.inf
        within = turn is not None and turn[1][0] <= expected <= turn[0][0]
        ok &= within or (turn is None and expected > stiff[0][0])
        facts.append(
            f"θ = {theta:g}: "
            + (f"turns between β = {turn[0][0]:g} and {turn[1][0]:g}" if turn else "no turn on the ladder")
            + ", predicted "
            + (f"{expected:.0f} at μ = {mu:+.3f}" if mu < 0 else f"none, for μ = {mu:+.3f} is not negative")
            + f" (change in points by β {ladder})"
        )
    return Measured("as predicted" if ok else "elsewhere", "; ".join(facts), ok=ok)
