"""The claim on attacks: judged over budgets and over what counts as recovered, with what is sure beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from netvitals_lab import Claims, Plot, Row, Series, Verdict, decide, not_judged, stats
from netvitals_lab.engine.judges import Setup, column, means, over_setups, some
from netvitals_lab.engine.verdict import Fact
from netvitals_lab.papers.gate_density.privacy import ATTACKS, CLOSE, CLOSED

CRITERIA = (CLOSE, 0.05, 0.001)  # squared errors of a pixel below which a picture may count as recovered
MOVED = 0.05  # of the pictures: a share that changes by more with the budget has not converged


def budgets(rows: Sequence[Row]) -> list[int]:
    """Numbers of iterations, the longest first."""
    return sorted({r["iterations"] for r in rows if r["attack"] in ATTACKS}, reverse=True)


def recovered(rows: Sequence[Row], limit: float = CLOSE) -> list[Row]:
    return [{**r, "recovered": r["error"] < limit} for r in rows]


def moving(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Shares that still change from the last budget but one to the last, by attack and stiffness."""
    last, before = budgets(rows)[:2]
    found: dict[str, list[float]] = {}
    for attack in ATTACKS:
        few, many = (means(recovered(rows), "recovered", "alpha", attack=attack, iterations=n) for n in (before, last))
        for alpha in few:
            if abs(many[alpha] - few[alpha]) > MOVED:
                found[f"{attack} at α = {alpha:g}, {before} and {last} iterations"] = [few[alpha], many[alpha]]
    return found


def by_budget(rows: Sequence[Row]) -> dict[Setup, list[Row]]:
    """Budgets × what counts as recovered; of attacks that have converged the last budget alone."""
    counts = budgets(rows) if moving(rows) else budgets(rows)[:1]
    return {
        (f"{n} iterations", f"squared error below {limit:g}"): recovered(some(rows, iterations=n), limit)
        for n, limit in product(counts, CRITERIA)
    }


def regression(rows: Sequence[Row], attack: str) -> stats.Logistic | None:
    """Of recovery on log α; none where stiffness separates the outcomes, or there is one outcome only."""
    mine = some(rows, attack=attack)
    try:
        return stats.logistic([np.log(r["alpha"]) for r in mine], [int(r["recovered"]) for r in mine])
    except ValueError:
        return None


def falls(rows: Sequence[Row]) -> bool:
    """A significant negative slope of iDLG; where stiffness separates the outcomes, the direction of the separation."""
    fit = regression(rows, "idlg")
    if fit is not None:
        return fit.coefficients[1] < 0 and fit.p[1] < 0.05
    yes, no = ([r["alpha"] for r in some(rows, attack="idlg") if r["recovered"] is is_so] for is_so in (True, False))
    return bool(yes) and bool(no) and max(yes) <= min(no)


def flat(rows: Sequence[Row]) -> bool:
    """Inverting Gradients recovers nearly all, or its slope cannot be told from none."""
    fit = regression(rows, "inverting")
    return float(np.mean(column(rows, "recovered", attack="inverting"))) > 0.99 or (fit is not None and fit.p[1] > 0.05)


def stiffness(rows: Sequence[Row]) -> Verdict:
    """In one set-up: iDLG falls with stiffness, Inverting Gradients does not."""
    if not any(r["recovered"] for r in rows):
        return not_judged("no attack recovers any picture")
    share = {a: means(rows, "recovered", "alpha", attack=a) for a in ATTACKS}
    idlg = share["idlg"]
    fits = {a: regression(rows, a) for a in ATTACKS}
    return decide(
        falls(rows) and flat(rows),
        idlg[max(idlg)] - idlg[min(idlg)],
        note="share of pictures that iDLG recovers at the largest stiffness minus that at the smallest",
        facts={
            **{f"{a} by stiffness {', '.join(f'{x:g}' for x in v)}": list(v.values()) for a, v in share.items()},
            **{
                f"{a}: slope on log α, p": [float(fit.coefficients[1]), float(fit.p[1])]
                for a, fit in fits.items()
                if fit is not None
            },
        },
    )


def shares(rows: Sequence[Row]) -> Plot:
    """Figure 14: the share that is recovered by stiffness, dashed with fewer iterations."""
    longest = budgets(rows)[0]
    series = [
        Series(f"{a}, {n} iterations", list(share), list(share.values()), line=True, dashed=n != longest)
        for a in ATTACKS
        for n in budgets(rows)
        for share in (means(recovered(rows), "recovered", "alpha", attack=a, iterations=n),)
    ]
    sure = means(recovered(rows), "recovered", "alpha", attack=CLOSED)
    return Plot(
        "stiffness", "share recovered", [*series, Series(CLOSED, list(sure), list(sure.values()), line=True)], True
    )


claim = Claims("gate-density", study="gate-density-privacy")


@claim(
    "C18",
    "iDLG slope < 0, Inverting Gradients flat",
    plot=shares,
    effect="how the share of recovered pictures changes with stiffness, by attack, budget and criterion",
    choices=(
        "an untrained toy victim of our own, digits of 8 × 8 pixels",
        "Adam at 0.05, then 0.01, on three budgets, each four times the one before",
        "recovered is a squared error of a pixel below 0.01; 0.05 and 0.001 are asked too",
    ),
    question="How many iterations did each attack have, and had it converged at every stiffness?",
)
def privacy(rows: Sequence[Row]) -> Verdict:
    """Stiffness makes iDLG fail more often, and does nothing against Inverting Gradients

    Over the set-ups, with the convergence stated, and what an attacker is sure to have.
    """
    found, still = over_setups(stiffness, by_budget)(rows), moving(rows)
    certain = some(rows, attack=CLOSED)
    facts: dict[str, Fact] = {
        "closed form: least share recovered at a stiffness": min(
            means(recovered(certain), "recovered", "alpha").values()
        ),
        "closed form: largest squared error": max(column(certain, "error")),
        **still,
    }
    text = (
        "the attacks have converged"
        if not still
        else "the attacks have not converged: shares still change with the budget"
    )
    sure = "sure is that the gradients hold the picture at every stiffness, for the closed form finds it"
    return replace(found, note=f"{found.note}; {text}; {sure}", facts=facts | dict(found.facts))
