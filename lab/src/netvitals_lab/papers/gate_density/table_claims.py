"""What the paper prints of its images, number by number, beside ours: Tables 1 and 4, §5.1, §5.2 and A.2."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from netvitals_lab import Claims, Config, Measured, Row, Verdict, at_most, not_judged
from netvitals_lab.engine.claim import PAIRS
from netvitals_lab.engine.judges import difference, matches
from netvitals_lab.engine.judges.setups import Setup
from netvitals_lab.papers.gate_density import _pictures as pictures
from netvitals_lab.papers.gate_density._reading import changes, shrinkage, some
from netvitals_lab.papers.gate_density._recorder import POOLINGS
from netvitals_lab.papers.gate_density._training import FOUR, SMOOTH, S
from netvitals_lab.papers.gate_density.drift_claims import TABLE_4, alone, by_pooling, z_low
from netvitals_lab.papers.gate_density.trajectories import NINE, PAPERS_ADAM

STUDY = "gate-density-cnn"
# Table 1: change of σ from the first to the last epoch, by optimizer
SIGMA = {
    "sgd": dict(zip(FOUR, (-0.770, -0.675, -0.662, -0.669))),
    "adamw": dict(zip(FOUR, (-0.009, 0.022, 0.048, 0.047))),
}
GAMMA = dict(zip(FOUR, (-0.81, -0.735, -0.735, -0.735)))  # §5.1; −73 to −74 % of the smooth ones
GATE_MEAN = dict(zip(FOUR, (-0.255, -0.153, -0.090, -0.084)))  # A.2
GELU_TAILS = {"q05 first": 0.041, "q05 last": 0.076, "q95 first": 1.10, "q95 last": 0.88}  # A.2
NEAR = 0.10  # of σ, of γ or of the mean gate at the start
QUARTER = 0.25  # of a printed percentile
BAND = 0.024  # of Table 4: the spread that the paper prints
POINTS = 2.0  # of density
DISTANCE = {"relu": (0.0, 0.03), **dict.fromkeys(SMOOTH, (0.9, 1.5))}  # §5.2: |z_low − μ| / σ
LOWER = (2.0, 4.0)  # A.2: points of accuracy that GroupNorm costs
ROUNDED = 0.5  # points: "~2–4"
LEARNT = 20.0  # per cent: twice chance
SGD: dict[str, Any] = {"optimizer": "sgd", "S": S}


def images(norm: str | tuple[str, ...] = "batch", **where: Any) -> Callable[[Config], bool]:
    """The trials of a claim on the paper's four activations."""
    return matches(**{"act": FOUR, "norm": norm, **where})


def at_own_decay(c: Config) -> bool:
    return images()(c) and c["S"] == {"sgd": S, "adamw": PAPERS_ADAM}.get(c["optimizer"])


def cells(found: Mapping[str, float], printed: Mapping[str, float], note: str, *, relative: bool = False) -> Measured:
    """The largest distance of a printed number that was measured."""
    gaps = {k: abs(v - printed[k]) / (abs(printed[k]) if relative else 1.0) for k, v in found.items()}
    facts = {f"{k}: measured, printed": [v, printed[k]] for k, v in found.items()}
    return Measured(max(gaps.values()), f"largest distance of {len(found)} of {len(printed)} {note}", facts=facts)


def by_act(rows: Sequence[Row], value: Callable[[Sequence[Row]], Sequence[float]], **where: Any) -> dict[str, float]:
    """Mean over the runs of each of the paper's four activations."""
    runs = some(rows, **where)
    mine = {a: [r for r in runs if r["act"] == a] for a in FOUR}
    return {a: float(np.mean(value(of))) for a, of in mine.items() if of}


def all_poolings(rows: Sequence[Row]) -> dict[Setup, list[Row]]:
    """Every pooling of density; the paper names none."""
    return {(f"by {p}",): [{**r, "pooling": p} for r in some(rows)] for p in POOLINGS}


