"""The split of activations and what explains it: claims C4, C6, C8, C12, C13 and experiments E5, E12.

A verdict on a trend names its pooling: every element, every site, or every channel may count alike, and sites behind a
norm and behind an addition are read apart. Changes are since before training, in points of density.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from netvitals_lab import Claims, Expected, Measured, Row, Verdict, not_judged
from netvitals_lab.engine.claim import PAIRS
from netvitals_lab.engine.judges import at_level, groups
from netvitals_lab.papers.gate_density import _pictures as pictures
from netvitals_lab.papers.gate_density._reading import (
    COINCIDE,
    acts,
    changes,
    errors,
    poolings,
    shrinkage,
    some,
    span,
    split,
    test,
)
from netvitals_lab.papers.gate_density._recorder import THETAS, key
from netvitals_lab.papers.gate_density._training import FOUR, SMOOTH, S
from netvitals_lab.papers.gate_density.table_claims import images
from netvitals_lab.papers.gate_density.trajectories import PAPERS_ADAM, SCHEDULED
from netvitals_lab.theory import gate_trends

AIM = 2.0  # points: median error of the predicted density of a site
COLLAPSE, STEADY = -0.5, 0.15  # change of σ: fallen by more than half; as good as unchanged


def split_verdict(rows: Sequence[Row]) -> Measured:
    """C4 by element, as §3 defines gate density; the note says by which other poolings it splits."""
    runs = some(rows, optimizer="sgd")
    found = {(p, k): [split(runs, t, p, k) for t in (0.01, 0.1)] for p, k in poolings(runs)}
    good = [named(p, k) for (p, k), both in found.items() if all(ok for ok, _ in both)]
    bad = [named(p, k) for (p, k), both in found.items() if not all(ok for ok, _ in both)]
    facts = "; ".join(f"by {p}, θ = .01: {found[p, 'all'][0][1]}" for p in ("element", "site", "channel"))
    ok = all(right for right, _ in found["element", "all"])
    return Measured(
        "splits" if ok else "does not split",
        note=f"every element counting alike, as the paper defines gate density. In every seed and at both thresholds "
        f"ReLU falls and the smooth ones rise by {', '.join(good) or 'no pooling'}; not by {', '.join(bad) or 'none'}. "
        f"{facts}; θ = .10 by element: {found['element', 'all'][1][1]}",
        ok=ok,
    )


def named(pooling: str, kind: str) -> str:
    return f"{pooling} pooling" + ("" if kind == "all" else f" of {kind} sites")


def thresholds(rows: Sequence[Row]) -> Measured:
    """C6: the sign at θ against the sign at 0.01 in the same run, under each pooling."""
    runs = some(rows, optimizer="sgd")
    facts, worst = [], 0
    for pooling, kind in poolings(runs):
        flips = [
            (r["act"], t)
            for r in runs
            for t in THETAS
            if r[f"{key(t, pooling, kind)} change"] * r[f"{key(0.01, pooling, kind)} change"] < 0
        ]
        worst = max(worst, len(flips)) if kind == "all" else worst
        where = ", ".join(dict.fromkeys(f"{a} at {t:g}" for a, t in flips))
        facts.append(f"{named(pooling, kind)} {len(flips)}" + (f" ({where})" if where else ""))
    return Measured(
        float(worst),
        f"sign flips among {len(runs) * len(THETAS)} checks, the worst pooling over all sites; {'; '.join(facts)}",
        ok=worst == 0,
    )


def collapse(rows: Sequence[Row]) -> Measured:
    sgd, adamw = some(rows, optimizer="sgd"), [r for r in rows if r["quantity"] == "run" and r["optimizer"] == "adamw"]
    sigma, gamma = shrinkage(sgd), shrinkage(sgd, "gamma")
    steady = sum(monotone(rows, r) for r in sgd)
    facts = (
        f"SGD at S = {S}: σ {span(sigma, '+.0%')}, |γ| {span(gamma, '+.0%')} ({test(gamma)}), falling from epoch "
        f"to epoch without exception in {steady} of {len(sgd)} runs"
    )
    ok = max(sigma) < COLLAPSE and max(gamma) < COLLAPSE
    quiet = [r for r in adamw if r["S"] < 0.01]
    if quiet:
        ok &= max(map(abs, shrinkage(quiet))) < STEADY
        facts += f"; AdamW at S = {PAPERS_ADAM:g}: σ {span(shrinkage(quiet), '+.1%')}"
    return Measured(float(np.mean(sigma)), facts, ok=ok)


def monotone(rows: Sequence[Row], run: Row) -> bool:
    """Whether |γ| of a run only falls, as the paper says of all of its trajectories (E8)."""
    mine = [
        r
        for r in rows
        if r["quantity"] == "epoch" and all(r[k] == run[k] for k in ("act", "seed", "optimizer", "S", "data"))
    ]
    return all(b["gamma"] < a["gamma"] for a, b in pairwise(sorted(mine, key=lambda r: r["epoch"])))


def channels(rows: Sequence[Row]) -> Measured:
    """C12 at θ = 0.10 for the smooth activations; ReLU stands in the note."""
    runs = some(rows, optimizer="sgd")
    smooth = [r for r in runs if r["act"] in SMOOTH]
    raw, normal = ([r[f"positive {m}@0.1"] for r in smooth] for m in ("raw", "normalized"))
    everywhere = gate_trends.cells([r["positive normalized@0.1"] for r in runs])
    facts = "; ".join(
        f"{a} raw {span([100 * r['positive raw@0.1'] for r in some(runs, act=a)], '.0f')} %, normalised "
        f"{span([100 * r['positive normalized@0.1'] for r in some(runs, act=a)], '.0f')} %"
        for a in acts(runs)
    )
    ok = all(n > r for n, r in zip(normal, raw)) and min(normal) > 0.5
    return Measured(
        f"{100 * np.mean(raw):.0f} % raw, {100 * np.mean(normal):.0f} % normalised",
        note=f"share of channels whose margin and density correlate positively over five epochs, θ = .10, "
        f"smooth activations. By activation: {facts}. Normalised margin over all four: {everywhere}; "
        f"{sum(r['constant@0.1'] for r in runs)} channels constant and left out",
        ok=ok,
    )


def transfer(rows: Sequence[Row]) -> Measured | Verdict:
    """C13: nothing is refitted; μ(t) and σ(t) of AdamW go into the same margin."""
    runs = some(rows, optimizer="adamw")
    if min(r["S"] for r in runs) > 10 * PAPERS_ADAM:
        return not_judged(
            f"run at an integrated decay of {min(r['S'] for r in runs):g}, instead of the paper's {PAPERS_ADAM:g}: "
            "variance collapses here and does not in the paper; the trials of T1 are at the paper's"
        )
    positive, agree = ([r[f"{what} normalized@0.1"] for r in runs] for what in ("positive", "agreement"))
    cells, same = gate_trends.cells(positive), gate_trends.cells(agree)
    union = [r["agreement interval_union@0.1"] for r in runs]
    others = [r for r in rows if r["quantity"] == "run" and r["optimizer"] == "adam"]
    facts = "; ".join(
        f"{a} {span([100 * r['agreement normalized@0.1'] for r in some(runs, act=a)], '.0f')} %" for a in acts(runs)
    )
    return Measured(
        f"{same.successes} of {len(agree)} cells",
        note=f"cells in which most channels' density moved as their margin did, θ = .10; {same}. By "
        f"activation {facts}; correlation over five epochs positive for "
        f"{span([100 * p for p in positive], '.0f')} % of channels ({cells}); with the interval-union law "
        f"in the margin's place {span([100 * u for u in union], '.0f')} % agree"
        + (f"; Adam {span([100 * r['agreement normalized@0.1'] for r in others], '.0f')} %" if others else ""),
        ok=same.failures == 0 and cells.failures == 0,
    )


def optimizer(rows: Sequence[Row], name: str, falls: Sequence[str]) -> Measured:
    runs = some(rows, optimizer=name)
    facts, right, total = [], 0, 0
    for act in acts(runs):
        mine = some(runs, act=act)
        values = changes(mine, 0.01)
        good = sum(v < 0 if act in falls else v > 0 for v in values)
        right, total = right + good, total + len(values)
        other = ", ".join(f"{p} {span([100 * v for v in changes(mine, 0.01, p)])}" for p in ("site", "channel"))
        facts.append(f"{act} {span([100 * v for v in values])} ({other})")
    felt = span([r["realised S"] for r in runs], ".3g")
    return Measured(
        f"{right} of {total}",
        note=f"runs with the paper's sign at θ = .01, by element; points by element (by site, by channel) "
        f"{', '.join(facts)}; σ {span(shrinkage(runs), '+.0%')}, decay felt by the scales {felt}",
        ok=right == total,
    )


def law(rows: Sequence[Row]) -> Measured:
    """Beyond the paper: how near the interval-union law comes to the density of a site at the end."""
    sites = [r for r in some(rows, "site", when="last") if r["optimizer"] == "sgd"]
    median = lambda found, of="predicted": float(np.median(errors(found, of)))
    low, high = ([r for r in sites if r["theta"] == t] for t in (0.01, 0.1))
    smooth = [r for r in low if r["act"] in SMOOTH]
    worst = max(median(low), median(high))
    return Measured(
        worst,
        "median |predicted − measured| in points at the end, the worse of two thresholds",
        facts={
            "sites": len(sites) // 2,
            "θ = .01, .10": [median(low), median(high)],
            **{f"{act} at θ = .10": median(group) for act, group in groups(high, "act").items()},
            **{f"{kind} sites": median(group) for kind, group in groups(sites, "follows").items()},
            "smooth activations at θ = .01: interval union, half line Φ(margin)": [
                median(smooth),
                median(smooth, "half_line"),
            ],
        },
        ok=worst <= AIM,
    )


MLP, IMAGES, CNN = "gate-density-trajectories", "gate-density-images", "gate-density-cnn"


claim = Claims("gate-density", study=IMAGES, seeds=PAIRS)


@claim(
    "C4",
    "ReLU down, smooth up, every seed, θ = .01 and .10",
    uses=images(optimizer="sgd", S=SCHEDULED["sgd"]),
    plot=partial(pictures.density_by_epoch, beside="rank_entropy"),
)
def split_images(rows: Sequence[Row]) -> Measured:
    """Under SGD with decay density falls for ReLU and rises for GELU, SiLU and Mish (ResNet-18 skeleton on images)"""
    return split_verdict(rows)


@claim(
    "C4-vgg",
    "ReLU down, smooth up, every seed, θ = .01 and .10",
    study=CNN,
    uses=images(optimizer="sgd", S=SCHEDULED["sgd"]),
    plot=partial(pictures.density_by_epoch, theta=0.1),
)
def split_vgg(rows: Sequence[Row]) -> Measured:
    """Under SGD with decay density falls for ReLU and rises for GELU, SiLU and Mish (VGG-11 skeleton on images)"""
    return split_verdict(rows)


@claim(
    "X-pooling",
    "about −13 points",
    uses=images(optimizer="sgd", S=SCHEDULED["sgd"]),
    plot=partial(pictures.density_by_epoch, theta=0.01, pooling="channel"),
)
def declining_pooling(rows: Sequence[Row]) -> Measured:
    """Under some pooling the density of ReLU falls in every seed

    Which pooling gives the paper's ReLU decline of about 13 points.
    """
    runs = some(rows, optimizer="sgd", act="relu")
    found = {named(p, k): [100 * v for v in changes(runs, 0.01, p, k)] for p, k in poolings(runs)}
    down = [n for n, v in found.items() if max(v) < 0]
    near = min(found, key=lambda n: abs(np.mean(found[n]) + 13))
    return Measured(
        ", ".join(down) or "none",
        "; ".join(f"{n} {span(v)}" for n, v in found.items()) + f" points; nearest to −13: {near}",
        ok=bool(down),
    )


@claim("C6", Expected(0.0, tolerance=0.0), uses=images(optimizer="sgd", S=SCHEDULED["sgd"]), plot=pictures.by_threshold)
def thresholds_images(rows: Sequence[Row]) -> Measured:
    """The sign of the change is the same at five thresholds (images)"""
    return thresholds(rows)


@claim("C8", "σ and γ below half", uses=images(optimizer="sgd", S=SCHEDULED["sgd"]), plot=pictures.sigma_by_optimizer)
def collapse_images(rows: Sequence[Row]) -> Measured:
    """γ and σ collapse under SGD with coupled decay (images)"""
    return collapse(rows)


@claim(
    "C12",
    "normalised above raw and above half in every cell",
    uses=images(optimizer="sgd", S=SCHEDULED["sgd"]),
    plot=pictures.correlations,
)
def channels_images(rows: Sequence[Row]) -> Measured:
    """By channel the raw margin fails for smooth activations and the normalised one works (images)"""
    return channels(rows)


@claim(
    "C13",
    "most channels agree, in every cell",
    study=CNN,
    uses=images(optimizer="adamw", S=SCHEDULED["adamw"]),
    plot=pictures.margins,
)
def transfer_images(rows: Sequence[Row]) -> Measured | Verdict:
    """The same margin, not refitted, tells the trend of channels under AdamW (images)"""
    return transfer(rows)


@claim(
    "E12-adam",
    "ReLU down, smooth up",
    study=CNN,
    uses=images(optimizer="adam", S=SCHEDULED["adam"]),
    plot=partial(pictures.density_by_epoch, theta=0.01),
)
def under_adam(rows: Sequence[Row]) -> Measured:
    """Under Adam the split is that of SGD (images)"""
    return optimizer(rows, name="adam", falls=("relu",))


@claim(
    "E12-adamw",
    "all down",
    study=CNN,
    uses=images(optimizer="adamw", S=SCHEDULED["adamw"]),
    plot=partial(pictures.density_by_epoch, theta=0.01),
)
def under_adamw(rows: Sequence[Row]) -> Measured:
    """Under AdamW density falls for all four (images)"""
    return optimizer(rows, name="adamw", falls=FOUR)


@claim(
    "E5",
    "0 < rise at .01 < rise at .10; mean gate falls",
    study=CNN,
    uses=images(optimizer="sgd", S=SCHEDULED["sgd"]),
    plot=partial(pictures.quantile_bands, act="gelu"),
)
def magnitudes(rows: Sequence[Row]) -> Measured:
    """Smooth activations rise by less at θ = .01 than at .10, and the mean gate falls for all (images)

    E5: small rise at 0.01, large at 0.10, and a mean gate that falls for all.
    """
    runs = some(rows, optimizer="sgd")
    smooth = [r for r in runs if r["act"] in SMOOTH]
    low, high = (100 * float(np.mean(changes(smooth, t))) for t in (0.01, 0.1))
    mean = {a: float(np.mean(shrinkage(some(runs, act=a), "gate_mean"))) for a in acts(runs)}
    return Measured(
        f"{low:+.2f} and {high:+.2f} points",
        note="smooth activations at θ = .01 and .10, by element; mean gate "
        + ", ".join(f"{a} {v:+.1%}" for a, v in mean.items()),
        ok=0 < low < high and all(v < 0 for v in mean.values()),
    )


@claim("X-law", Expected(0.0, tolerance=AIM), uses=images(optimizer="sgd", S=SCHEDULED["sgd"]), plot=pictures.predicted)
def law_images(rows: Sequence[Row]) -> Measured:
    """The interval-union law gives the final density of a site within 2 points in the median (images)"""
    return law(rows)


@claim(
    "C4-perceptron",
    "ReLU down, smooth up, every seed",
    study=MLP,
    factor="data",
    uses={"optimizer": "sgd"},
    plot=at_level(partial(pictures.density_by_epoch, theta=0.1), "data", "digits"),
)
def perceptron_split(rows: Sequence[Row]) -> Measured:
    """Under SGD with decay density falls for ReLU and rises for GELU, SiLU and Mish (BatchNorm perceptron)"""
    runs = some(rows, optimizer="sgd")
    facts = {t: split(runs, t, "element") for t in (0.01, 0.1)}
    first = all(v < 0 for v in changes(some(runs, act="relu"), 0.01)) and all(
        r[f"{key(0.1)} change since epoch 0"] > 0 for r in runs if r["act"] in SMOOTH
    )
    ok = all(good for good, _ in facts.values())
    return Measured(
        "splits" if ok else "does not split",
        note="; ".join(f"θ = {t:g}: {text}" for t, (_, text) in facts.items())
        + f"; {COINCIDE}; counted since the end of the first "
        f"epoch, the smooth ones {'rise as well' if first else 'do not all rise'} at θ = .10",
        ok=ok,
    )


@claim(
    "C6-perceptron",
    Expected(0.0, tolerance=0.0),
    study=MLP,
    factor="data",
    uses={"optimizer": "sgd"},
    plot=at_level(pictures.by_threshold, "data", "digits"),
)
def thresholds_perceptron(rows: Sequence[Row]) -> Measured:
    """The sign of the change is the same at five thresholds (BatchNorm perceptron)"""
    return thresholds(rows)


@claim(
    "C8-perceptron",
    "σ below half under SGD, within 15 % under AdamW",
    study=MLP,
    factor="data",
    plot=at_level(pictures.sigma_by_optimizer, "data", "digits"),
)
def collapse_perceptron(rows: Sequence[Row]) -> Measured:
    """γ and σ collapse under SGD with coupled decay and not under AdamW at the paper's decay (BatchNorm perceptron)"""
    return collapse(rows)


