"""Claims about the rate primitive and Watanabe's inventory: C1–C5, C35–C41, N3, N4, and errata."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from netvitals_lab import Claims, Expected, Measured, Plot, Row, Series
from netvitals_lab.engine.judges import column, groups, largest_gap, one, some
from netvitals_lab.papers.dead_directions._judging import SLOPE

NU = {
    1: 0.5,
    2: 0.172973,
    3: 0.278366,
    4: 0.137856,
    5: 0.206135,
    6: 0.116661,
    7: 0.167386,
    8: 0.102108,
    9: 0.142516,
    10: 0.091344,
}
SHIFT = {0: 0.17297, 1: 0.20218, 2: 0.21529, 3: 0.22277}
HOT = {(2, 0.1): 0.14038, (2, 2.0): 0.19311, (3, 0.1): 0.17811, (3, 10.0): 0.46023, (4, 2.0): 0.16879}


def orders(rows: Sequence[Row]) -> Plot:
    """One model per order: the directional Fisher, and dashed the slope 2(k − 1)."""
    first = {r["order"]: r for r in reversed(rows)}
    series = []
    for tone, (k, r) in enumerate(sorted(first.items())):
        t, f = np.array(r["ts"]), np.array(r["fisher"])
        line = f[-1] * (t / t[-1]) ** (2 * (k - 1))
        series += [
            Series(f"{r['model']}: k = {k}", r["ts"], r["fisher"], tone=tone),
            Series(f"{r['model']}: k = {k}", r["ts"], line.tolist(), line=True, dashed=True, tone=tone),
        ]
    return Plot("t", "directional Fisher; dashed t^{2(k − 1)}", series, log_x=True, log_y=True)


def spectrum(rows: Sequence[Row]) -> Plot:
    """The reduced-rank spectrum over t, coloured by class, and a family with a tangential eigenvalue."""
    tones = {"transversal": 1, "tangential": 2, "constant": 0, "unclear": 7}
    shown = [some(rows, what="partition")[0], some(rows, what="family")[0]]
    return Plot(
        "t",
        "eigenvalues of the Fisher matrix",
        [
            Series(label, r["ts"], values, line=True, tone=tones[label])
            for r in shown
            for label, values in r["spectrum"]
            if label in tones
        ],
        log_x=True,
        log_y=True,
    )


STUDY = "dead-directions-inventory"


claim = Claims("dead-directions", study=STUDY)


@claim("C1", Expected(0.0, SLOPE), uses={"check": "primitive"}, plot=orders)
def slopes(rows: Sequence[Row]) -> Measured:
    """the directional Fisher decays as t^{2(k−1)}"""
    gap, worst = largest_gap(rows, "estimate", "order")
    facts = {"models": len(rows), "worst": worst["model"]}
    return Measured(2 * gap, "largest error of the Fisher slope", facts=facts)


@claim("C2", Expected(0.0, 0.02), uses={"check": "primitive"})
def ratios(rows: Sequence[Row]) -> Measured:
    """F t²/K → 2k²"""
    gap, worst = largest_gap([{**r, "predicted": 2 * r["order"] ** 2} for r in rows], "ratio", relative=True)
    note = "largest relative error of F t²/K against 2k²; the Hessian's 2k(2k−1) would be off by a third at k = 2"
    return Measured(gap, note, facts={"models": len(rows), "worst": worst["model"]})


@claim("C3", "order 2", uses={"check": "dead units"})
def activations(rows: Sequence[Row]) -> Measured:
    """a dead hidden unit has order 2, whatever the activation"""
    slope = max(abs(v - 2) for v in column(rows, "slope"))
    second = column(rows, "order").count(2)
    return Measured(
        slope,
        "largest error of the slope: four activations, Gaussian and softmax",
        facts={"cases": len(rows), "of order 2": second},
        ok=second == len(rows) and slope <= SLOPE and max(abs(v - 8) for v in column(rows, "ratio")) <= 0.16,
    )


@claim("C4", "9/12/3 and 16/24/4", uses={"check": "selection"}, plot=spectrum)
def partition(rows: Sequence[Row]) -> Measured:
    """the spectrum falls into zero, constant, tangential and transversal"""
    parts, families = some(rows, what="partition"), some(rows, what="family")
    right = all(r["found"] == r["expected"] for r in parts)
    facts = all(r["transversal"] == [r["k"]] and r["tangential"] == [r["j"]] for r in families)
    return Measured(
        ", ".join(f"{r['model']}: {'/'.join(map(str, r['found']))}" for r in parts),
        note="zero/constant/transversal; tangential and transversal told apart in "
        + ", ".join(r["model"] for r in families),
        ok=right and facts,
    )


@claim("C5", "at least", uses={"check": "selection"})
def turning(rows: Sequence[Row]) -> Measured:
    """the transversal eigenvector turns to v as t^{|j−(k−1)|}"""
    families = some(rows, what="family")
    least = min(r["angle_slope"] - abs(r["j"] - (r["k"] - 1)) for r in families)
    return Measured(
        least,
        "exponent of the angle above |j − (k−1)|, smallest",
        facts={f"exponent of {r['model']}": r["angle_slope"] for r in families},
        ok=least > -SLOPE and max(column(families, "angle")) < 0.02,
    )


@claim("X10", Expected(0.0, SLOPE), uses={"check": "two means"})
def two_means(rows: Sequence[Row]) -> Measured:
    """merging two components has exponent 2"""
    return Measured(largest_gap(rows)[0], "merging means at weights 0.5, 0.3, 0.1: exponents 2 and 0")


@claim("X10-three", Expected(0.0, SLOPE), uses={"check": "three means"})
def three_means(rows: Sequence[Row]) -> Measured:
    """merging one pair of three components has exponent 2 too"""
    note = "one pair of three merges, equal and unequal weights: exponents 2, 0, 0"
    return Measured(largest_gap(rows)[0], note, facts={"measured": column(rows, "measured")})


@claim("X11", Expected(0.0, SLOPE), uses={"check": "merge"})
def merge(rows: Sequence[Row]) -> Measured:
    """with a free weight the merge has exponents 6, 2, 0"""
    note = "three parameters: exponents 6, 2, 0 at weights 0.5 and 0.3"
    return Measured(largest_gap(rows)[0], note, facts={"measured": column(rows, "measured")})


@claim("C35", Expected(0.0, 1e-6), uses={"check": "crossings"})
def crossing(rows: Sequence[Row]) -> Measured:
    """the orders of a crossing follow from r + 1 rays"""
    worst = max(max(r["error"], abs(r["generic"])) for r in rows)
    return Measured(worst, "orders of crossings from r + 1 rays", facts={"crossings": len(rows)})


@claim("C36", "all", uses={"check": "crossings"})
def lambda_m(rows: Sequence[Row]) -> Measured:
    """λ = 1/(2 max k), m = how often"""
    ok = all((r["lam"], r["m"]) == (1 / (2 * max(r["ks"])), r["ks"].count(max(r["ks"]))) for r in rows)
    ray = next(r for r in rows if r["ks"] == [1, 1])
    return Measured(
        f"{len(rows)} of {len(rows)}" if ok else "some differ",
        f"at a crossing a generic ray would say {ray['ray']:g} for u₁u₂; λ is {ray['lam']:g}, m = {ray['m']}",
        ok=ok,
    )


@claim("C36-rank", "consistent", uses={"check": "reduced rank"})
def reduced_rank(rows: Sequence[Row]) -> Measured:
    """reduced-rank regression in closed form"""
    ok = all(r["symmetric"] and r["below"] and r["regular"] for r in rows)
    eg = next(r for r in rows if r["shape"] == [4, 3, 4, 2])
    return Measured(
        f"{len(rows)} shapes",
        note="closed form: symmetric in inputs "
        "and outputs, never above half the dimension, equal to it at full rank; (4, 3, 4) of rank 2 has 7, 2",
        ok=ok and (eg["lam"], eg["m"]) == (7, 2),
    )


@claim("C37", Expected(0.0, 1e-4), uses={"check": "fluctuation"})
def nu_table(rows: Sequence[Row]) -> Measured:
    """ν(k), k = 1 … 10"""
    worst = max(abs(one(rows, what="table", k=k)["nu"] - v) for k, v in NU.items())
    return Measured(worst, "largest error over k = 1 … 10")


@claim("C37-universal", "within 4 standard errors", uses={"check": "fluctuation"})
def universal(rows: Sequence[Row]) -> Measured:
    """ν does not depend on the leading coefficient"""
    found = some(rows, what="simulation")
    worst = max(abs(r["nu"] - r["predicted"]) / abs(r["nu_stderr"]) for r in found)
    tight = max(abs(r["nu_stderr"]) / r["predicted"] for r in found) < 0.06  # or any value would do
    return Measured(
        worst,
        "largest gap in standard errors, two coefficients",
        facts={f"k = {k}": column(group, "nu") for k, group in groups(found, "k").items()},
        ok=worst < 4 and tight,
    )


@claim("C38", "within 4.5 standard errors", uses={"check": "fluctuation"})
def losses(rows: Sequence[Row]) -> Measured:
    """E[G] = S + λ/n and E[T] = S + (λ − 2ν)/n"""
    found = some(rows, what="simulation")
    general = max(abs(r["general"] - r["lam"]) / r["general_stderr"] for r in found)
    training = max(abs(r["training"] - r["lam"] + 2 * r["predicted"]) / r["training_stderr"] for r in found)
    worst = max(general, training)
    tight = max(abs(r[k]) for r in found for k in ("general_stderr", "training_stderr")) < 0.04
    note = "n(E[G] − S) against λ and n(E[T] − S) against λ − 2ν, largest gap in standard errors at n = 1000"
    return Measured(worst, note, ok=0 <= worst < 4.5 and tight)


@claim("C39", Expected(0.0, 1e-4), uses={"check": "fluctuation"})
def prior(rows: Sequence[Row]) -> Measured:
    """a prior |u|^h shifts λ to (h+1)/(2k), and ν with it"""
    worst = max(abs(one(rows, what="prior", h=h)["nu"] - v) for h, v in SHIFT.items())
    ok = all(one(rows, what="prior", h=h)["lam"] == (h + 1) / 4 for h in SHIFT)
    return Measured(worst, "ν(2) under priors |u|^h, h = 0 … 3; λ = (h+1)/4", ok=ok and worst <= 1e-4)


@claim("C40", "λ and m recovered", uses={"check": "volumes"})
def volume(rows: Sequence[Row]) -> Measured:
    """volumes of {K < ε} and of high curvature"""
    scans, tied, high = (some(rows, what=what) for what in ("scan", "tied", "high curvature"))
    off = largest_gap(scans, "lam")[0]
    return Measured(
        off,
        "largest error of λ from the volume of {K < ε}",
        facts={
            **{f"λ and m of {r['model']}": [r["lam"], r["m"]] for r in scans},
            "high-curvature volumes": column(high, "fisher"),
            "predicted": column(high, "predicted"),
        },
        ok=off < 0.03
        and all(r["m"] == r["m_predicted"] for r in scans)
        and all(abs(r["measured"] - r["predicted"]) < 4 * r["stderr"] for r in tied)
        and largest_gap(high, "fisher", relative=True)[0] < 0.05,
    )


@claim("C41", Expected(0.0, 1e-8), uses={"check": "curvature"})
def closed_forms(rows: Sequence[Row]) -> Measured:
    """curvature of the mean maps"""
    worst = largest_gap(some(rows, what="mean map"), relative=True)[0]
    return Measured(worst, "−1/(k² t^{2(k−1)} (1+t²)²), k = 2, 3, 4")


@claim("N3", "count grows with the deficit, no integer bands", uses={"check": "trajectories"})
def trajectory(rows: Sequence[Row]) -> Measured:
    """a learned trajectory of reduced-rank regression gives the rank, not the order"""
    mean = {q: float(np.mean(column(rows, "decaying", deficit=q))) for q in (1, 2, 3, 4)}
    whole = sum(column(rows, "integer")) / max(1, sum(column(rows, "decaying")))
    values = list(mean.values())
    return Measured(
        ", ".join(f"deficit {q}: {v:.1f}" for q, v in mean.items()),
        note="decaying eigenvalues along learned trajectories, three starts each: no integer bands, the rank is read "
        "and not the order",
        facts={"share with exponent 2": whole},
        ok=values == sorted(values) and values[-1] > values[0] and whole < 0.5,
    )


@claim("N4", "exponent depends on the distance", uses={"check": "weight boundary"})
def boundary(rows: Sequence[Row]) -> Measured:
    """at the boundary w → 0 the direction is tangential and no order follows"""
    slopes = column(rows, "smallest")
    falling = all(a - b > 0.1 for a, b in itertools.pairwise(slopes))
    still = max(column(rows, "moved")) == 0.0  # K along ∂μ2 at w = 0
    return Measured(
        ", ".join(f"{s:.2f}" for s in slopes),
        note="exponent of λ_min in the weight at distances 1, 2, 3: not an order, it changes with the distance, and K "
        "is zero along ∂μ₂; that of κ is near −2 by coincidence",
        facts={"that of κ": column(rows, "condition")},
        ok=falling and still and slopes[-1] < 1.75,
    )


@claim("E4", "unbounded", uses={"check": "curvature"})
def flat(rows: Sequence[Row]) -> Measured:
    """printed: curvature blows up as t^{−2(k−1)} under Proposition 8's hypotheses"""
    value = one(rows, what="flat")["measured"]
    note = "the mean map (t², w(1+t)) meets the hypotheses and is flat: t^{−2(k−1)} is an upper order that some attain"
    return Measured(value, note, ok=False, right=abs(value) <= 1e-8, otherwise="the mean map (t², w(1+t)) is not flat")


