"""Claims on what the epochs of a run show: when means turn negative (A.3), and bands of the gate's size (Fig. 10).

They ask the rows of the sweep over activations and of the ablation on images; nothing is trained for them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals_lab import Claims, Measured, Plot, Row, Series, stats
from netvitals_lab.engine.claim import PAIRS
from netvitals_lab.engine.judges import at_level, groups
from netvitals_lab.papers.gate_density._reading import acts, some
from netvitals_lab.papers.gate_density._training import SMOOTH
from netvitals_lab.papers.gate_density.table_claims import SGD, images
from netvitals_lab.papers.gate_density.trajectories import NINE, TEACHER

SWEEP, IMAGES = "gate-density-sweep", "gate-density-images"
BY = 6  # epoch by which the paper has all means negative
SMALL = 0.3  # of a correlation that is called none


def path(rows: Sequence[Row], act: str, column: str = "mu") -> tuple[list[int], list[float]]:
    """Epochs, and the mean over runs of a column."""
    by = sorted(groups(some(rows, "epoch", act=act), "epoch").items())
    return [e for e, _ in by], [float(np.mean([r[column] for r in rs])) for _, rs in by]


def turned(epochs: Sequence[int], values: Sequence[float]) -> int | None:
    """The first epoch from which on all values are negative.

    >>> turned([-1, 0, 1, 2], [0.1, -0.1, 0.2, -0.3]), turned([0, 1], [-1.0, 1.0])
    (2, None)
    """
    after = [i for i, v in enumerate(values) if v >= 0]
    first = after[-1] + 1 if after else 0
    return epochs[first] if first < len(epochs) else None


def means(rows: Sequence[Row]) -> Plot:
    series = [Series(a, *path(rows, a), line=True) for a in NINE if any(r["act"] == a for r in rows)]
    return Plot("epoch", "pooled mean of the inputs", series)


def bands(rows: Sequence[Row]) -> Plot:
    """Figure 10: the median of the gate's size by epoch, with the 5th and the 95th percentile."""
    runs = [r for r in rows if r["quantity"] == "epoch" and r.get("optimizer") == "sgd"]
    series = []
    for tone, act in enumerate(acts(runs)):
        for name, dashed in (("q50", False), ("q05", True), ("q95", True)):
            label = f"{act}, median" if name == "q50" else f"{act}, {name[1:]} %"
            series.append(Series(label, *path(runs, act, name), line=True, dashed=dashed, tone=tone))
    return Plot("epoch", "size of the gate", series)


claim = Claims("gate-density", study=SWEEP, seeds=PAIRS)


@claim(
    "A3-turn",
    "9 of 9",
    factor="data",
    uses={"act": NINE},
    plot=at_level(means, "data", TEACHER),
    statement=f"Means start above zero and are negative by epoch {BY} for nine activations",
)
def flips(rows: Sequence[Row]) -> Measured:
    found = {a: path(rows, a) for a in NINE}
    when = {a: turned(*p) for a, p in found.items()}
    start = {a: values[0] for a, (_, values) in found.items()}
    late = [a for a, e in when.items() if e is None or e > BY]
    return Measured(
        f"{len(NINE) - len(late)} of {len(NINE)} by epoch {BY}",
        note="activations whose pooled mean of the inputs is negative from then on, mean over seeds; at the start the "
        "paper has all of them above zero",
        facts={"above zero at the start": sum(v > 0 for v in start.values()), **{a: str(e) for a, e in when.items()}},
        ok=not late and min(start.values()) > 0,
    )


@claim("A3-smoothness", "r = 0.15, p = 0.71", factor="data", uses={"act": NINE})
def unrelated(rows: Sequence[Row]) -> Measured:
    """What differs between their final means does not follow smoothness

    μ at the end, and the epoch at which it turned, against the variance of f′ before training.
    """
    ends = [float(np.mean([r["mu last"] for r in some(rows, act=a)])) for a in NINE]
    index = [float(np.mean([r["variance"] for r in some(rows, act=a)])) for a in NINE]
    when = [turned(*path(rows, a)) for a in NINE]
    line, rank = stats.pearson(index, ends), stats.spearman(index, ends)
    facts = {"by rank": rank.value, "p by rank": rank.p, "p": line.p}
    if all(e is not None for e in when) and len(set(when)) > 1:
        facts["epoch of the turn against the index, by rank"] = stats.spearman(
            index, [float(e or 0) for e in when]
        ).value
    return Measured(
        line.value,
        "correlation over nine activations of the final mean with Var f′ at the start; the paper 0.15, p = 0.71",
        facts=facts,
        ok=line.p > 0.05 and abs(line.value) < SMALL,
    )


@claim("F10", "5th percentile up, 95th down", study=IMAGES, uses=images(**SGD), plot=bands, seeds=0)
def narrowed(rows: Sequence[Row]) -> Measured:
    """Smooth gates narrow from both tails, those of ReLU stay at 0 and 1"""
    runs = some(rows, "epoch", optimizer="sgd")
    facts, ok = {}, True
    for act in [a for a in acts(runs) if a in SMOOTH]:
        low, high = (path(runs, act, q)[1] for q in ("q05", "q95"))
        width = (high[-1] - low[-1]) / (high[0] - low[0])
        ok &= width < 1 and high[-1] < high[0] and low[-1] > low[0]
        facts[f"{act}: 5th and 95th percentile"] = f"{low[0]:.3f} → {low[-1]:.3f}, {high[0]:.3f} → {high[-1]:.3f}"
    two = [r for r in runs if r["act"] == "relu"]
    apart = max((max(abs(r["q01"]), abs(r["q99"] - 1)) for r in two), default=0.0)
    facts["relu: 1st and 99th percentile off 0 and 1 by at most"] = str(round(apart, 6))
    return Measured(
        note="size of the gate over a fixed batch, mean of the sites' percentiles, before and after training",
        facts=facts,
        ok=ok and apart < 1e-9,
    )
