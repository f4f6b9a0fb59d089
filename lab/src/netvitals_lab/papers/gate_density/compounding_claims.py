"""Claims on depth, activations, learned kernels, deep networks, and the bounds of the appendix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from netvitals_lab import Claim, Expected, Plot, Row, Series, Verdict, decide, not_run, stats
from netvitals_lab.engine.judges import matches, over_setups, some
from netvitals_lab.papers.gate_density import bound_judges as bounds
from netvitals_lab.papers.gate_density import reconstruction as rec
from netvitals_lab.papers.gate_density import transition_pictures as pictures
from netvitals_lab.papers.gate_density.setups import (
    CHOICES,
    LEARNED,
    STIFFNESS,
    by_start,
    by_way,
    drawn,
    everywhere,
    first,
)
from netvitals_lab.papers.gate_density.transition import table

STUDY = "gate-density-compounding"
EXPONENT = -0.674  # of the rate of the depth law
CHOICES_OF = {
    "depth": CHOICES,
    "joint": (*CHOICES, LEARNED),
    "activations": (*CHOICES, STIFFNESS),
}
QUESTIONS = {
    "E27": "How does stiffness enter GELU, SiLU, Mish and ReLU?",
    "E30": "Does IoU compare the input with the picture that made the target? There, and hardly elsewhere, it is so.",
}
Judge = Callable[[Sequence[Row]], Verdict]
SELF_GATED = ("gelu", "silu", "mish")
TABLE_8 = {16.0: 0.031, 20.0: 0.029, 25.0: 0.026, 40.0: 0.017, 60.0: 0.012}  # c by stiffness


def _depth(rows: Sequence[Row]) -> Verdict:
    ratios: dict[str, list[float]] = {}
    for second in dict.fromkeys(r["second"] for r in rows):
        alphas, one = table(rows, "one", second=second)
        two = table(rows, "effective", second=second)[1].mean(1)
        stiff = alphas >= 20
        ratios[second] = (two[stiff] / np.maximum(one.mean(1)[stiff], 1e-12)).tolist()
    worst = max(map(max, ratios.values()))
    facts = {f"{second} on top, by stiffness from 20 on": by for second, by in ratios.items()}
    return decide(worst < 1, worst, note="largest F² over F¹ from α = 20 on", facts=facts)


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


def _law_anywhere(rows: Sequence[Row]) -> Verdict:
    """The exponent in every set-up; how sure its fit is, in ours."""
    found = everywhere(_law, operands=False, printed=EXPONENT)(rows)
    return replace(found, facts={**found.facts, "its R² over resampled seeds": _bootstrapped(first(rows))})


def _independence(rows: Sequence[Row]) -> Verdict:
    values = np.abs(np.concatenate([r["correlation"] for r in rows]))
    return decide(
        bool(values.max() < 0.5),
        float(values.mean()),
        note=f"mean |corr(Γ¹, A₂ᵀΓ²)| over {values.size} "
        f"solutions; the largest is {values.max():.3f} (the paper: mean .201, below .50 always)",
    )


def _points(rows: Sequence[Row]) -> tuple[list[str], np.ndarray]:
    acts = list(dict.fromkeys(r["act"] for r in rows))
    return acts, np.array(
        [np.r_[table(rows, "active", act=a)[1].mean(1), table(rows, "iou", act=a)[1].mean(1)] for a in acts]
    )


def _three_clusters(rows: Sequence[Row]) -> Verdict:
    acts, points = _points(rows)
    found = rec.clusters(points)
    clusters = [[a for a, g in zip(acts, found.labels) if g == k] for k in sorted(set(found.labels))]
    same = {frozenset(g) for g in clusters} == {
        frozenset(("sigmoid", "tanh")),
        frozenset(SELF_GATED),
        frozenset(("relu",)),
    }
    return decide(
        found.best == 3 and same,
        found.silhouettes.get(3, float("-inf")),
        note="silhouette at k = 3; the paper .722, and the best",
        facts={
            **{f"k = {k}": v for k, v in found.silhouettes.items()},
            "groups at the best k": "; ".join(", ".join(g) for g in clusters),
        },
    )


def _self_gated(rows: Sequence[Row]) -> Verdict:
    lowest = {a: float(table(rows, "active", act=a)[1].mean(1).min()) for a in SELF_GATED}
    return decide(
        min(lowest.values()) > 0.95,
        min(lowest.values()),
        note="smallest active share over α and activations; f(α(z − c))/α is ReLU in the limit of large α",
        facts=lowest,
    )


def _saturating(rows: Sequence[Row]) -> Verdict:
    shares = {a: table(rows, "active", act=a) for a in ("sigmoid", "tanh")}
    by = {a: dict(zip(x.tolist(), v.mean(1).tolist())) for a, (x, v) in shares.items()}
    left = max(v[40.0] / max(v[20.0], 1e-12) for v in by.values())
    facts = {f"{a} by stiffness {', '.join(f'{x:g}' for x in v)}": list(v.values()) for a, v in by.items()}
    return decide(left < 1, left, note="active share at α = 40 over that at 20, larger of the two", facts=facts)


def _joint(rows: Sequence[Row]) -> Verdict:
    alphas, fixed = table(rows, "fixed_iou")
    joint = table(rows, "joint_iou")[1]
    harder = int((joint.mean(1) < fixed.mean(1)).sum())
    ratio = table(rows, "joint_active")[1].mean(1) / np.maximum(table(rows, "fixed_active")[1].mean(1), 1e-9)
    return decide(
        harder == len(alphas),
        harder / len(alphas),
        note=f"share of {len(alphas)} stiffness values where the learned kernel ends lower",
        facts={
            "IoU fixed": fixed.mean(1).tolist(),
            "IoU learned": joint.mean(1).tolist(),
            "active ratio, least and most": [float(ratio.min()), float(ratio.max())],
            "over seeds": str(stats.wilcoxon(fixed.mean(0), joint.mean(0))),
        },
    )


def _by(column: str, key: str) -> Callable[[Sequence[Row]], Plot]:
    def plot(rows: Sequence[Row]) -> Plot:
        series = []
        for value in dict.fromkeys(r[key] for r in rows):
            alphas, values = table(rows, column, **{key: value})
            series.append(Series(str(value), alphas.tolist(), values.mean(1).tolist(), line=True))
        return Plot("stiffness", column, series, log_x=True)

    return plot


def _claim(
    name: str,
    statement: str,
    expected: str,
    judge: Judge,
    check: str,
    plot: Callable[[Sequence[Row]], Plot] | None = None,
) -> Claim:
    return Claim(
        id=f"gate-density/{name}",
        study=STUDY,
        statement=statement,
        expected=Expected(direction=expected),
        judge=judge,
        uses=matches(check=check),
        plot=plot,
        choices=CHOICES_OF.get(check, ()),
        question=QUESTIONS.get(name, ""),
    )


CLAIMS = (
    _claim(
        "C19",
        "Lemma A.1: the gradient is at most (α/2)‖Aᵀ(h − y)‖",
        "never violated",
        bounds.lemma_a1,
        "gradient bound",
    ),
    _claim(
        "C20",
        "Theorem A.2: the mean active share is at most 1 − 2ε/α, and tends to 0",
        "never violated",
        bounds.theorem_a2,
        "active bound",
    ),
    _claim(
        "C21",
        "Theorem A.3: from α = 16 on a second layer leaves at most 1/(1 + c₂α) of the active share",
        "never violated",
        everywhere(bounds.theorem_a3, operands=False),
        "depth",
        drawn(_by("effective", "second")),
    ),
    _claim(
        "E26",
        "Two layers have fewer active pixels than one at large stiffness",
        "F² < F¹",
        everywhere(_depth, operands=False),
        "depth",
    ),
    _claim(
        "E26-law",
        "The rate of the depth law falls as 0.211 α^(−0.674)",
        "exponent −0.674",
        _law_anywhere,
        "depth",
        drawn(pictures.rates),
    ),
    _claim(
        "E26-independence",
        "The gates of the two layers are nearly independent",
        "|corr| < 0.5",
        everywhere(_independence, operands=False),
        "depth",
        drawn(pictures.independence),
    ),
    _claim(
        "E27",
        "Six activations fall into three clusters: saturating, self-gated, ReLU",
        "k = 3",
        over_setups(_three_clusters, by_way),
        "activations",
        drawn(lambda rows: _by("active", "act")([r for r in rows if r["way"] == "divided"])),
    ),
    _claim(
        "E27-self-gated",
        "GELU, SiLU and Mish keep more than 95 % of the pixels active at any stiffness",
        "> 0.95",
        over_setups(_self_gated, lambda rows: by_way(rows, operands=False)),
        "activations",
    ),
    _claim(
        "E27-saturating",
        "Sigmoid and tanh lose active pixels from stiffness 20 to 40",
        "falls",
        everywhere(_saturating, operands=False),
        "activations",
    ),
    _claim(
        "E30",
        "Learning the kernel too is harder at every stiffness",
        "lower IoU everywhere",
        over_setups(_joint, by_start),
        "joint",
        drawn(lambda rows: pictures.learned(some(rows, start="random"))),
    ),
)
