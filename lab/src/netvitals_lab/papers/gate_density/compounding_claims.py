"""Claims on depth, activations, learned kernels, deep networks, and the bounds of the appendix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from netvitals_lab import (
    Claims,
    Measured,
    Plot,
    Row,
    Series,
    Verdict,
    above,
    below,
    decide,
    erratum,
    fails,
    not_run,
    stats,
)
from netvitals_lab.engine.judges import over_setups, some
from netvitals_lab.papers.gate_density import reconstruction as rec
from netvitals_lab.papers.gate_density import transition_pictures as pictures
from netvitals_lab.papers.gate_density.setups import (
    CHOICES,
    LEARNED,
    STIFFNESS,
    by_start,
    by_way,
    drawn,
    first,
    without_iou,
)
from netvitals_lab.papers.gate_density.transition import table

SCOPE = 16.0  # stiffness from which Theorem A.3 is stated to hold


STUDY = "gate-density-compounding"
EXPONENT = -0.674  # of the rate of the depth law
SELF_GATED = ("gelu", "silu", "mish")
TABLE_8 = {16.0: 0.031, 20.0: 0.029, 25.0: 0.026, 40.0: 0.017, 60.0: 0.012}  # c by stiffness


def _bootstrapped(rows: Sequence[Row], resamples: int = 1000) -> str:
    """95 % interval of R² over resampled seeds, with Sobel on top."""
    alphas, one = table(rows, "one", second="sobel_x")
    two, keep, rng = table(rows, "effective", second="sobel_x")[1], alphas >= 10, np.random.default_rng(0)
    found = []
    for _ in range(resamples):
        seeds = rng.integers(0, one.shape[1], one.shape[1])
        try:
            found.append(
                rec.depth_law(
                    alphas[keep].tolist(), one[:, seeds].mean(1)[keep].tolist(), two[:, seeds].mean(1)[keep].tolist()
                ).r2
            )
        except ValueError:
            continue
    if len(found) < resamples / 2:
        return f"only {len(found)} of {resamples} can be fitted"
    low, high = np.percentile(found, [2.5, 97.5])
    return f"{low:.3f} to {high:.3f}"


def _law(rows: Sequence[Row]) -> Verdict:
    laws = {}
    for second in dict.fromkeys(r["second"] for r in rows):
        alphas, one = table(rows, "one", second=second)
        keep = alphas >= 10
        two = table(rows, "effective", second=second)[1].mean(1)
        try:
            laws[second] = rec.depth_law(alphas[keep].tolist(), one.mean(1)[keep].tolist(), two[keep].tolist())
        except ValueError as error:
            return not_run(f"{second}: {error}")
    sobel = laws["sobel_x"]
    alphas, one = table(rows, "one", second="sobel_x")
    by = pictures.collapse_rate(alphas, one.mean(1), table(rows, "effective", second="sobel_x")[1].mean(1))
    cells = {f"c at α = {a:g}, printed": [float(c), TABLE_8[a]] for a, c in zip(alphas, by) if a in TABLE_8 and c == c}
    return decide(
        abs(sobel.exponent - EXPONENT) < 0.1 and sobel.r2 > 0.9,
        sobel.exponent,
        sobel.exponent_stderr,
        note="exponent of c(α) with Sobel on top; the paper 0.211 α^(−0.674)",
        facts={k: str(v) for k, v in laws.items()} | cells,
    )


def _points(rows: Sequence[Row]) -> tuple[list[str], np.ndarray]:
    acts = list(dict.fromkeys(r["act"] for r in rows))
    return acts, np.array(
        [np.r_[table(rows, "active", act=a)[1].mean(1), table(rows, "iou", act=a)[1].mean(1)] for a in acts]
    )


def _by(column: str, key: str) -> Callable[[Sequence[Row]], Plot]:
    def plot(rows: Sequence[Row]) -> Plot:
        series = []
        for value in dict.fromkeys(r[key] for r in rows):
            alphas, values = table(rows, column, **{key: value})
            series.append(Series(str(value), alphas.tolist(), values.mean(1).tolist(), line=True))
        return Plot("stiffness", column, series, log_x=True)

    return plot


claim = Claims("gate-density", study=STUDY)


@claim("C19", "never violated", uses={"check": "gradient bound"})
def lemma_a1(rows: Sequence[Row]) -> Measured | Verdict:
    """Lemma A.1: the gradient is at most (α/2)‖Aᵀ(h − y)‖"""
    worst = max(rows, key=lambda r: r["printed_worst"])
    if worst["printed_worst"] <= 1:
        return Measured(worst["printed_worst"], "no counterexample was found", ok=True)
    if any(r["corrected_violations"] for r in rows):
        return fails(max(r["corrected_worst"] for r in rows), note="the corrected bound is violated too")
    share = np.mean([r["printed_violations"] for r in rows])
    return erratum(
        max(r["corrected_worst"] for r in rows),
        note="the gate cannot be pulled out of Aᵀ: "
        f"{share:.1%} of random 4 × 4 draws violate the printed bound, by a factor of up to "
        f"{worst['printed_worst']:.1f}; (α/2)‖A‖₂‖h − y‖ holds in all, the largest ratio is the number here",
    )


@claim("C20", "never violated", uses={"check": "active bound"})
def theorem_a2(rows: Sequence[Row]) -> Measured | Verdict:
    """Theorem A.2: the mean active share is at most 1 − 2ε/α, and tends to 0"""
    above = [r for r in rows if np.mean(r["active"]) > r["bound"]]
    wrong = sum(r["disagree"] for r in rows)
    last = max(rows, key=lambda r: r["alpha"])
    if not above:
        return Measured(note="no stiffness with a mean active share above the printed bound was found", ok=True)
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


@claim(
    "C21",
    "never violated",
    setups=without_iou,
    uses={"check": "depth"},
    plot=drawn(_by("effective", "second")),
    choices=CHOICES,
)
def theorem_a3(rows: Sequence[Row]) -> Measured | Verdict:
    """Theorem A.3: from α = 16 on a second layer leaves at most 1/(1 + c₂α) of the active share

    Inside the scope that the theorem prints; outside of it the facts say how it does.
    """
    worst, where = -np.inf, None
    inside = [r for r in rows if r["alpha"] >= SCOPE]
    for r in inside:
        one, effective = np.mean(r["one"]), np.mean(r["effective"])
        if one > 0 and effective / one - r["bound"] > worst:
            worst, where = effective / one - r["bound"], r
    if where is None:
        return not_run(f"no stiffness from {SCOPE:g} on leaves an active pixel in one layer")
    return Measured(
        float(worst),
        note=f"largest F²/F¹ minus 1/(1 + c₂α) over α ≥ {SCOPE:g}, the theorem's scope; at α = "
        f"{where['alpha']:g} with {where['second']} on top (F¹ {np.mean(where['one']):.3f}, F² "
        f"{np.mean(where['effective']):.3f}, bound {where['bound']:.4f}); its proof rests on A.2, which is "
        "false, and on gates that are nearly independent, which E26-independence judges",
        ok=worst <= 0,
    )


@claim("E26", below(1, "F² < F¹"), setups=without_iou, uses={"check": "depth"}, choices=CHOICES)
def depth(rows: Sequence[Row]) -> Measured:
    """Two layers have fewer active pixels than one at large stiffness"""
    ratios: dict[str, list[float]] = {}
    for second in dict.fromkeys(r["second"] for r in rows):
        alphas, one = table(rows, "one", second=second)
        two = table(rows, "effective", second=second)[1].mean(1)
        stiff = alphas >= 20
        ratios[second] = (two[stiff] / np.maximum(one.mean(1)[stiff], 1e-12)).tolist()
    worst = max(map(max, ratios.values()))
    facts = {f"{second} on top, by stiffness from 20 on": by for second, by in ratios.items()}
    return Measured(worst, "largest F² over F¹ from α = 20 on", facts=facts)


@claim("E26-law", "exponent −0.674", uses={"check": "depth"}, plot=drawn(pictures.rates), choices=CHOICES)
def law_anywhere(rows: Sequence[Row]) -> Verdict:
    """The rate of the depth law falls as 0.211 α^(−0.674)

    The exponent in every set-up; how sure its fit is, in ours.
    """
    found = over_setups(_law, without_iou, EXPONENT)(rows)
    return replace(found, facts={**found.facts, "its R² over resampled seeds": _bootstrapped(first(rows))})


@claim(
    "E26-independence",
    "|corr| < 0.5",
    setups=without_iou,
    uses={"check": "depth"},
    plot=drawn(pictures.independence),
    choices=CHOICES,
)
def independence(rows: Sequence[Row]) -> Measured:
    """The gates of the two layers are nearly independent"""
    values = np.abs(np.concatenate([r["correlation"] for r in rows]))
    return Measured(
        float(values.mean()),
        note=f"mean |corr(Γ¹, A₂ᵀΓ²)| over {values.size} "
        f"solutions; the largest is {values.max():.3f} (the paper: mean .201, below .50 always)",
        ok=bool(values.max() < 0.5),
    )


@claim(
    "E27",
    "k = 3",
    setups=by_way,
    uses={"check": "activations"},
    plot=drawn(lambda rows: _by("active", "act")([r for r in rows if r["way"] == "divided"])),
    choices=(*CHOICES, STIFFNESS),
    question="How does stiffness enter GELU, SiLU, Mish and ReLU?",
)
def three_clusters(rows: Sequence[Row]) -> Measured:
    """Six activations fall into three clusters: saturating, self-gated, ReLU"""
    acts, points = _points(rows)
    found = rec.clusters(points)
    clusters = [[a for a, g in zip(acts, found.labels) if g == k] for k in sorted(set(found.labels))]
    same = {frozenset(g) for g in clusters} == {
        frozenset(("sigmoid", "tanh")),
        frozenset(SELF_GATED),
        frozenset(("relu",)),
    }
    return Measured(
        found.silhouettes.get(3, float("-inf")),
        "silhouette at k = 3; the paper .722, and the best",
        facts={
            **{f"k = {k}": v for k, v in found.silhouettes.items()},
            "groups at the best k": "; ".join(", ".join(g) for g in clusters),
        },
        ok=found.best == 3 and same,
    )


@claim(
    "E27-self-gated",
    above(0.95, "> 0.95"),
    setups=partial(by_way, operands=False),
    uses={"check": "activations"},
    choices=(*CHOICES, STIFFNESS),
)
def self_gated(rows: Sequence[Row]) -> Measured:
    """GELU, SiLU and Mish keep more than 95 % of the pixels active at any stiffness"""
    lowest = {a: float(table(rows, "active", act=a)[1].mean(1).min()) for a in SELF_GATED}
    return Measured(
        min(lowest.values()),
        "smallest active share over α and activations; f(α(z − c))/α is ReLU in the limit of large α",
        facts=lowest,
    )


@claim(
    "E27-saturating",
    below(1, "falls"),
    setups=without_iou,
    uses={"check": "activations"},
    choices=(*CHOICES, STIFFNESS),
)
def saturating(rows: Sequence[Row]) -> Measured:
    """Sigmoid and tanh lose active pixels from stiffness 20 to 40"""
    shares = {a: table(rows, "active", act=a) for a in ("sigmoid", "tanh")}
    by = {a: dict(zip(x.tolist(), v.mean(1).tolist())) for a, (x, v) in shares.items()}
    left = max(v[40.0] / max(v[20.0], 1e-12) for v in by.values())
    facts = {f"{a} by stiffness {', '.join(f'{x:g}' for x in v)}": list(v.values()) for a, v in by.items()}
    return Measured(left, "active share at α = 40 over that at 20, larger of the two", facts=facts)


@claim(
    "E30",
    "lower IoU everywhere",
    setups=by_start,
    uses={"check": "joint"},
    plot=drawn(lambda rows: pictures.learned(some(rows, start="random"))),
    choices=(*CHOICES, LEARNED),
    question="Does IoU compare the input with the picture that made the target? There, and hardly elsewhere, it is so.",
)
def joint(rows: Sequence[Row]) -> Measured:
    """Learning the kernel too is harder at every stiffness"""
    alphas, fixed = table(rows, "fixed_iou")
    joint = table(rows, "joint_iou")[1]
    harder = int((joint.mean(1) < fixed.mean(1)).sum())
    ratio = table(rows, "joint_active")[1].mean(1) / np.maximum(table(rows, "fixed_active")[1].mean(1), 1e-9)
    return Measured(
        harder / len(alphas),
        f"share of {len(alphas)} stiffness values where the learned kernel ends lower",
        facts={
            "IoU fixed": fixed.mean(1).tolist(),
            "IoU learned": joint.mean(1).tolist(),
            "active ratio, least and most": [float(ratio.min()), float(ratio.max())],
            "over seeds": str(stats.wilcoxon(fixed.mean(0), joint.mean(0))),
        },
        ok=harder == len(alphas),
    )
