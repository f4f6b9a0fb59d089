"""Judges of the appendix: the bounds that are printed, and the corrected ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals_lab import Row, Verdict, decide, erratum, fails, not_run

SCOPE = 16.0  # stiffness from which Theorem A.3 is stated to hold


def lemma_a1(rows: Sequence[Row]) -> Verdict:
    worst = max(rows, key=lambda r: r["printed_worst"])
    if worst["printed_worst"] <= 1:
        return decide(True, worst["printed_worst"], note="no counterexample was found")
    if any(r["corrected_violations"] for r in rows):
        return fails(max(r["corrected_worst"] for r in rows), note="the corrected bound is violated too")
    share = np.mean([r["printed_violations"] for r in rows])
    return erratum(
        max(r["corrected_worst"] for r in rows),
        note="the gate cannot be pulled out of Aᵀ: "
        f"{share:.1%} of random 4 × 4 draws violate the printed bound, by a factor of up to "
        f"{worst['printed_worst']:.1f}; (α/2)‖A‖₂‖h − y‖ holds in all, the largest ratio is the number here",
    )


def theorem_a2(rows: Sequence[Row]) -> Verdict:
    above = [r for r in rows if np.mean(r["active"]) > r["bound"]]
    wrong = sum(r["disagree"] for r in rows)
    last = max(rows, key=lambda r: r["alpha"])
    if not above:
        return decide(True, note="no stiffness with a mean active share above the printed bound was found")
    if wrong:
        return fails(wrong, note="pixels where the strip |z − c| < width and the gate disagree")
    first = above[0]
    return erratum(
        float(np.mean(last["active"])),
        note=f"at α = {first['alpha']:g} all gates are at least "
        f"{first['smallest']:.4f}, so F = {np.mean(first['active']):.3f} > {first['bound']:.3f}; the "
        f"printed bound tends to 1. Right: a gate is above ε exactly where |z − c| < ln(s₊/s₋)/α (no pixel "
        f"of {len(rows)} stiffness values disagrees), a strip that shrinks to nothing: {last['width']:.3f} "
        f"and F = {np.mean(last['active']):.3f} at α = {last['alpha']:g}",
    )


def theorem_a3(rows: Sequence[Row]) -> Verdict:
    """Inside the scope that the theorem prints; outside of it the facts say how it does."""
    worst, where = -np.inf, None
    inside = [r for r in rows if r["alpha"] >= SCOPE]
    for r in inside:
        one, effective = np.mean(r["one"]), np.mean(r["effective"])
        if one > 0 and effective / one - r["bound"] > worst:
            worst, where = effective / one - r["bound"], r
    if where is None:
        return not_run(f"no stiffness from {SCOPE:g} on leaves an active pixel in one layer")
    return decide(
        worst <= 0,
        float(worst),
        note=f"largest F²/F¹ minus 1/(1 + c₂α) over α ≥ {SCOPE:g}, the theorem's scope; at α = "
        f"{where['alpha']:g} with {where['second']} on top (F¹ {np.mean(where['one']):.3f}, F² "
        f"{np.mean(where['effective']):.3f}, bound {where['bound']:.4f}); its proof rests on A.2, which is "
        "false, and on gates that are nearly independent, which E26-independence judges",
    )