@claim(
    "C12-perceptron",
    "normalised above raw and half, every cell",
    study=MLP,
    factor="data",
    uses={"optimizer": "sgd"},
    plot=at_level(pictures.correlations, "data", "digits"),
)
def channels_perceptron(rows: Sequence[Row]) -> Measured:
    """By channel the raw margin fails for smooth activations and the normalised one works (BatchNorm perceptron)"""
    return channels(rows)


@claim(
    "C13-perceptron",
    "most channels agree, in every cell",
    study=MLP,
    factor="data",
    uses={"optimizer": ("adam", "adamw")},
    plot=at_level(pictures.margins, "data", "digits"),
)
def transfer_perceptron(rows: Sequence[Row]) -> Measured | Verdict:
    """The same margin, not refitted, tells the trend of channels under AdamW (BatchNorm perceptron)"""
    return transfer(rows)


@claim(
    "X-law-perceptron",
    Expected(0.0, tolerance=AIM),
    study=MLP,
    factor="data",
    uses={"optimizer": "sgd"},
    plot=at_level(pictures.predicted, "data", "digits"),
)
def law_perceptron(rows: Sequence[Row]) -> Measured:
    """The interval-union law gives the final density of a site within 2 points in the median (BatchNorm perceptron)"""
    return law(rows)
