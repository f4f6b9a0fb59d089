"""Claims on hidden-state models: the rate primitive, λ and m, and the singular fluctuation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals_lab import Claims, Measured, Plot, Row, Series, Verdict, below, not_run
from netvitals_lab.engine.judges import groups, some
from netvitals_lab.papers.dead_directions.latent import NAME

LAM = 0.03  # of a λ that is read off volumes: the gap between the values that compete is a quarter


def _scatter(rows: Sequence[Row]) -> Plot:
    models = list(dict.fromkeys(r["model"] for r in rows))
    series = [
        Series(
            name,
            [r["lam"] for r in some(rows, model=name)],
            [r["lam_found"] for r in some(rows, model=name)],
            [r["stderr"] for r in some(rows, model=name)],
        )
        for name in models
    ]
    return Plot("λ by hand", "λ from the volume of {K < ε}", series)


claim = Claims("dead-directions", study=NAME)


@claim("C2-latent", below(0.01, "known orders"), uses={"check": "order"})
def orders(rows: Sequence[Row]) -> Measured:
    """the rate primitive holds for hidden Markov and Boltzmann models: order of each direction, F t²/K = 2k²"""
    wrong = [r["model"] for r in rows if r["found"] != r["order"]]
    gap = max(abs(r["ratio"] / (2 * r["order"] ** 2) - 1) for r in rows if r["order"])
    facts = {"models": len(rows), "without an order, as they should be": sum(r["order"] is None for r in rows)}
    if wrong:
        return Measured(len(wrong), f"another order than the known one: {', '.join(wrong)}", facts=facts, ok=False)
    return Measured(gap, "largest gap of the Fisher–KL ratio to 2k²; every order is right", facts=facts)


@claim("C36-latent", "known λ and m", uses={"check": "order"})
def neighbourhood(rows: Sequence[Row]) -> Measured:
    """λ and m are read off one point of a hidden-state model, where two sheets or one fibre pass through it"""
    read = [r for r in rows if r["lam_found"] is not None]
    wrong = [r["model"] for r in read if (r["lam_found"], r["m_found"]) != (r["lam"], r["m"])]
    note = "models whose λ and m were read off the point, and are right"
    facts = {"not of a form that is read": sorted(r["model"] for r in rows if r["lam_found"] is None)}
    return Measured(len(read) - len(wrong), note, facts=facts, ok=not wrong and len(read) >= 4)


@claim("C40-latent", "within 0.03", uses={"check": "volume"}, plot=_scatter)
def volumes(rows: Sequence[Row]) -> Measured | Verdict:
    """volumes of hidden Markov and Boltzmann models near a truth without hidden structure have the known λ and m"""
    if rows[0]["draws"] < 1_000_000:
        return not_run("a volume of so few draws is not known to 0.03: run it at a larger scale")
    found = {}
    for model, part in groups(rows, "model").items():
        mean = float(np.mean([r["lam_found"] for r in part]))
        found[model] = (mean, abs(mean - part[0]["lam"]), [r["m_found"] for r in part] == [part[0]["m"]] * len(part))
    facts: dict[str, object] = {
        f"{model} (λ = {some(rows, model=model)[0]['lam']:g})": round(v[0], 4) for model, v in found.items()
    }
    gap = max(v[1] for v in found.values())
    if not all(v[2] for v in found.values()):
        facts["m is not the known one"] = sorted(m for m, v in found.items() if not v[2])
    ok = gap < LAM and all(v[2] for v in found.values())
    return Measured(gap, f"largest gap of λ; {LAM} would do, and every m has to be right", facts=facts, ok=ok)


@claim("C37-latent", "within 4 standard errors", uses={"check": "fluctuation"})
def fluctuation(rows: Sequence[Row]) -> Measured:
    """the singular fluctuation of a hidden Markov model whose states merge is ν(2), and ν(2) + ½ with the mean"""
    worst, above, tight, words = 0.0, np.inf, 0.0, {}
    for (length, mean), part in groups(rows, "length", "mean").items():
        value = float(np.mean([r["nu"] for r in part]))
        error = float(np.sqrt(np.mean([r["stderr"] ** 2 for r in part]) / len(part)))
        worst = max(worst, abs(value - part[0]["wanted"]) / error)
        above = min(above, (value - part[0]["data_free"]) / error)
        tight = max(tight, error / part[0]["wanted"])
        words[f"{length} symbols, split{' and mean' if mean else ''}"] = f"{value:.4f} ± {error:.4f}"
    edge = max(r["edge"] for r in rows)
    words |= {"expected": f"{rows[0]['wanted']:.4f}, with the mean ½ more", "posterior at the grid's edge": edge}
    note = f"largest gap to ν(2), or ν(2) + ½, in standard errors; at least {above:.0f} above the part without data"
    return Measured(worst, note, facts=words, ok=worst < 4 and tight < 0.05 and edge < 1e-3)
