"""Claims on the rate beside the learning coefficient."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import isotonic_regression

from netvitals_lab import Claims, Measured, Plot, Row, Series, Verdict, above, at_most, not_run
from netvitals_lab.engine.judges import groups, some
from netvitals_lab.papers.dead_directions.sampled import NAME, TARGETS


def crossing(steps: Sequence[float], values: Sequence[float], level: float) -> float:
    """The step at which a rising reading passes a level: its isotonic fit, straight between checkpoints; NaN if never.

    >>> crossing([0, 10, 20, 30], [0.0, 0.4, 0.2, 1.0], 0.65)
    25.0
    """
    fit = isotonic_regression(np.asarray(values, dtype=float)).x
    above = int(np.searchsorted(fit, level))
    if above in (0, len(fit)):
        return float("nan")
    low, high = fit[above - 1], fit[above]
    return float(steps[above - 1] + (level - low) / (high - low) * (steps[above] - steps[above - 1]))


def transitions(run: Sequence[Row]) -> tuple[list[float], list[float]]:
    """Steps at which the rate and the sampled λ see each coordinate leave zero."""
    steps = [r["step"] for r in run]
    rate = [crossing(steps, [-r["orders"][i] for r in run], -1.5) for i in range(len(TARGETS))]
    lam = [r["sampled"] for r in run]
    levels = [len(TARGETS) / 4 + (i + 0.5) / 4 for i in range(len(TARGETS))]
    return rate, [crossing(steps, lam, level) for level in levels]


def _both(rows: Sequence[Row]) -> Plot:
    run = sorted(some(rows, seed=min(r["seed"] for r in rows)), key=lambda r: r["step"])
    steps = [r["step"] for r in run]
    orders = [
        Series(
            f"order along coordinate {i + 1}", steps, [r["orders"][i] for r in run], line=True, dashed=True, right=True
        )
        for i in range(len(TARGETS))
    ]
    lam = Series("λ by sampling", steps, [r["sampled"] for r in run], [r["stderr"] for r in run], line=True)
    return Plot("step", "learning coefficient λ", (lam, *orders), right_label="order k̂ by the rate")


def _few(rows: Sequence[Row]) -> str:
    return "so few draws say little: run it at a larger scale" if rows[0]["draws"] < 200 else ""


claim = Claims("dead-directions", study=NAME)


@claim("LLC-same", "within 4 standard errors", uses={"check": "fibre"}, obstacle=_few)
def same_coefficient(rows: Sequence[Row]) -> Measured | Verdict:
    """on smooth fibres the rate and the learning coefficient give the same λ"""
    exact = max(abs(r["rate"] - r["known"]) for r in rows)
    far = [abs(r["sampled"] - r["rate"]) / r["stderr"] for r in rows]
    gap = float(np.mean([abs(r["sampled"] - r["rate"]) for r in rows]))
    facts = {"mean gap": gap, "the rate's own gap to the known λ": exact, "models": len(rows)}
    ok = exact < 1e-9 and max(far) < 4 and gap < 0.05
    return Measured(max(far), "largest gap between the two, in standard errors of the sampled one", facts=facts, ok=ok)


@claim("LLC-crossing", "λ above 1/(2k)", uses={"check": "crossing"}, obstacle=_few)
def apart(rows: Sequence[Row]) -> Measured | Verdict:
    """where sheets cross, the rate along one ray is not λ, and the learning coefficient is"""
    far = max(abs(r["sampled"] - r["at_this_n"]) / r["stderr"] for r in rows)
    ray = max(abs(r["rate"] * 2 * r["sheets"] - 1) for r in rows)
    least = min((r["sampled"] - r["rate"]) / r["stderr"] for r in rows)
    facts = {
        f"{k} sheets: sampled, ray": [float(np.mean([r[c] for r in some(rows, sheets=k)])) for c in ("sampled", "rate")]
        for k in sorted({r["sheets"] for r in rows})
    }
    note = (
        "smallest gap of the sampled λ above the ray's 1/(2k), in standard errors; it agrees with the exact posterior"
    )
    return Measured(least, note, facts=facts, ok=far < 4 and ray < 0.01 and least > 3)


@claim("LLC-timing", at_most(1, "within a checkpoint"), uses={"check": "stages"}, plot=_both)
def timing(rows: Sequence[Row]) -> Measured | Verdict:
    """the two measurements agree on when a stage of learning begins"""
    gaps: list[float] = []
    words = []
    for seed, run in sorted(groups(rows, "seed").items()):
        run = sorted(run, key=lambda r: r["step"])
        rate, lam = transitions(run)
        if not np.isfinite([*rate, *lam]).all():
            return not_run(f"not every stage was seen in seed {seed}: run it at a larger scale")
        gaps += [abs(a - b) / run[0]["every"] for a, b in zip(rate, lam)]
        words.append(", ".join(f"{a:.0f} and {b:.0f}" for a, b in zip(rate, lam)))
    if len(words) < 3:
        return not_run("one run is no comparison of times: run it at a larger scale")
    facts = {"steps by the rate and by sampling": words, "mean gap": float(np.mean(gaps)), "transitions": len(gaps)}
    note = "largest gap between the times of a transition, in spacings of the checkpoints"
    return Measured(max(gaps), note, facts=facts)


@claim(
    "LLC-cost",
    above(10),
    uses={"check": ("fibre", "crossing", "stages")},
    choices=("four chains on a ladder of temperatures; fewer draws would cost less and say less",),
)
def cost(rows: Sequence[Row]) -> Measured:
    """a rate costs a few passes over the data, a sampled coefficient many"""
    ratio = [r["sampled_cost"] / r["rate_cost"] for r in rows]
    wide = float(np.median([r["stderr"] for r in rows]))
    facts = {"largest": max(ratio), "standard error that this buys, median": wide}
    return Measured(min(ratio), "passes over the data of sampling over those of a rate", facts=facts)
