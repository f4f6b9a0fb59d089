"""Claims on what gate density is good for: pruning and fine-tuning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from netvitals.gates import SCORES
from netvitals_lab import Claims, Measured, Plot, Row, Series, Verdict, not_run, stats
from netvitals_lab.engine.claim import PAIRS
from netvitals_lab.engine.judges import compared, difference
from netvitals_lab.engine.verdict import Fact
from netvitals_lab.papers.gate_density.fine_tuning import correlations

SMOOTH = ("gelu", "silu", "mish")


def _accuracy(rows: Sequence[Row], act: str, score: str) -> np.ndarray:
    """(seeds, ratios)."""
    mine = [r for r in rows if (r["act"], r["score"]) == (act, score)]
    seeds = sorted({r["seed"] for r in mine})
    return np.array([[r["accuracy"] for r in sorted(mine, key=lambda r: r["ratio"]) if r["seed"] == s] for s in seeds])


def _gaps(rows: Sequence[Row], act: str, other: str = "magnitude") -> list[float]:
    """Accuracy pruned by gates minus pruned by ``other``, mean over ratios, of every seed: ratios of one run are not
    independent, as the paper's test takes them to be."""
    return (_accuracy(rows, act, "gate") - _accuracy(rows, act, other)).mean(1).tolist()


def _told(rows: Sequence[Row], act: str) -> dict[str, Fact]:
    gate, magnitude = _accuracy(rows, act, "gate"), _accuracy(rows, act, "magnitude")
    whole = np.mean([r["whole"] for r in rows if r["act"] == act])
    costs = [float(whole - scored[:, 0].mean()) for scored in (gate, magnitude)]
    try:
        test = str(stats.paired_t(gate.ravel(), magnitude.ravel()))
    except ValueError as error:
        test = str(error)
    return {
        f"{act}: gate minus magnitude by seed": _gaps(rows, act),
        f"{act}: the paper's test, over seeds × ratios": test,
        f"{act}: gate minus random channels, by seed": _gaps(rows, act, "random"),
        f"{act}: cost at the smallest ratio by gate, magnitude": costs,
    }


def _curves(rows: Sequence[Row]) -> Plot:
    ratios = sorted({r["ratio"] for r in rows})
    return Plot(
        "share of channels pruned",
        "test accuracy",
        [
            Series(
                f"{act}, {score}",
                ratios,
                _accuracy(rows, act, score).mean(0).tolist(),
                line=True,
                dashed=score == "random",
            )
            for act in ("relu", "gelu")
            for score in SCORES
        ],
    )


def _null(rows: Sequence[Row], version: str) -> Measured:
    found = correlations(rows, version)
    pearson, spearman = found["all"]
    runs = len([r for r in rows if r["version"] == version])
    seen = math.tanh((1.96 + 0.84) / math.sqrt(runs - 3)) if runs > 3 else 1.0  # Fisher's z, in four of five
    return Measured(
        pearson.value,
        "; ".join(f"{name}: {a}, {b}" for name, (a, b) in found.items()),
        facts={"a correlation that would have been seen": seen},
        ok=pearson.p > 0.05 and spearman.p > 0.05,
    )


def _scatter(rows: Sequence[Row]) -> Plot:
    return Plot(
        "final density at 0.01",
        "accuracy after fine-tuning",
        [
            Series(
                f"{o}, {v}",
                [r["density"] for r in rows if (r["optimizer"], r["version"]) == (o, v)],
                [r["accuracy"] for r in rows if (r["optimizer"], r["version"]) == (o, v)],
            )
            for o in dict.fromkeys(r["optimizer"] for r in rows)
            for v in ("seen", "unseen")
        ],
    )


claim = Claims("gate-density", study="gate-density-pruning")


@claim("C17", "gate below magnitude", seeds=PAIRS, plot=_curves)
def smooth(rows: Sequence[Row]) -> Verdict:
    """Pruning by gate density is harmful for smooth activations

    Over seeds: the mean gap of the smooth activations is below zero with its whole interval.
    """
    acts = [a for a in SMOOTH if any(r["act"] == a for r in rows)]
    facts = {name: fact for a in acts for name, fact in _told(rows, a).items()}
    by_seed = np.mean([_gaps(rows, a) for a in acts], axis=0).tolist()
    return compared(by_seed, -1, note="accuracy, gate minus magnitude, mean over smooth activations", facts=facts)


@claim("E18-relu", "no difference that can be told", uses={"act": "relu"}, seeds=PAIRS)
def relu(rows: Sequence[Row]) -> Measured | Verdict:
    """For ReLU pruning by gates is as good as by magnitude

    No difference that can be told over seeds; what could have been told is in the facts.
    """
    gaps = _gaps(rows, "relu")
    if len(gaps) < 2:
        return not_run(f"{len(gaps)} seed is no spread")
    found = difference(gaps)
    facts: dict[str, Fact] = {"a difference that would have been seen": found.power, **_told(rows, "relu")}
    note = "accuracy, gate minus magnitude; holds where the interval has zero in it"
    more: dict[str, Any] = {"interval": (found.low, found.high), "seeds": found.pairs, "facts": facts}
    return Measured(found.value, note, **more, ok=found.low <= 0 <= found.high)


@claim("E20", "p > 0.05", study="gate-density-fine-tuning", plot=_scatter)
def seen(rows: Sequence[Row]) -> Measured:
    """Final density does not foretell fine-tuning accuracy on data that was seen"""
    return _null(rows, "seen")


@claim("E20-unseen", "p > 0.05", study="gate-density-fine-tuning")
def unseen(rows: Sequence[Row]) -> Measured:
    """Nor on data the checkpoint has not seen"""
    return _null(rows, "unseen")