def by_moment(rows: Sequence[Row]) -> dict[Setup, list[Row]]:
    """§5.2 names neither the threshold nor the moment at which it measured how far z_low is from the mean."""
    runs, found = some(rows), dict[Setup, list[Row]]()
    for theta in (0.01, 0.1):
        start = [abs(r["mu first"] - z_low(r["act"], theta)) / r["sigma first"] for r in runs]
        when = {
            "before training": start,
            "after an epoch": [abs(r[f"margin first@{theta:g}"]) for r in runs],
            "at the end": [abs(r[f"margin last@{theta:g}"]) for r in runs],
        }
        for moment, values in when.items():
            found[f"θ = {theta:g}", moment] = [{**r, "distance": v} for r, v in zip(runs, values)]
    return found


claim = Claims("gate-density", study=STUDY, seeds=PAIRS)


@claim(
    "T1",
    at_most(NEAR, "every cell within ten points"),
    seeds=0,
    plot=pictures.sigma_by_optimizer,
    uses=alone(at_own_decay),
    effect="change of σ from before training to the last epoch, mean over channels",
)
def sigma(rows: Sequence[Row]) -> Measured:
    """σ changes by −77.0, −67.5, −66.2, −66.9 % under SGD and by −0.9, +2.2, +4.8, +4.7 % under AdamW (ReLU, GELU,
    SiLU, Mish)

    Every cell of Table 1: the mean over seeds beside the printed one.
    """
    ran = {r["optimizer"] for r in some(rows)}
    found = {f"{a}, {o}": v for o in SIGMA if o in ran for a, v in by_act(rows, shrinkage, optimizer=o).items()}
    printed = {f"{a}, {o}": v for o, by in SIGMA.items() for a, v in by.items()}
    return cells(found, printed, "cells, as a share of σ at the start")


@claim(
    "T4",
    at_most(BAND, "every mean within .024, the spread of the table"),
    setups=by_pooling,
    uses=alone(matches(act=NINE, norm="batch", **SGD)),
    choices=("means by element, by channel, and by channel of the sites behind a norm",),
)
def means_at_the_end(rows: Sequence[Row]) -> Measured:
    """At the end the mean of the inputs is −.0458, −.0478, −.0476, −.0568, −.0635, −.0586, −.0508, −.0413, −.0655
    (ReLU, leaky ReLU, Softplus 50, 20, 10, 5, GELU, SiLU, Mish)

    Under each pooling.
    """
    ends = {a: [r["mu last"] for r in rows if r["act"] == a] for a in TABLE_4}
    found = {a: float(np.mean(v)) for a, v in ends.items() if v}
    return cells(found, {a: mu for a, (mu, _) in TABLE_4.items()}, "means of the inputs")


@claim("E8", at_most(NEAR, "every activation within ten points"), uses=images(**SGD))
def gamma(rows: Sequence[Row]) -> Measured:
    """|γ| shrinks by 81 % in ReLU networks and by 73 to 74 % in GELU, SiLU and Mish networks"""
    found = by_act(rows, lambda runs: shrinkage(runs, "gamma"))
    return cells(found, GAMMA, "activations, as a share of |γ| at the start")


@claim(
    "E9-distance",
    "0 to .03 σ, and .9 to 1.5 σ",
    setups=by_moment,
    uses=images(**SGD),
    choices=("θ = .01 and .10; before training, after an epoch, and at the end; median over channels",),
    question="At which threshold and epoch do z_low and the channels' means lie .9 to 1.5 σ apart?",
)
def distances(rows: Sequence[Row]) -> Measured:
    """ReLU's z_low lies within .03 σ of its channels' mean, those of GELU, SiLU and Mish .9 to 1.5 σ away"""
    found = {a: [r["distance"] for r in rows if r["act"] == a] for a in FOUR}
    mean = {a: float(np.mean(v)) for a, v in found.items() if v}
    outside = {a: max(DISTANCE[a][0] - v, v - DISTANCE[a][1], 0.0) for a, v in mean.items()}
    worst = max(outside.values())
    return Measured(worst, "largest distance outside what is printed, in σ", facts=dict(mean), ok=worst == 0)


