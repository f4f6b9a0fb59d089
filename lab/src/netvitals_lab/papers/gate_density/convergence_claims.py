"""Claims on convergence, edges and interiors, clusters, difficulty and learned kernels (Fig. 24, 30, 32, 35, A.9.4)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from netvitals_lab import Claims, Measured, Plot, Row, Series, Verdict, above, below, not_run, stats
from netvitals_lab.engine.judges import Setup, compared, groups, some
from netvitals_lab.papers.gate_density import reconstruction as rec
from netvitals_lab.papers.gate_density.convergence import GROUPS, METHODS, NAME, table
from netvitals_lab.papers.gate_density.setups import (
    CHOICES,
    LEARNED,
    STIFFNESS,
    apart,
    by_start,
    by_way,
    drawn,
    without_iou,
)
from netvitals_lab.papers.gate_density.transition import SUCCESS

FEATURES = ("log(α+1)", "σ_max", "high-pass", "α × high-pass", "log(α+1) × σ_max")


def by_reading(rows: Sequence[Row]) -> dict[Setup, list[Row]]:
    """Set-ups of Figure 30, and three measurements of faster: a lower loss on the way or at the end, a fall done
    sooner."""
    measurements = {
        "mean loss over the iterations": "mean",
        "loss at the end": "final",
        "iterations to 95 % of the fall": "settled",
    }
    return {
        (*setup, word): [{**r, "cost": float(np.mean(r[column]))} for r in mine]
        for setup, mine in apart(rows, operands=False).items()
        for word, column in measurements.items()
    }


def _difficulty(rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    cells = [(r["alpha"], r["sigma_max"], r["high_pass"], i > SUCCESS) for r in rows for i in r["iou"]]
    alphas, sigmas, high, outcome = (list(v) for v in zip(*cells))
    return rec.difficulty_features(alphas, sigmas, high), np.array(outcome, int)


def _predicted(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Held-out chances over five folds, and coefficients of the whole fit in units of the features' spreads."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    chance = cross_val_predict(model, x, y, cv=folds, method="predict_proba")[:, 1]
    return chance, model.fit(x, y)[-1].coef_[0]


def roc(rows: Sequence[Row]) -> Plot:
    x, y = _difficulty(some(rows, check="kernels"))
    if min(y.sum(), len(y) - y.sum()) < 5:
        return Plot("false positives", "true positives", [Series("chance", [0, 1], [0, 1], line=True, dashed=True)])
    rank = np.argsort(-_predicted(x, y)[0], kind="stable")
    hits, misses = np.cumsum(y[rank]) / y.sum(), np.cumsum(1 - y[rank]) / (len(y) - y.sum())
    curve = Series("held out, five folds", [0.0, *misses.tolist()], [0.0, *hits.tolist()], line=True)
    return Plot("false positives", "true positives", [curve, Series("chance", [0, 1], [0, 1], line=True, dashed=True)])


def _effective(rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    """Stiffness values, and the stiffness at which the fixed kernel has the learned one's active share, over them."""
    alphas, fixed = table(rows, "fixed_active")
    learned = table(rows, "joint_active")[1].mean(1)
    falling = np.minimum.accumulate(fixed.mean(1))
    like = np.exp(np.interp(-learned, -falling, np.log(alphas)))  # held at the grid's ends
    return alphas, like / alphas


