"""What training shows: X22, X24, X30, X32, the mixtures of X28, and λ over training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from netvitals_lab import Claim, Expected, Plot, Row, Series, Verdict, decide, fails, not_run
from netvitals_lab.engine.judges import column, groups, some
from netvitals_lab.papers.dead_directions._judging import check_is, claim

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


def _expansion(rows: Sequence[Row]) -> Verdict:
    """Printed: κ(G) spikes."""
    found = {steps: _spread(group, "kappa") for steps, group in sorted(groups(rows, "steps").items())}
    parts = [f"after {steps} steps in {c} of {n} seeds ({', '.join(w)})" for steps, (c, n, w) in found.items()]
    return decide(
        all(clear == seeds for clear, seeds, _ in found.values()),
        parts[0],
        note="κ(G) of the head above all earlier measurements "
        + "; ".join(parts)
        + "; the smallest eigenvalue of a trained head is known from a few samples only, so that an earlier run on "
        "other blobs, clear in 5 of 5 seeds after 150 steps, is no contradiction: its spread between runs is as large",
    )


def _largest(rows: Sequence[Row]) -> Verdict:
    found = {steps: _spread(group, "largest") for steps, group in sorted(groups(rows, "steps").items())}
    least = min(clear / seeds for clear, seeds, _ in found.values())
    inputs = [
        float(np.median(column(run, "inputs", when="after")) / np.median(column(run, "inputs", when="before")))
        for run in groups(rows, "seed", "steps").values()
    ]
    return decide(
        least == 1.0 and max(inputs) < 2,
        least,
        note="seeds in which λ_max(G) after lies above all measurements before; κ(A) never rises with it",
        facts={
            **{f"{steps} steps: {clear} of {n}": words for steps, (clear, n, words) in found.items()},
            "κ(A) changes by": [min(inputs), max(inputs)],
        },
    )


def _phases(rows: Sequence[Row]) -> Verdict:
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
    return decide(
        min(rises) > 2 and min(falls) > 2,
        f"×{min(rises):.1f} up, ×{min(falls):.1f} down",
        note=f"factors of λ_min of the hidden activations, smallest over seeds; steps: {'; '.join(words)}",
    )


def _mixture(rows: Sequence[Row]) -> Verdict:
    worst = max(abs(r["nu"] - r["predicted"]) / r["nu_stderr"] for r in rows)
    above = min((r["nu"] - r["data_free"]) / r["nu_stderr"] for r in rows)
    tight = max(r["nu_stderr"] / r["predicted"] for r in rows) < 0.05
    return decide(
        worst < 4 and above > 3 and tight,
        worst,
        note="largest gap to ν(2) in standard errors, weights "
        + ", ".join(f"{r['weight']:g}: {r['nu']:.4f} ± {r['nu_stderr']:.4f}" for r in rows)
        + f"; at least {above:.0f} standard errors above the part without data fluctuation",
    )


def _coefficient(rows: Sequence[Row]) -> Verdict:
    run = sorted(rows, key=lambda r: r["step"])
    first, last = run[0], run[-1]
    ok = (
        last["lam"] + 4 * last["stderr"] < last["parameters"] / 2
        and last["lam"] > 4 * last["stderr"]
        and not any(r["diverged"] for r in run)
        and last["loss"] < first["loss"]
    )
    return decide(
        ok,
        last["lam"],
        last["stderr"],
        note=f"λ goes from {first['lam']:.1f} to {last['lam']:.1f} while "
        f"the loss falls from {first['loss']:.3f} to {last['loss']:.3f}; a regular model of its size would "
        f"have {last['parameters'] / 2:g}",
    )


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


def _claim(
    number: str,
    statement: str,
    check: str,
    expected: Expected,
    judge: Callable[[Sequence[Row]], Verdict],
    **more: Any,
) -> Claim:
    return claim(STUDY, number, statement, expected, judge, check_is(check), **more)


CLAIMS = (
    _claim(
        "X28-mixture",
        "ν(2) on a mixture that merges, at four weights",
        "mixture",
        Expected(direction="within 4 standard errors"),
        _mixture,
    ),
    _claim(
        "X30",
        "new classes make κ(G) of the head spike",
        "expansion",
        Expected(direction="above all earlier measurements"),
        _expansion,
    ),
    _claim(
        "X30-largest",
        "new classes show in λ_max(G) of the head and not in A",
        "expansion",
        Expected(direction="every seed"),
        _largest,
    ),
    _claim(
        "X32",
        "λ_min rises while a network memorises and falls while it compresses",
        "grokking",
        Expected(direction="up, then down"),
        _phases,
        plot=_floor_over_training,
    ),
    _claim(
        "LLC",
        "the learning coefficient of a trained net lies far below half its parameters",
        "coefficient",
        Expected(direction="below D/2"),
        _coefficient,
        plot=_over_training,
    ),
)