@claim("A2-mean", at_most(NEAR, "every activation within ten points"), uses=images(**SGD))
def gate_mean(rows: Sequence[Row]) -> Measured:
    """The mean gate falls for all: by 25.5, 15.3, 9.0 and 8.4 % (ReLU, GELU, SiLU, Mish)"""
    found = by_act(rows, lambda runs: shrinkage(runs, "gate_mean"))
    return cells(found, GATE_MEAN, "activations, as a share of the mean gate at the start")


@claim(
    "A2-tails",
    at_most(QUARTER, "every percentile within a quarter"),
    uses={"act": "gelu", "norm": "batch", **SGD},
)
def tails(rows: Sequence[Row]) -> Measured:
    """GELU's 5th percentile of gates rises from .041 to .076, its 95th falls from 1.10 to .88"""
    runs = some(rows, act="gelu")
    found = {name: float(np.mean([r[name] for r in runs])) for name in GELU_TAILS}
    return cells(found, GELU_TAILS, "percentiles of GELU's gates, relative", relative=True)


@claim(
    "A2-sizes",
    "within two points; below 1",
    setups=all_poolings,
    uses=images(**SGD),
    choices=("density by element, by site and by channel",),
)
def sizes(rows: Sequence[Row]) -> Measured:
    """At θ = .01 ReLU falls by about 13 points and the smooth ones rise by less than 1; at .10 these rise by 4.7 to 5.5

    How much density moves, under each pooling.
    """
    pooling = rows[0]["pooling"]
    low, high = (by_act(rows, partial(changes, theta=t, pooling=pooling)) for t in (0.01, 0.1))
    smooth = [a for a in SMOOTH if a in low]
    gaps = [
        max(abs(100 * low["relu"] + 13) - POINTS, 0.0),
        *(max(100 * low[a] - 1, -100 * low[a], 0.0) for a in smooth),
        *(max(4.7 - POINTS - 100 * high[a], 100 * high[a] - 5.5 - POINTS, 0.0) for a in smooth),
    ]
    facts = {f"{a} at θ = .01, .10": [100 * low[a], 100 * high[a]] for a in low}
    return Measured(max(gaps), "points of density outside what is printed, largest", facts=facts, ok=max(gaps) == 0)


@claim(
    "A2-accuracy",
    "2 to 4 points",
    uses=alone(images(("batch", "group"), **SGD)),
    effect="test accuracy with BatchNorm minus that with GroupNorm, paired by seed",
)
def accuracy(rows: Sequence[Row]) -> Measured | Verdict:
    """With GroupNorm accuracy is about 2 to 4 points lower

    The mean over activations, paired by seed.
    """
    runs = some(rows)
    by = {(r["norm"], r["act"], r["seed"]): 100 * r["accuracy"] for r in runs}
    seeds = sorted({seed for norm, _, seed in by if norm == "group"})
    if len(seeds) < 2:
        return not_judged(f"{len(seeds)} seeds were run with GroupNorm", seeds=len(seeds))
    lost = {a: [by["batch", a, s] - by["group", a, s] for s in seeds] for a in FOUR if any(r["act"] == a for r in runs)}
    levels = {n: float(np.mean([v for (norm, *_), v in by.items() if norm == n])) for n in ("batch", "group")}
    if levels["group"] < LEARNT:
        why = (
            f"with GroupNorm the networks did not learn: accuracy {levels['group']:.3g} %, {levels['batch']:.3g} % with"
        )
        return not_judged(f"{why} BatchNorm", seeds=len(seeds))
    found = difference(np.mean(list(lost.values()), axis=0).tolist())
    return Measured(
        found.value,
        interval=(found.low, found.high),
        seeds=found.pairs,
        note="points of accuracy, BatchNorm minus GroupNorm, same recipe",
        facts={
            **{a: float(np.mean(v)) for a, v in lost.items()},
            "accuracy with BatchNorm": levels["batch"],
        },
        ok=LOWER[0] - ROUNDED <= found.value <= LOWER[1] + ROUNDED,
    )
