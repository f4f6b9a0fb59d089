"""What training shows: X22, X24, X30, X32, the mixtures of X28, and λ over training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals_lab import Claims, Measured, Plot, Row, Series, Verdict, fails, not_run
from netvitals_lab.engine.judges import column, groups, some

STUDY = "dead-directions-learning"


def _spread(rows: Sequence[Row], name: str) -> tuple[int, int, list[str]]:
    """Seeds in which all measurements after lie above all before, seeds, and the medians in words."""
    clear, words = 0, []
    runs = sorted(groups(rows, "seed").items())
    for _, run in runs:
        before, after = (column(run, name, when=w) for w in ("before", "after"))
        clear += max(before) < min(after)
        words.append(f"{np.median(before):.2g} → {np.median(after):.2g}")
    return clear, len(runs), words


def _over_training(rows: Sequence[Row]) -> Plot:
    run = sorted(rows, key=lambda r: r["step"])
    steps = [r["step"] for r in run]
    return Plot(
        "step",
        "learning coefficient λ",
        (
            Series("λ, with its standard error", steps, [r["lam"] for r in run], [r["stderr"] for r in run], line=True),
            Series("loss", steps, [r["loss"] for r in run], line=True, dashed=True, right=True),
        ),
        right_label="loss",
        log_right=True,
    )


def _floor_over_training(rows: Sequence[Row]) -> Plot:
    run = sorted(some(rows, seed=min(r["seed"] for r in rows)), key=lambda r: r["step"])
    steps = [r["step"] + 1 for r in run]
    return Plot(
        "step + 1",
        "λ_min of the hidden activations",
        (
            Series("λ_min", steps, [r["smallest"] for r in run], line=True),
            Series("training accuracy", steps, [r["train"] for r in run], line=True, dashed=True, right=True),
            Series("test accuracy", steps, [r["test"] for r in run], line=True, right=True),
        ),
        log_x=True,
        log_y=True,
        right_label="accuracy",
    )


claim = Claims("dead-directions", study=STUDY)


@claim("X28-mixture", "within 4 standard errors", uses={"check": "mixture"})
def mixture(rows: Sequence[Row]) -> Measured:
    """ν(2) on a mixture that merges, at four weights"""
    worst = max(abs(r["nu"] - r["predicted"]) / r["nu_stderr"] for r in rows)
    above = min((r["nu"] - r["data_free"]) / r["nu_stderr"] for r in rows)
    tight = max(r["nu_stderr"] / r["predicted"] for r in rows) < 0.05
    return Measured(
        worst,
        note="largest gap to ν(2) in standard errors, weights "
        + ", ".join(f"{r['weight']:g}: {r['nu']:.4f} ± {r['nu_stderr']:.4f}" for r in rows)
        + f"; at least {above:.0f} standard errors above the part without data fluctuation",
        ok=worst < 4 and above > 3 and tight,
    )


@claim("X30", "above all earlier measurements", uses={"check": "expansion"})
def expansion(rows: Sequence[Row]) -> Measured:
    """new classes make κ(G) of the head spike

    Printed: κ(G) spikes.
    """
    found = {steps: _spread(group, "kappa") for steps, group in sorted(groups(rows, "steps").items())}
    parts = [f"after {steps} steps in {c} of {n} seeds ({', '.join(w)})" for steps, (c, n, w) in found.items()]
    return Measured(
        parts[0],
        note="κ(G) of the head above all earlier measurements "
        + "; ".join(parts)
        + "; the smallest eigenvalue of a trained head is known from a few samples only, so that an earlier run on "
        "other blobs, clear in 5 of 5 seeds after 150 steps, is no contradiction: its spread between runs is as large",
        ok=all(clear == seeds for clear, seeds, _ in found.values()),
    )


@claim("X30-largest", "every seed", uses={"check": "expansion"})
def largest(rows: Sequence[Row]) -> Measured:
    """new classes show in λ_max(G) of the head and not in A"""
    found = {steps: _spread(group, "largest") for steps, group in sorted(groups(rows, "steps").items())}
    least = min(clear / seeds for clear, seeds, _ in found.values())
    inputs = [
        float(np.median(column(run, "inputs", when="after")) / np.median(column(run, "inputs", when="before")))
        for run in groups(rows, "seed", "steps").values()
    ]
    return Measured(
        least,
        "seeds in which λ_max(G) after lies above all measurements before; κ(A) never rises with it",
        facts={
            **{f"{steps} steps: {clear} of {n}": words for steps, (clear, n, words) in found.items()},
            "κ(A) changes by": [min(inputs), max(inputs)],
        },
        ok=least == 1.0 and max(inputs) < 2,
    )


@claim("X32", "up, then down", uses={"check": "grokking"}, plot=_floor_over_training)
def phases(rows: Sequence[Row]) -> Measured | Verdict:
    """λ_min rises while a network memorises and falls while it compresses"""
    rises, falls, words = [], [], []
    for s in sorted({r["seed"] for r in rows}):
        run = sorted(some(rows, seed=s), key=lambda r: r["step"])
        if run[-1]["train"] < 0.99 or run[-1]["test"] < 0.95:
            return not_run("the network did not generalise: run it at a larger scale")
        memory = next(i for i, r in enumerate(run) if r["train"] > 0.99)
        peak = max(range(len(run)), key=lambda i: run[i]["smallest"])
        low = min(run[peak:], key=lambda r: r["smallest"])
        rises.append(run[peak]["smallest"] / run[0]["smallest"])
        falls.append(run[peak]["smallest"] / low["smallest"])
        words.append(
            f"memorised at {run[memory]['step']}, peak at {run[peak]['step']}, lowest after it at {low['step']}"
        )
        if run[memory]["smallest"] < 2 * run[0]["smallest"]:
            return fails(rises[-1], note=f"λ_min had not risen when the training set was memorised; {words[-1]}")
    return Measured(
        f"×{min(rises):.1f} up, ×{min(falls):.1f} down",
        f"factors of λ_min of the hidden activations, smallest over seeds; steps: {'; '.join(words)}",
        ok=min(rises) > 2 and min(falls) > 2,
    )


@claim("LLC", "below D/2", uses={"check": "coefficient"}, plot=_over_training)
def coefficient(rows: Sequence[Row]) -> Measured:
    """the learning coefficient of a trained net lies far below half its parameters"""
    run = sorted(rows, key=lambda r: r["step"])
    first, last = run[0], run[-1]
    ok = (
        last["lam"] + 4 * last["stderr"] < last["parameters"] / 2
        and last["lam"] > 4 * last["stderr"]
        and not any(r["diverged"] for r in run)
        and last["loss"] < first["loss"]
    )
    return Measured(
        last["lam"],
        note=f"λ goes from {first['lam']:.1f} to {last['lam']:.1f} while "
        f"the loss falls from {first['loss']:.3f} to {last['loss']:.3f}; a regular model of its size would "
        f"have {last['parameters'] / 2:g}",
        stderr=last["stderr"],
        ok=ok,
    )
