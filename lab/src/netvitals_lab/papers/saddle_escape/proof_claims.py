"""Claims on cones, shells, stages and rows: what Appendices C and E say beside their theorems."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals_lab import Claims, Measured, Row, below, stats
from netvitals_lab.engine.judges import column, one, some
from netvitals_lab.papers.saddle_escape.proofs import NAME


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    return float(stats.loglog_slope(x, y).value)


claim = Claims(
    "saddle-escape", study=NAME, choices=("networks of tanh and depth 4 where rows and stages are followed",)
)


@claim(
    "T16o",
    "drift at the next order",
    uses={"question": "cone"},
    correction="F_1 s^(q+1) is −(2(q−1)/(q+1)) λ' X_1^(q+1) (`Expansion.invariant`).",
)
def invariant(rows: Sequence[Row]) -> Measured:
    """Off the balanced ray the series with F_1 from the homological equation nKΩF = −R is an invariant

    Erratum E13: the homological operator has a part that acts on y, which the printed one leaves out.
    """
    lifted = max(abs(r["invariant"] - r["next order"]) for r in rows)
    left = max(abs(r["printed"] - r["first order"]) for r in rows)
    return Measured(
        lifted,
        note="largest gap of the drift's order to min(L + 2(q−1), 2L), off the ray, where I_1 has X_1^(q+1); the "
        "printed s^(q+1)(1+y_1)^((q−1)/2) drifts as X_1² − X_L² itself does (E13)",
        facts={"printed form: gap to L + q − 1": left, "cases": len(rows)},
        ok=all(abs(r["printed"] - r["next order"]) < 0.3 for r in rows),
        right=lifted < 0.1,
    )


@claim("T16u", "orders q and 2(q−1)", uses={"question": "cone"})
def near_identity(rows: Sequence[Row]) -> Measured:
    """U_i = X_i + O(s^q), and U̇_i = Ψ Π U_m with one Ψ for all i"""
    shift = max(abs(r["shift of U"] - r["q"]) for r in rows)
    form = min(r["product form"] - 2 * (r["q"] - 1) for r in rows)
    return Measured(
        shift,
        note="gap of the order of U_1 − X_1 to q; U̇_i over the product of the others is the same for all i up to the "
        "second order, 2(q−1), with the corrected invariant",
        facts={"smallest surplus of that order": form},
        ok=shift < 0.1 and form > -0.2,
    )


@claim(
    "T12i",
    "order 2",
    uses={"question": "shell"},
    correction="The error is of order η in the middle of a shell and of order 1 at its edges.",
)
def interior(rows: Sequence[Row]) -> Measured:
    """Inside a shell the estimate errs by C L η²"""
    eta = column(rows, "eta")
    order = [slope(eta, [r["middle"][j] for r in rows]) for j in range(3)]
    return Measured(
        max(order),
        note="order in η of the estimate's error in the middle of a shell, where it is best: η, not η²; at the edges "
        "the error stays near 0.29 (E15)",
        facts={"by shell": order, "at an edge, smallest η": one(rows, eta=min(eta))["edge"]},
        ok=all(abs(o - 2) < 0.1 for o in order),
        right=all(abs(o - 1) < 0.1 for o in order),
    )


@claim("T12s", "to leading order", uses={"question": ("shell", "shell law")})
def summed(rows: Sequence[Row]) -> Measured:
    """Shells integrate to the constant, the logarithm and the power"""
    laws, shells = some(rows, question="shell law"), some(rows, question="shell")
    at = lambda r, eps: one(laws, r=r, eps=eps)["over shell"]
    small, middle = (min(column(laws, "eps")), sorted(set(column(laws, "eps")))[1])
    power = max(abs(at(r, small) - 1) for r in (3, 4))
    logs = [(1 - at(2, e)) * np.log(0.8 / e) for e in (middle, small)]
    steady = abs(at(1, small) / at(1, middle) - 1)
    parts = [-r["integral"] * np.log(1 / r["eta"]) for r in shells]
    return Measured(
        power,
        note="largest departure from the power law for r ≥ 3 at the smallest ε; for r = 2 the departure is c/ln(1/ε), "
        "for r = 1 the integral is a constant that shell 1 alone does not give. A sum of shells that are η apart "
        "departs by c/ln(1/η), not by η² (E15)",
        facts={"r = 2: c": logs[1], "r = 1: over shell 1": at(1, small), "shells η apart: c": parts},
        ok=power < 1e-2 and abs(logs[1] / logs[0] - 1) < 0.02 and steady < 1e-2,
    )


@claim("E6f", below(0.01, "within 1 %"), uses={"question": "forces"})
def forced(rows: Sequence[Row]) -> Measured:
    """F_k = c_k β_k ρ^(L−1) and H_k = O(ρ^(2(L−1))) in a network whose earlier modes are fitted"""
    gap = max(abs(r[k] - 1) for r in rows for k in ("forcing over law", "drag over law"))
    rho = max(abs(r["rho of the forcing"] / r["rho"] - 1) for r in rows)
    facts = {"ρ_op from the forcing, over the block's scale, minus 1": rho}
    return Measured(gap, "F_k and H_k of a network over their laws, minus 1", facts=facts)


@claim(
    "E6o",
    "the same time",
    uses={"question": "forces"},
    correction="The velocity is K (ρ² + c²)^((L−1)/2); forcing and self-drive do not add up.",
)
def stage_ode(rows: Sequence[Row]) -> Measured:
    """The stage ODE with forcing and self-drive integrates to I_L(θ)/Γ_k"""
    law, ode = (max(abs(r[f"chain over ({n})"] - 1) for r in rows) for n in (53, 65))
    return Measured(
        law,
        note="time of a chain from amplitude 0 over the law (53), minus 1. The ODE (65) does not integrate to it: the "
        "square root of (ρ² + c²)^(L−1) is not ρ^(L−1) + c^(L−1) unless L = 3 (E25)",
        facts={"over the ODE, minus 1": ode},
        ok=ode < 0.01,
        right=law < 1e-3,
    )


@claim(
    "E6t",
    "3.3 and 12.5",
    uses={"question": ("stages", "forces")},
    correction="With one output the linear target is one direction, Σ β_k v_k, and one escape learns all modes.",
)
def together(rows: Sequence[Row]) -> Measured:
    """t_{k+1}/t_k = (β_k/β_{k+1})(ρ_k/ρ_{k+1})^(L−2): modes escape one after another

    With one output the linear target is one direction, Σ β_k v_k: there is one escape for all modes.
    """
    stages, blocks = some(rows, question="stages"), some(rows, question="stages", start="blocks")
    ratios = [np.array(r["times"][1:]) / r["times"][0] for r in stages]
    own = [[t and t / r["own"][0] for t in r["own"]] for r in blocks]
    law = np.array(stages[0]["law"][1:]) / stages[0]["law"][0]
    furthest = float(max(np.abs(r - 1).max() for r in ratios))
    speed = min(r["fastest"] / r["forcing"] for r in some(rows, question="forces"))
    return Measured(
        furthest,
        note="largest |t_k/t_1 − 1| of the second and third mode in whole networks: all modes are learnt in one "
        "escape. The state of stage k is no saddle, for the blocks that are fitted turn towards v_k at a rate that "
        "does not fall with ρ (E12, E26)",
        facts={
            "law for t_2/t_1, t_3/t_1": law.tolist(),
            "own amplitude of a block reaches 3ε, over the first's time": str(own),
            "fastest velocity over F_k, at least": speed,
        },
        ok=all(np.abs(r / law - 1).max() < 0.2 for r in ratios),
        right=furthest < 0.1 and speed > 10,
    )


@claim(
    "R25d",
    "strictly increasing",
    uses={"question": "rates"},
    correction="At the symmetric saddle the degrees do not couple; from a spread start all but degree 1 vanishes with "
    "ε.",
)
def degrees(rows: Sequence[Row]) -> Measured:
    """Rates of truncations in the degree of the rows' distribution rise strictly, in a network

    Schur: at a point that all permutations fix, degrees cannot couple.
    """
    even, spread = some(rows, spread=0.0), some(rows, spread=0.3)
    rise = max(max(r["rates"]) / min(r["rates"]) - 1 for r in even)
    first = [r["rates"][1] / r["rates"][0] - 1 for r in spread]
    rest = [r["rates"][-1] / r["rates"][1] - 1 for r in spread]
    return Measured(
        max(rest),
        note="what degrees above 1 add to the rate of a network whose rows are spread by 0.3. At the symmetric saddle "
        "degrees do not couple, so the loop gain is reducible and all truncations have one rate; from a spread "
        "start degree 1 adds a few percent, and the rest vanishes with ε (E27)",
        facts={
            "rise over all degrees at the symmetric saddle": rise,
            "degree 1 adds": first,
            "the rest adds": rest,
            "rate of the centred rows over Kε^(L−2)": [r["centred rate"] for r in even],
        },
        ok=rise > 1e-9,
        right=rise < 1e-9 and max(r["coupling"] for r in even) < 1e-9 and max(rest) < 1e-3 < min(first),
    )


@claim(
    "R25r",
    "order 0",
    uses={"question": "residuals"},
    correction="Relative to the mean drift the variance is of order ε^(q−1), the fourth moment of its square.",
)
def closing(rows: Sequence[Row]) -> Measured:
    """Row moments beyond a cut leave residuals of the order of the mean drift itself"""
    eps = column(rows, "eps")
    order = {k: slope(eps, column(rows, k)) for k in ("variance", "fourth moment", "joint")}
    return Measured(
        order["variance"],
        note="order in ε, relative to the mean drift, of what a closure without the rows' variance leaves out: q − 1, "
        "and twice that without their fourth moment. At the order of the drift itself there is only the covariance of "
        "what a unit reads with what it gives on, which is no moment of rows (E27)",
        facts={**{f"order of {k}": v for k, v in order.items()}, "joint, relative": column(rows, "joint")},
        ok=order["variance"] < 0.5,
        right=abs(order["variance"] - 2) < 0.2 and abs(order["fourth moment"] - 4) < 0.4 and abs(order["joint"]) < 0.1,
    )


@claim("R25v", "none; some", uses={"question": "rows"})
def silent(rows: Sequence[Row]) -> Measured:
    """The row-variance channel is silent under symmetric descent and opens under random starts"""
    even, spread = some(rows, spread=0.0), some(rows, spread=0.1)
    still = max(max(r["escape"], r["after SGD"]) for r in even)
    kept = [r["escape"] / r["start"] for r in spread]
    return Measured(
        still,
        note="spread over mean of the rows at the escape from a symmetric start, also under SGD; from a random start "
        "it stays, as a share of the mean smaller than at the start, and at He initialisation block means hold little",
        facts={
            "spread at the escape over that at the start": kept,
            "of He rows a mean keeps": column(spread, "kept by means, He"),
            "at their escape": column(spread, "kept at its escape"),
        },
        ok=still < 1e-9 and min(kept) > 0.1,
    )
