"""Claims C5 (norms) and C16 with E2, E17 (architectures, effective rank). Every pooling is told."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from netvitals_lab import Claims, Measured, Row
from netvitals_lab.engine.claim import PAIRS
from netvitals_lab.papers.gate_density import _pictures as pictures
from netvitals_lab.papers.gate_density._reading import acts, changes, shrinkage, some, span, split, test
from netvitals_lab.papers.gate_density._recorder import key
from netvitals_lab.papers.gate_density._training import SMOOTH
from netvitals_lab.papers.gate_density.ablations import VIT, norm_of

NORMS, ARCHITECTURES = "gate-density-norms", "gate-density-architectures"
POOLINGS = ("element", "site", "channel")
RANKS = ("rank_entropy", "rank_stable", "rank_participation")


def _convolutional(rows: Sequence[Row]) -> set[str]:
    return {n for n in {r["network"] for r in rows} if norm_of(n) == "batch"}


def _rank_signs(rows: Sequence[Row], name: str = "rank_entropy") -> dict[bool, float]:
    """Share of runs with a rising rank, for convolutional networks (True) and the others."""
    inside = _convolutional(rows)
    rising = {k: [r[f"{name} change"] > 0 for r in some(rows) if (r["network"] in inside) == k] for k in (True, False)}
    return {k: float(np.mean(v)) if v else float("nan") for k, v in rising.items()}


_rank_picture = partial(
    pictures.by_condition,
    x="rank_entropy change",
    y="D@0.01 element all change",
    x_label="change of effective rank (entropy)",
    y_label="change of density, θ = 0.01, by element",
)


claim = Claims("gate-density", study=ARCHITECTURES, seeds=PAIRS)


@claim(
    "C5",
    "same signs",
    study=NORMS,
    plot=partial(
        pictures.by_condition,
        x="D@0.01 channel all change",
        y="D@0.1 channel all change",
        x_label="change of density, θ = 0.01, by channel",
        y_label="the same at θ = 0.10",
    ),
)
def norms(rows: Sequence[Row]) -> Measured:
    """The split is the same under GroupNorm"""
    facts, same, total = [], 0, 0
    for network in dict.fromkeys(r["network"] for r in rows):
        for norm in dict.fromkeys(r["norm"] for r in rows):
            runs = some(rows, network=network, norm=norm)
            for pooling in POOLINGS if "mlp" not in network else POOLINGS[:1]:
                ok, text = split(runs, 0.01, pooling)
                facts.append(f"{network}, {norm}, by {pooling}: {text}; σ {span(shrinkage(runs), '+.0%')}")
                if norm == "group":
                    same, total = same + ok, total + 1
    return Measured(
        f"{same} of {total}",
        "networks and poolings in which GroupNorm shows the split in every seed, θ = .01; " + ". ".join(facts),
        ok=same == total,
    )


@claim(
    "C16",
    "smooth up everywhere, ReLU down and rank up in convolutional networks only",
    plot=partial(pictures.density_by_epoch, theta=0.01),
)
def smooth(rows: Sequence[Row]) -> Measured:
    """The rise of smooth activations generalises to other architectures; the decline of ReLU and the rise of rank
    belong to convolutional networks

    Smooth activations everywhere; ReLU by family.
    """
    facts, good, total = [], 0, 0
    falls: dict[bool, list[float]] = {True: [], False: []}
    for network in dict.fromkeys(r["network"] for r in rows):
        runs = some(rows, network=network)
        for act in acts(runs):
            values = {p: changes(some(runs, act=act), 0.01, p) for p in POOLINGS}
            if act in SMOOTH:
                good, total = good + sum(v > 0 for v in values["element"]), total + len(values["element"])
            else:
                falls[network in _convolutional(rows)] += values["element"]
            facts.append(
                f"{network}, {act} " + ", ".join(f"{p} {span([100 * v for v in vs])}" for p, vs in values.items())
            )
    down, up = (sum(v < 0 for v in falls[k]) for k in (True, False))
    ranks = _rank_signs(rows)
    ok = good == total and down == len(falls[True]) and up < len(falls[False]) and ranks[True] == 1 > ranks[False]
    return Measured(
        f"smooth {good} of {total} up; ReLU {down} of {len(falls[True])} down in convolutional networks, "
        f"{up} of {len(falls[False])} in the others",
        note=f"θ = .01, by element; effective rank rises in "
        f"{ranks[True]:.0%} of convolutional runs and {ranks[False]:.0%} of the others. In points: " + "; ".join(facts),
        ok=ok,
    )


@claim("E2", "all fall", uses={"act": "relu"}, plot=partial(pictures.density_by_epoch, theta=0.01, beside="accuracy"))
def accuracy_rises(rows: Sequence[Row]) -> Measured:
    """In convolutional ReLU networks density falls in every run while accuracy rises

    E2: density of ReLU falls while accuracy rises, in convolutional networks.
    """
    runs = [r for r in some(rows, act="relu") if r["network"] in _convolutional(rows)]
    by = {p: changes(runs, 0.01, p) for p in POOLINGS}
    accuracy = [r["accuracy"] for r in runs]
    counts = {p: sum(v < 0 for v in vs) for p, vs in by.items()}
    nets = "; ".join(
        f"{n} " + ", ".join(f"{p} {span([100 * v for v in changes(some(runs, network=n), 0.01, p)])}" for p in POOLINGS)
        for n in dict.fromkeys(r["network"] for r in runs)
    )
    return Measured(
        f"{counts['element']} of {len(runs)} fall",
        note=f"by element ({test(by['element'])}); by site {counts['site']}, by channel {counts['channel']}; "
        f"final accuracy {span(accuracy, '.3f')}. In points: {nets}",
        ok=counts["element"] == len(runs) and min(accuracy) > 0.5,
    )


@claim(
    "E2-vit",
    "all rise",
    uses={"network": VIT},
    choices=("CIFAR images enlarged to 224 × 224; truncated-normal weights; rate 0.1 with a batch of 128",),
    seeds=0,
)
def ceiling(rows: Sequence[Row]) -> Measured:
    """In ViT-B/16 with GELU density rises towards its ceiling in 4 of 4 runs

    §4: density of ViT-B/16 rises in all of its runs; the facts say to where.
    """
    found = {f"{r['data']}, seed {r['seed']}": r for r in some(rows)}
    change = [r[f"{key(0.01)} change"] for r in found.values()]
    facts = {name: [r[f"{key(0.01)} first"], r[f"{key(0.01)} last"]] for name, r in found.items()}
    up = sum(c > 0 for c in change)
    return Measured(f"{up} of {len(change)} rise", "density at θ = .01, first, last", facts=facts, ok=up == len(change))


@claim("E17", "all rise", plot=_rank_picture)
def rank(rows: Sequence[Row]) -> Measured:
    """Effective rank rises in every condition

    E17: no verdict on activations can rest on it.
    """
    facts, signs = [], []
    for network in dict.fromkeys(r["network"] for r in rows):
        for act in acts(rows):
            runs = some(rows, network=network, act=act)
            signs += [r["rank_entropy change"] > 0 for r in runs]
            facts.append(f"{network} {act} " + "/".join(f"{np.mean(shrinkage(runs, n)):+.0%}" for n in RANKS))
    up = sum(signs)
    return Measured(
        f"{up} of {len(signs)} rise",
        note="effective rank of the centred penultimate "
        "features, entropy/stable/participation, mean change: " + "; ".join(facts),
        ok=up == len(signs),
    )
