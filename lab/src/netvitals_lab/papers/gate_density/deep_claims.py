"""Claims on deep networks of stiff sigmoids (Fig. 36): a front that shuts late layers, and the depth law from there on.

What the text leaves open decides: where weights are small and nothing normalises, late inputs are near zero, half a
unit from the centre of the sigmoid, inside its strip at stiffness 10 and outside at 20.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from netvitals_lab import Claim, Expected, Plot, Row, Series, Verdict, decide, not_run
from netvitals_lab.engine.judges import Setup, groups, matches, over_setups
from netvitals_lab.papers.gate_density.compounding import DEEP, NETWORKS

NETS = (
    "untrained networks of width 8: without norm with He's weights and with torch's default, and with batch norm",
    "the sigmoid about ½ and 0; Gaussian and uniform inputs; the last third of the layers is late",
    "the default weights, and the third instead of six layers, came after He's weights had not shown it",
)


def _front(rows: Sequence[Row]) -> Verdict:
    """Of both networks: the mean active share of the last third of the layers is above ½ at α = 10, about 0 at 20."""
    late = {(r["network"], r["alpha"]): float(np.mean(r["shares"][-(r["layers"] // 3) :])) for r in rows}
    by = {n: [late[n, 10.0], late[n, 20.0]] for n in NETWORKS}
    return decide(
        all(soft > 0.5 and stiff < 0.02 for soft, stiff in by.values()),
        max(stiff for _, stiff in by.values()),
        note="mean active share of the last third of the layers at α = 20, the larger of two untrained networks",
        facts={f"{n} at α = 10, 20": both for n, both in by.items()},
    )


def _deep_law(rows: Sequence[Row]) -> Verdict:
    stiff = [r for r in rows if r["alpha"] >= 20]
    good = {f"{r['network']}, α = {r['alpha']:g}: R², c": [r["r2"], r["rate"]] for r in stiff if r["r2"] is not None}
    if len(good) < len(stiff):
        return not_run(f"{len(stiff) - len(good)} of {len(stiff)} profiles are constant: there is nothing to fit")
    worst = min(r2 for r2, _ in good.values())
    return decide(worst > 0.5, worst, note="smallest R² of F₁/(1 + cα)^l; the paper .615 to .837", facts=good)


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


def _claim(
    name: str,
    statement: str,
    expected: str,
    judge: Callable[[Sequence[Row]], Verdict],
    plot: Callable[[Sequence[Row]], Plot] | None = None,
    question: str = "",
) -> Claim:
    return Claim(
        id=f"gate-density/{name}",
        study="gate-density-compounding",
        statement=statement,
        expected=Expected(direction=expected),
        judge=over_setups(judge, deep_setups),
        uses=matches(check="deep"),
        plot=plot,
        choices=NETS,
        question=question,
    )


CLAIMS = (
    _claim(
        "E31",
        "Deep networks of stiff sigmoids: late layers open at stiffness 10, shut at 20",
        "late layers > 0.5, then < 0.02",
        _front,
        _profiles,
        "Did the deep networks have the default weights of their library, and no norm?",
    ),
    _claim("E31-law", "From stiffness 20 on the depth law fits deep networks", "R² > 0.5", _deep_law),
)
