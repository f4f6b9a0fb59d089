"""What training shows: X22, X24, X30, X32, the mixtures of X28, and λ over training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from netvitals.singular import rate_fit
from netvitals_lab import Claim, Expected, Plot, Row, Series, Verdict, decide, fails, not_judged, not_run
from netvitals_lab.engine.judges import column, groups, some
from netvitals_lab.papers.dead_directions._judging import check_is, claim

STUDY = "dead-directions-learning"


def _zeros(rows: Sequence[Row]) -> Verdict:
    if rows[0]["steps"] < 1000:
        return not_run("needs longer training: run it at a larger scale")
    share = {(r["driver"], r["start"]): r["zeros"] for r in rows}
    like_adam = max(v for (d, _), v in share.items() if d in ("adam", "eps 1e-08", "eps 0.0001"))
    text = ", ".join(f"{d} {v:.0%}" for (d, s), v in share.items() if s == "usual")
    if like_adam > 0 and share["sgd", "usual"] == 0:
        return decide(True, like_adam, note=text)
    return not_judged(
        "the paper gives neither the widths, the start, the rate nor the shares of its table, and exact zeros hang on "
        f"them; in the one set-up tried the share of inactive weights that are exactly zero is {text}, the same from a "
        "start that one uncorrected first step would cancel",
        measured=like_adam,
    )


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


def _mixers(rows: Sequence[Row]) -> Verdict:
    least = {n: min(r["ratio"] for r in some(rows, name=n)) for n in ("gelu", "swiglu")}
    slopes = {
        n: rate_fit([r["depth"] + 1 for r in some(rows, name=n)], [r["sigma"] for r in some(rows, name=n)]).slope
        for n in least
    }
    ok = min(least.values()) > 0.1 and max(map(abs, slopes.values())) < 1
    return decide(
        ok,
        min(least.values()),
        note="smallest σ_r over depth against that of the input: "
        + ", ".join(f"{n} {v:.2f} (exponent in depth {slopes[n]:.2f})" for n, v in least.items()),
    )


def _addition(rows: Sequence[Row]) -> Verdict:
    run = sorted(some(rows, name="modular addition"), key=lambda r: r["step"])
    steps, values = [r["step"] for r in run], np.array([r["smallest"] for r in run])
    local = np.diff(np.log(values)) / np.diff(np.log(steps))
    shape = np.array([r["smallest"] / r["trace"] for r in run])
    return decide(
        float(np.ptp(local)) > 1 and local.max() > 0 > local.min(),
        float(np.ptp(local)),
        note=f"spread of the local exponents of λ_min(G) in the step, from {local.max():.1f} to "
        f"{local.min():.1f}: no asymptote; over the trace it only moves between {shape.min():.1g} and "
        f"{shape.max():.1g}, so it follows the loss",
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


def _stream(rows: Sequence[Row]) -> Plot:
    names = [n for n in ("gelu", "swiglu") if any(r["name"] == n for r in rows)]
    return Plot(
        "depth: 0 is the input of the first block",
        "σ_r of the residual stream",
        [
            Series(n, [r["depth"] for r in some(rows, name=n)], [r["sigma"] for r in some(rows, name=n)], line=True)
            for n in names
        ],
        log_y=True,
    )


def _claim(
    number: str,
    statement: str,
    section: str,
    check: str,
    expected: Expected,
    judge: Callable[[Sequence[Row]], Verdict],
    **more: Any,
) -> Claim:
    return claim(STUDY, number, statement, expected, judge, section, check_is(check), **more)


CLAIMS = (
    _claim(
        "X22",
        "Adam-like optimisers put inactive weights of a diagonal net exactly at zero, SGD none",
        "Table 12",
        "diagonal",
        Expected(direction="some exact zeros"),
        _zeros,
    ),
    _claim(
        "X24-mixers",
        "residual mixers with norms have rate 0: the stream's floor does not decay over depth",
        "Table 13",
        "regime",
        Expected(direction="ratio of order one"),
        _mixers,
        plot=_stream,
    ),
    _claim(
        "X24-addition",
        "an MLP under Adam and cross-entropy on modular addition has no rate, only drift",
        "Table 13, Remark 37",
        "regime",
        Expected(direction="no asymptote"),
        _addition,
    ),
    _claim(
        "X28-mixture",
        "ν(2) on a mixture that merges, at four weights",
        "Remark 98",
        "mixture",
        Expected(direction="within 4 standard errors"),
        _mixture,
    ),
    _claim(
        "X30",
        "new classes make κ(G) of the head spike",
        "Algorithm 1",
        "expansion",
        Expected(direction="above all earlier measurements"),
        _expansion,
    ),
    _claim(
        "X30-largest",
        "new classes show in λ_max(G) of the head and not in A",
        "Algorithm 1, corrected",
        "expansion",
        Expected(direction="every seed"),
        _largest,
    ),
    _claim(
        "X32",
        "λ_min rises while a network memorises and falls while it compresses",
        "§12.1",
        "grokking",
        Expected(direction="up, then down"),
        _phases,
        plot=_floor_over_training,
    ),
    _claim(
        "LLC",
        "the learning coefficient of a trained net lies far below half its parameters",
        "§4.13",
        "coefficient",
        Expected(direction="below D/2"),
        _coefficient,
        plot=_over_training,
    ),
)