@claim("E4-mixture", "−2", uses={"check": "mixture curvature"})
def mixture_curvature(rows: Sequence[Row]) -> Measured:
    """printed: slope −2 on a mixture at unequal weights"""
    worst = largest_gap(rows, relative=True)[0]
    return Measured(
        worst,
        note="in the (split, mean) plane the curvature is finite at every weight, 1 − 3/(8w(1−w)); only the (split, "
        "weight) plane blows up as −1/(w(1−w)s²)",
        facts={f"w = {r['weight']}": r["measured"] for r in rows if r["plane"] == "mean"},
        ok=False,
        right=worst <= 0.01,
        otherwise="the curvatures are not as derived",
    )


@claim("E5", "smooth", uses={"check": "next order"})
def pole(rows: Sequence[Row]) -> Measured:
    """printed: F₄/C₆ goes smoothly from 18 to 12"""
    worst = largest_gap(rows, relative=True)[0]
    return Measured(
        ", ".join(f"w={r['weight']}: {r['measured']:.2f}" for r in rows) if worst < 0.01 else worst,
        "F₄/C₆ is not smooth in the weight: C₆ vanishes at (2−√2)/4 ≈ 0.146",
        facts={f"w = {r['weight']}": r["measured"] for r in rows},
        ok=False,
        right=worst < 0.01,
        otherwise="F₄/C₆ is not as derived",
    )