def bands(rows: Sequence[Row]) -> Plot:
    """Figure 30: mean loss by iteration with one deviation over seeds, at the middle stiffness."""
    curves = some(rows, check="curves")
    alphas = sorted({r["alpha"] for r in curves})
    alpha = alphas[len(alphas) // 2]
    series = [
        Series(f"{r['method']}", r["at"], r["mean"], error=r["deviation"], line=True) for r in some(curves, alpha=alpha)
    ]
    return Plot(f"iteration, α = {alpha:g}", "loss ± deviation over seeds", series)


def effective(rows: Sequence[Row]) -> Plot:
    alphas, ratio = _effective(some(rows, check="joint"))
    norm = table(rows, "norm_ratio", check="joint")[1].mean(1)
    x = alphas.tolist()
    series = [
        Series("effective over nominal stiffness", x, ratio.tolist(), line=True),
        Series("norm of the kernel, learned over fixed", x, norm.tolist(), line=True, dashed=True),
    ]
    return Plot("nominal stiffness", "ratio", series, log_x=True)


def left(rows: Sequence[Row]) -> Plot:
    series = []
    for r in some(rows, check="regions", alpha=20.0):
        for part, dashed in (("edge", False), ("interior", True)):
            series.append(Series(f"{r['target']}, {part}", r["moments"], r[part][1:], line=True, dashed=dashed))
    return Plot("iteration", "share of the error that is left", series, log_x=True)


claim = Claims("gate-density", study=NAME, choices=CHOICES)


@claim("F30", below(1, "faster"), setups=by_reading, uses={"check": "curves"}, plot=drawn(bands))
def faster(rows: Sequence[Row]) -> Measured:
    """Adam converges faster than the others

    Adam's ``cost`` against the smallest of the others, mean over stiffness; what it is, ``by_reading`` says.
    """
    cost = {m: {r["alpha"]: r["cost"] for r in some(rows, method=m)} for m in METHODS}
    mean = {m: float(np.mean(list(v.values()))) for m, v in cost.items()}
    wins = {m: sum(cost["adam"][a] < cost[m][a] for a in cost[m]) / len(cost["adam"]) for m in METHODS[1:]}
    ratio = mean["adam"] / min(mean[m] for m in METHODS[1:])
    return Measured(
        ratio,
        "Adam's cost over the smallest of the others, each a mean over stiffness values; the caption names no α",
        facts={
            **{f"{m}: mean cost": v for m, v in mean.items()},
            **{f"share of stiffness values at which Adam is ahead of {m}": v for m, v in wins.items()},
        },
    )


@claim("F30-spread", "smaller", setups=without_iou, uses={"check": "curves"})
def steadier(rows: Sequence[Row]) -> Verdict:
    """Adam's loss varies less over seeds

    Log deviation of the final loss over seeds: Adam against the mean of the others, one pair a stiffness.
    """
    spread = {m: np.log(table(rows, "final", method=m)[1].std(1, ddof=1)) for m in METHODS}
    others = np.mean([spread[m] for m in METHODS[1:]], axis=0)
    facts = {f"deviation by stiffness, {m}": np.exp(v).tolist() for m, v in spread.items()}
    gaps = (spread["adam"] - others).tolist()
    return compared(gaps, -1, note="log deviation of the final loss over seeds, Adam minus the others", facts=facts)


@claim("F30-stiff", above(0.5, "rises"), setups=without_iou, uses={"check": "curves"})
def stiffer(rows: Sequence[Row]) -> Measured:
    """Variability over runs rises with stiffness"""
    trend = {}
    for m in METHODS:
        alphas, final = table(rows, "final", method=m)
        trend[m] = float(stats.spearman(alphas, final.std(1, ddof=1)).value)
    return Measured(
        min(trend.values()),
        "rank correlation of stiffness and deviation over seeds of the final loss, smallest over methods",
        facts=trend,
    )


@claim("A94-edges", "edges ahead", setups=without_iou, uses={"check": "regions"}, plot=drawn(left))
def first_edges(rows: Sequence[Row]) -> Measured:
    """Boundaries are reconstructed first, interiors later"""
    gaps = [i - e for r in rows for e, i, t in zip(r["edge"][1:], r["interior"][1:], r["moments"]) if t >= 5]
    half = lambda r, part: next((t for t, v in zip(r["moments"], r[part][1:]) if v < 0.5), None)
    facts = {
        f"{r['target']}, α = {r['alpha']:g}: iteration by which half of the error is gone, edges and inside": str(
            (half(r, "edge"), half(r, "interior"))
        )
        for r in rows
    }
    return Measured(
        float(np.mean(gaps)),
        "share of the error that is left inside, minus that left on edges, mean from the fifth iteration on",
        facts={**facts, "smallest": min(gaps)},
        ok=min(gaps) > 0,
    )


@claim(
    "A94-variance",
    "573; far above 1",
    setups=partial(by_way, operands=False),
    printed=573.0,
    uses={"check": "activations"},
    choices=(*CHOICES, STIFFNESS),
)
def between_groups(rows: Sequence[Row]) -> Measured:
    """Between groups of activations the active share varies 573 times as much as within, at α = 40

    Variance of the groups' means over the mean variance within a group, of the active share over seeds too.
    """
    found = {a: np.concatenate([r["active"] for r in rs]) for a, rs in groups(rows, "act").items()}
    pooled = {g: np.concatenate([found[a] for a in names]) for g, names in GROUPS.items()}
    ratio = float(np.var([v.mean() for v in pooled.values()]) / np.mean([v.var() for v in pooled.values()]))
    points = np.array([[v.mean()] for v in found.values()])
    two = sorted(float(v.mean()) for v in found.values())
    best = rec.clusters(points, (2, 3, 4)).best
    return Measured(
        ratio,
        "variance between the three groups over that within, at α = 40; the paper 573, here within a factor of 2",
        facts={
            **{a: float(v.mean()) for a, v in found.items()},
            "clusters that fit best": best,
            "range": two[-1] - two[0],
        },
        ok=573 / 2 < ratio < 573 * 2,
    )


@claim("F32", "the two strongest", setups=apart, uses={"check": "kernels"}, plot=drawn(roc))
def difficult(rows: Sequence[Row]) -> Measured | Verdict:
    """Success is predicted best by the high-pass indicator and log(α+1) × σ_max"""
    x, y = _difficulty(rows)
    if min(y.sum(), len(y) - y.sum()) < 5:
        return not_run(f"{y.sum()} of {len(y)} problems succeed: one outcome is too rare for five folds")
    chance, weights = _predicted(x, y)
    order = [FEATURES[i] for i in np.argsort(-np.abs(weights))]
    auc = stats.cross_validated_auc(x, y)
    return Measured(
        auc.value,
        note="area under the ROC curve (the paper 0.958); its strongest predictors are the high-pass indicator and "
        "log(α+1) × σ_max",
        stderr=auc.stderr,
        facts={
            **dict(zip(FEATURES, weights.tolist())),
            "strongest first": ", ".join(order),
            "accuracy, held out": float(((chance > 0.5) == y).mean()),
            "problems": len(y),
            f"with IoU > {SUCCESS:g}": int(y.sum()),
        },
        ok=set(order[:2]) == {"high-pass", "log(α+1) × σ_max"},
    )


@claim(
    "F35-stiffness",
    "2 to 3",
    setups=partial(by_start, operands=False),
    printed=2.5,
    uses={"check": "joint"},
    plot=drawn(lambda rows: effective(some(rows, check="joint", start="random"))),
    choices=(
        *CHOICES,
        LEARNED,
        "effective stiffness: that of the fixed kernel with the same active share",
    ),
)
def amplified(rows: Sequence[Row]) -> Measured:
    """A learned kernel acts like a stiffness 2 to 3 times the nominal one"""
    alphas, ratio = _effective(rows)
    stiff = alphas >= 7
    norm = table(rows, "norm_ratio")[1].mean(1)
    shares = table(rows, "joint_active")[1].mean(1) / np.maximum(table(rows, "fixed_active")[1].mean(1), 1e-9)
    return Measured(
        float(np.mean(ratio[stiff])),
        note="stiffness at which the fixed kernel has the learned one's active share, over the nominal one, mean from "
        "α = 7 on; the paper 2 to 3",
        facts={
            "by stiffness": ratio.tolist(),
            "norm of the learned kernel over the fixed one's": norm.tolist(),
            "ratio of active shares": shares.tolist(),
        },
        ok=bool((ratio[stiff] > 1.5).all()),
    )


@claim(
    "F35-independent",
    "r = 0.082, p = 0.82",
    setups=by_start,
    uses={"check": "joint"},
    choices=(
        *CHOICES,
        LEARNED,
        "stiffness values from 7 on",
    ),
)
def independent(rows: Sequence[Row]) -> Measured:
    """The deficit of active gates does not predict the gap of IoU over stiffness values"""
    mean = lambda column: table(rows, column)[1].mean(1)
    alphas = table(rows, "fixed_iou")[0]
    stiff = alphas >= 7
    deficit = (mean("fixed_active") - mean("joint_active"))[stiff]
    gap = (mean("fixed_iou") - mean("joint_iou"))[stiff]
    found = stats.pearson(deficit, gap)
    return Measured(
        found.value,
        note=f"correlation of the deficit of active gates and the gap of IoU over {stiff.sum()} stiffness values from "
        f"7 on, p = {found.p:.2g}; the paper 0.082, p = 0.82",
        ok=found.p > 0.05 and abs(found.value) < 0.3,
    )
