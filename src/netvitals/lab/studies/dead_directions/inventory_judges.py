"""How orders, volumes and free energies decide the claims of the inventory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from netvitals.lab.engine.judges import one, some
from netvitals.lab.studies import Plot, Row, Series, Verdict, decide, erratum, fails
from netvitals.lab.studies.dead_directions._judging import SLOPE

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


def slopes_verdict(rows: Sequence[Row]) -> Verdict:
    worst = max(rows, key=lambda r: abs(r["estimate"] - r["order"]))
    gap = 2 * abs(worst["estimate"] - worst["order"])
    return decide(
        gap <= SLOPE, gap, note=f"largest error of the Fisher slope over {len(rows)} models, {worst['model']}"
    )


def ratios(rows: Sequence[Row]) -> Verdict:
    worst = max(rows, key=lambda r: abs(r["ratio"] / (2 * r["order"] ** 2) - 1))
    gap = abs(worst["ratio"] / (2 * worst["order"] ** 2) - 1)
    return decide(
        gap <= 0.02,
        gap,
        note=f"largest relative error of F t²/K against 2k² over {len(rows)} models, "
        f"{worst['model']}; the Hessian's 2k(2k−1) would be off by a third at k = 2",
    )


def activations(rows: Sequence[Row]) -> Verdict:
    ok = all(r["order"] == 2 and abs(r["slope"] - 2) <= SLOPE and abs(r["ratio"] - 8) <= 0.16 for r in rows)
    return decide(
        ok,
        max(abs(r["slope"] - 2) for r in rows),
        note=f"order 2 in {sum(r['order'] == 2 for r in rows)} "
        f"of {len(rows)} cases: four activations, Gaussian and softmax",
    )


def partition(rows: Sequence[Row]) -> Verdict:
    parts, families = some(rows, what="partition"), some(rows, what="family")
    right = all(r["found"] == r["expected"] for r in parts)
    facts = all(r["transversal"] == [r["k"]] and r["tangential"] == [r["j"]] for r in families)
    return decide(
        right and facts,
        ", ".join(f"{r['model']}: {'/'.join(map(str, r['found']))}" for r in parts),
        note="zero/constant/transversal; tangential and transversal told apart in "
        + ", ".join(r["model"] for r in families),
    )


def turning(rows: Sequence[Row]) -> Verdict:
    families = some(rows, what="family")
    least = min(r["angle_slope"] - abs(r["j"] - (r["k"] - 1)) for r in families)
    return decide(
        least > -SLOPE and max(r["angle"] for r in families) < 0.02,
        least,
        note="exponent of the angle above |j − (k−1)|, smallest: "
        + ", ".join(f"{r['model']}: t^{r['angle_slope']:.2f}" for r in families),
    )


def two_means(rows: Sequence[Row]) -> Verdict:
    worst = max(abs(r["measured"] - r["predicted"]) for r in rows)
    return decide(worst <= SLOPE, worst, note="merging means at weights 0.5, 0.3, 0.1: exponents 2 and 0")


def merge(rows: Sequence[Row]) -> Verdict:
    worst = max(abs(r["measured"] - r["predicted"]) for r in rows)
    return decide(
        worst <= SLOPE,
        worst,
        note="three parameters: exponents 6, 2, 0 at weights 0.5 and 0.3: "
        + ", ".join(f"{r['measured']:.2f}" for r in rows),
    )


def crossing(rows: Sequence[Row]) -> Verdict:
    worst = max(max(r["error"], abs(r["generic"])) for r in rows)
    return decide(worst <= 1e-6, worst, note=f"orders of {len(rows)} crossings from r + 1 rays")


def lambda_m(rows: Sequence[Row]) -> Verdict:
    ok = all((r["lam"], r["m"]) == (1 / (2 * max(r["ks"])), r["ks"].count(max(r["ks"]))) for r in rows)
    ray = next(r for r in rows if r["ks"] == [1, 1])
    return decide(
        ok,
        f"{len(rows)} of {len(rows)}" if ok else "some differ",
        note=f"at a crossing a generic ray would say {ray['ray']:g} for u₁u₂; λ is {ray['lam']:g}, m = {ray['m']}",
    )


def reduced_rank(rows: Sequence[Row]) -> Verdict:
    ok = all(r["symmetric"] and r["below"] and r["regular"] for r in rows)
    eg = next(r for r in rows if r["shape"] == [4, 3, 4, 2])
    return decide(
        ok and (eg["lam"], eg["m"]) == (7, 2),
        f"{len(rows)} shapes",
        note="closed form: symmetric in inputs "
        "and outputs, never above half the dimension, equal to it at full rank; (4, 3, 4) of rank 2 has 7, 2",
    )


def nu_table(rows: Sequence[Row]) -> Verdict:
    worst = max(abs(one(rows, what="table", k=k)["nu"] - v) for k, v in NU.items())
    return decide(worst <= 1e-4, worst, note="largest error over k = 1 … 10")


def universal(rows: Sequence[Row]) -> Verdict:
    found = some(rows, what="simulation")
    worst = max(abs(r["nu"] - r["predicted"]) / abs(r["nu_stderr"]) for r in found)
    tight = max(abs(r["nu_stderr"]) / r["predicted"] for r in found) < 0.06  # or any value would do
    return decide(
        worst < 4 and tight,
        worst,
        note="largest gap in standard errors, k = 1 … 4, two coefficients: "
        + ", ".join(f"k={r['k']}: {r['nu']:.4f}" for r in found),
    )


def losses(rows: Sequence[Row]) -> Verdict:
    found = some(rows, what="simulation")
    gaps = [
        (
            abs(r["general"] - r["lam"]) / r["general_stderr"],
            abs(r["training"] - r["lam"] + 2 * r["predicted"]) / r["training_stderr"],
        )
        for r in found
    ]
    worst = max(max(g) for g in gaps)
    tight = max(abs(r[k]) for r in found for k in ("general_stderr", "training_stderr")) < 0.04
    return decide(
        0 <= worst < 4.5 and tight,
        worst,
        note="n(E[G] − S) against λ and n(E[T] − S) against λ − 2ν, largest gap in standard errors at n = 1000",
    )


def prior(rows: Sequence[Row]) -> Verdict:
    worst = max(abs(one(rows, what="prior", h=h)["nu"] - v) for h, v in SHIFT.items())
    ok = all(one(rows, what="prior", h=h)["lam"] == (h + 1) / 4 for h in SHIFT)
    return decide(ok and worst <= 1e-4, worst, note="ν(2) under priors |u|^h, h = 0 … 3; λ = (h+1)/4")


def volume(rows: Sequence[Row]) -> Verdict:
    scans, tied = some(rows, what="scan"), some(rows, what="tied")
    high = some(rows, what="high curvature")
    off = max(abs(r["lam"] - r["predicted"]) for r in scans)
    ok = off < 0.03 and all(r["m"] == r["m_predicted"] for r in scans)
    ok = ok and all(abs(r["measured"] - r["predicted"]) < 4 * r["stderr"] for r in tied)
    ok = ok and all(abs(r["fisher"] / r["predicted"] - 1) < 0.05 for r in high)
    return decide(
        ok,
        off,
        note="λ from the volume of {K < ε} ("
        + ", ".join(f"{r['model']}: {r['lam']:.3f}, m {r['m']}" for r in scans)
        + "); high-curvature volumes "
        + ", ".join(f"{r['fisher']:.4f} ({r['predicted']:.4f})" for r in high),
    )


def closed_forms(rows: Sequence[Row]) -> Verdict:
    worst = max(abs(r["measured"] / r["predicted"] - 1) for r in some(rows, what="mean map"))
    return decide(worst < 1e-8, worst, note="−1/(k² t^{2(k−1)} (1+t²)²), k = 2, 3, 4")


def flat_verdict(rows: Sequence[Row]) -> Verdict:
    value = one(rows, what="flat")["measured"]
    if abs(value) > 1e-8:
        return fails(value)
    return erratum(
        value,
        note="the mean map (t², w(1+t)) meets the hypotheses and is flat: t^{−2(k−1)} is an upper "
        "order, attained by some families",
    )


def mixture_curvature(rows: Sequence[Row]) -> Verdict:
    worst = max(abs(r["measured"] / r["predicted"] - 1) for r in rows)
    mean = [r for r in rows if r["plane"] == "mean"]
    if worst > 0.01:
        return fails(worst)
    return erratum(
        worst,
        note="in the (split, mean) plane the curvature is finite at every weight, 1 − 3/(8w(1−w)): "
        + ", ".join(f"w={r['weight']}: {r['measured']:.4f}" for r in mean)
        + "; only the (split, weight) plane blows up as −1/(w(1−w)s²)",
    )


def pole(rows: Sequence[Row]) -> Verdict:
    worst = max(abs(r["measured"] / r["predicted"] - 1) for r in rows)
    text = ", ".join(f"w={r['weight']}: {r['measured']:.2f}" for r in rows)
    return (
        erratum(text, note="F₄/C₆ is not smooth in the weight: C₆ vanishes at (2−√2)/4 ≈ 0.146")
        if worst < 0.01
        else fails(worst, note=text)
    )


def parity(rows: Sequence[Row]) -> Verdict:
    one_, two, three = (one(rows, what="table", k=k) for k in (1, 2, 3))
    off = max(abs(one_["frozen"] - 0.5), abs(three["frozen"] - 1 / 6), abs(two["frozen"] - two["free"]))
    if off > 1e-6 or abs(one_["free"] - one_["frozen"]) < 0.1:
        return fails(off, note="the variance at Z = 0 is not λ for odd k and the printed one for even k")
    return erratum(
        one_["frozen"],
        note=f"at Z = 0 the variance is λ for odd k ({one_['frozen']:g}, "
        f"{three['frozen']:.4f}); the printed formula ({one_['free']:.4f}, {three['free']:.4f}) is that of "
        "even k",
    )


def temperature(rows: Sequence[Row]) -> Verdict:
    worst = max(abs(one(rows, what="temperature", k=k, beta=b)["nu"] - v) for (k, b), v in HOT.items())
    flat = [one(rows, what="temperature", k=1, beta=b)["nu"] for b in (0.1, 10.0)]
    if worst > 1e-4 or max(abs(f - 0.5) for f in flat) > 1e-4:
        return fails(worst)
    second = {r["beta"]: r["nu"] for r in some(rows, what="temperature", k=2)}
    return erratum(
        ", ".join(f"β={b:g}: {v:.4f}" for b, v in second.items()),
        note="ν(2) depends on the temperature; only ν(1) = ½ does not",
    )


def trajectory(rows: Sequence[Row]) -> Verdict:
    mean = {q: float(np.mean([r["decaying"] for r in some(rows, deficit=q)])) for q in (1, 2, 3, 4)}
    whole = sum(r["integer"] for r in rows) / max(1, sum(r["decaying"] for r in rows))
    values = list(mean.values())
    return decide(
        values == sorted(values) and values[-1] > values[0] and whole < 0.5,
        ", ".join(f"deficit {q}: {v:.1f}" for q, v in mean.items()),
        note=f"decaying eigenvalues along learned trajectories, three starts each; {whole:.0%} of them have "
        "exponent 2, so there are no integer bands: the rank is read, not the order",
    )


def boundary(rows: Sequence[Row]) -> Verdict:
    slopes = [r["smallest"] for r in rows]
    coincidence = [r["condition"] for r in rows]
    falling = all(a - b > 0.1 for a, b in itertools.pairwise(slopes))
    still = max(r["moved"] for r in rows) == 0.0  # K along ∂μ2 at w = 0
    return decide(
        falling and still and slopes[-1] < 1.75,
        ", ".join(f"{s:.2f}" for s in slopes),
        note="exponent of λ_min in the weight at distances 1, 2, 3: not an order, it changes with the "
        "distance, and K is zero along ∂μ₂; that of κ is near −2 by coincidence ("
        + ", ".join(f"{c:.2f}" for c in coincidence)
        + ")",
    )


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