@claim("E6", "every k", uses={"check": "fluctuation"})
def parity(rows: Sequence[Row]) -> Measured:
    """printed: the data-free part is λ − (Γ(λ+½)/Γ(λ))² for every k"""
    one_, two, three = (one(rows, what="table", k=k) for k in (1, 2, 3))
    off = max(abs(one_["frozen"] - 0.5), abs(three["frozen"] - 1 / 6), abs(two["frozen"] - two["free"]))
    right = off <= 1e-6 and abs(one_["free"] - one_["frozen"]) >= 0.1
    return Measured(
        one_["frozen"] if right else off,
        "at Z = 0 the variance is λ for odd k; the printed formula is that of even k",
        facts={f"k = {r['k']}, printed": [r["frozen"], r["free"]] for r in (one_, three)},
        ok=False,
        right=right,
        otherwise="the variance at Z = 0 is not λ for odd k and the printed one for even k",
    )


@claim("E7", "constant", uses={"check": "fluctuation"})
def temperature(rows: Sequence[Row]) -> Measured:
    """printed: ν does not depend on β"""
    worst = max(abs(one(rows, what="temperature", k=k, beta=b)["nu"] - v) for (k, b), v in HOT.items())
    flat = max(abs(one(rows, what="temperature", k=1, beta=b)["nu"] - 0.5) for b in (0.1, 10.0))
    right = worst <= 1e-4 and flat <= 1e-4
    second = {r["beta"]: r["nu"] for r in some(rows, what="temperature", k=2)}
    return Measured(
        ", ".join(f"β={b:g}: {v:.4f}" for b, v in second.items()) if right else worst,
        "ν(2) depends on the temperature; only ν(1) = ½ does not",
        ok=False,
        right=right,
        otherwise="ν by temperature is not as derived",
    )
