"""E4: the exponent off the manifold, at He-normal initialisation: SGD on fresh batches, and the adaptive flow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from netvitals import saddle
from netvitals.saddle.measure.signal import stack_signal
from netvitals.saddle.students import trajectories
from netvitals.saddle.students.task import aligned_sample, antithetic_sample
from netvitals_lab import (
    Claims,
    Config,
    Measured,
    Plot,
    Resources,
    Row,
    Series,
    Study,
    Verdict,
    at_most,
    fails,
    holds,
    not_reproduced,
)

THRESHOLDS = (0.05, 0.02, 0.01)
WINDOWS = {3: (0.01, 0.3), 5: (0.06, 0.5), 8: (0.15, 0.5)}  # the paper's, for SGD
TABLE = {3: (-1.22, 0.06), 5: (-2.74, 0.06), 8: (-5.42, 0.14)}  # the paper's only table: slope and standard error
GAP = 0.6  # of a fitted slope to −(r−2), at most: the paper's own table has 0.58
SHIFT = 0.08  # of a slope by the threshold, at most, as the paper reports
SEEN = 2.8  # standard errors that a test at 5 % sees in four of five repetitions
FLOW = {3: (0.01, 0.003), 5: (0.06, 0.03), 8: (0.1, 0.05)}  # the two smallest ε of the flow, for local slopes


@dataclass(frozen=True)
class HeEscapeParameters:
    """Networks, how SGD is run, and which r. The number of ε in the paper's windows is not printed."""

    depth: int
    width: int
    inputs: int
    sgd: tuple[int, ...]
    flow: tuple[int, ...]
    points: int
    seeds: int
    lr: float
    batch: int
    max_steps: int
    sample: int = 512


SCALES = {
    "smoke": HeEscapeParameters(
        depth=4,
        width=24,
        inputs=8,
        sgd=(3,),
        flow=(3, 4),
        points=3,
        seeds=1,
        lr=0.05,
        batch=64,
        max_steps=20_000,
        sample=128,
    ),
    "small": HeEscapeParameters(
        depth=8,
        width=64,
        inputs=16,
        sgd=(3, 5, 8),
        flow=(3, 5, 8),
        points=5,
        seeds=6,
        lr=0.03,
        batch=256,
        max_steps=60_000,
    ),
    "medium": HeEscapeParameters(
        depth=8,
        width=96,
        inputs=16,
        sgd=(3, 5, 8),
        flow=(3, 5, 8),
        points=7,
        seeds=5,
        lr=0.02,
        batch=512,
        max_steps=200_000,
        sample=1024,
    ),
    "paper": HeEscapeParameters(
        depth=8,
        width=128,
        inputs=16,
        sgd=(3, 5, 8),
        flow=(3, 5, 8),
        points=7,
        seeds=5,
        lr=0.01,
        batch=512,
        max_steps=800_000,
        sample=2048,
    ),
}


def trials(p: HeEscapeParameters) -> list[Config]:
    common = {"depth": p.depth, "width": p.width, "inputs": p.inputs, "seeds": list(range(p.seeds))}
    sgd = [
        {
            "kind": "sgd",
            "r": r,
            "eps": np.geomspace(*WINDOWS[r], p.points).tolist(),
            "lr": p.lr,
            "batch": p.batch,
            "max_steps": p.max_steps,
            **common,
        }
        for r in p.sgd
    ]
    flow = [
        {"kind": "flow", "r": r, "eps": list(FLOW.get(r, (0.01, 0.003))), "sample": p.sample, **common} for r in p.flow
    ]
    return sgd + flow


def trial(config: Config) -> list[Row]:
    """Escape times at three thresholds, one row per ε and seed; seeds with a negative start are in."""
    task = saddle.teacher("tanh", config["inputs"])
    kind = torch.float64 if config["kind"] == "flow" else torch.float32
    stack = saddle.he_stack(
        config["depth"],
        config["width"],
        config["inputs"],
        small=config["r"],
        eps=config["eps"],
        seeds=config["seeds"],
        dtype=kind,
    )
    if config["kind"] == "flow":
        sample = antithetic_sample(config["sample"], config["inputs"])
        escape = trajectories.flow(stack, task, sample, thresholds=THRESHOLDS).escape
    else:
        escape = (
            config["lr"]
            * saddle.descend(
                stack,
                task,
                lr=config["lr"],
                steps=config["max_steps"],
                seed=1,
                batch=config["batch"],
                thresholds=THRESHOLDS,
            ).escape
        )
    forward = aligned_sample(task.directions[0], 16)
    gamma = stack_signal(stack, task, forward, config["r"]).gamma
    pairs = [(e, s) for e in config["eps"] for s in config["seeds"]]
    return [
        {
            "eps_run": e,
            "seed": s,
            "gamma": float(g),
            **{f"s at {th}": None if math.isnan(x) else float(x) for th, x in zip(THRESHOLDS, row)},
        }
        for (e, s), row, g in zip(pairs, escape, gamma)
    ]


def exponents(rows: Sequence[Row], kind: str, threshold: float = 0.02) -> dict[int, saddle.ExponentFit | float]:
    """Per r: the fit over the window for SGD, the local slope between the two ε for the flow."""
    out: dict[int, saddle.ExponentFit | float] = {}
    for r in sorted({row["r"] for row in rows if row["kind"] == kind}):
        part = [row for row in rows if row["kind"] == kind and row["r"] == r]
        eps, seeds = sorted({row["eps_run"] for row in part}), sorted({row["seed"] for row in part})
        by_run = {(row["eps_run"], row["seed"]): row[f"s at {threshold}"] for row in part}
        table = np.array([[by_run[e, s] or np.nan for s in seeds] for e in eps])
        if kind == "sgd":
            out[r] = saddle.fit_exponent(eps, table, r=r)
        else:
            out[r] = float(np.nanmean(np.log(table[0] / table[1])) / np.log(eps[0] / eps[1]))
    return out


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    out: dict[str, Any] = {f"SGD r = {r}": str(f) for r, f in exponents(rows, "sgd").items()}
    out |= {f"flow r = {r}, local slope": v for r, v in exponents(rows, "flow").items()}
    negative = {(row["r"], row["seed"]) for row in rows if row["gamma"] < 0}
    return {**out, "runs with a negative start": len(negative)}


def _plot(rows: Sequence[Row]) -> Plot:
    series = []
    for r, fit in exponents(rows, "sgd").items():
        if isinstance(fit, saddle.ExponentFit):
            anchor = fit.times[-1] * fit.eps[-1] ** (r - 2)
            law = [anchor * e ** -(r - 2) for e in fit.eps]
            series += [
                Series(f"r = {r}", fit.eps, fit.times),
                Series(f"ε^−{r - 2}", fit.eps, law, line=True, dashed=True),
            ]
    return Plot("small scale ε", "escape time s", series, log_x=True, log_y=True)


STUDIES = (
    Study(
        name="saddle-he",
        reduced="width 64, batches of 256 at a rate of 0.03 and five scales of ε instead of 128, 512 and 0.01",
        paper="saddle-escape",
        title="Is the exponent −(r−2) off the manifold, at He initialisation? (E4)",
        scales=SCALES,
        trials=trials,
        resources=Resources(cpus=1, memory_gb=2, core_hours=6),
        trial=trial,
        summary=summary,
    ),
)


claim = Claims("saddle-escape", study="saddle-he")


@claim("C30", "slopes within 0.6 of −(r−2), ordered by r", uses={"kind": "sgd"}, plot=_plot)
def by_descent(rows: Sequence[Row]) -> Measured | Verdict:
    """At He initialisation the escape time is Θ(ε^−(r−2)) (T19), by SGD"""
    fits = {r: f for r, f in exponents(rows, "sgd").items() if isinstance(f, saddle.ExponentFit)}
    worst = max(abs(f.slope + (r - 2)) for r, f in fits.items())
    ordered = all(fits[a].slope > fits[b].slope for a, b in zip(sorted(fits), sorted(fits)[1:], strict=False))
    error = max(f.stderr for r, f in fits.items() if abs(f.slope + (r - 2)) == worst)
    text = "; ".join(f"r = {r}: {f.slope:.3f} ± {f.stderr:.2g}" for r, f in fits.items())
    note = f"{text}; largest gap to −(r−2), order {'kept' if ordered else 'lost'}"
    if ordered and GAP < worst <= GAP + SEEN * error:  # so far off, and not surely further than what is claimed
        return not_reproduced(worst, SEEN * error, note=note, uncertainty=error)
    return Measured(worst, note, stderr=error, ok=worst <= GAP and ordered)


@claim("E4f", at_most(0.05, "within 0.05 of −(r−2)"), uses={"kind": "flow"})
def by_flow(rows: Sequence[Row]) -> Measured:
    """The same by adaptive gradient flow: local slopes at small ε"""
    slopes = {r: float(v) for r, v in exponents(rows, "flow").items() if not isinstance(v, saddle.ExponentFit)}
    worst = max(abs(v + (r - 2)) for r, v in slopes.items())
    return Measured(
        worst,
        note="; ".join(f"r = {r}: {v:.4f}" for r, v in slopes.items())
        + " between the two smallest eps; negative starts included",
    )


@claim(
    "C31",
    "order kept, shift at most 0.08",
    uses={"kind": "sgd"},
    effect="largest change of a fitted exponent between loss thresholds",
    choices=("the seeds and scales of ε of this study, fewer than the paper's",),
    question="Over how many seeds and values of ε were the three fits made?",
)
def thresholds(rows: Sequence[Row]) -> Verdict:
    """Loss thresholds of 0.01 and 0.05 keep the order of the slopes by r and shift them by at most 0.08"""
    slopes = {
        th: {r: f.slope for r, f in exponents(rows, "sgd", th).items() if isinstance(f, saddle.ExponentFit)}
        for th in THRESHOLDS
    }
    order = all(all(s[a] > s[b] for a, b in zip(sorted(s), sorted(s)[1:], strict=False)) for s in slopes.values())
    shift = max(abs(slopes[th][r] - slopes[0.02][r]) for th in THRESHOLDS for r in slopes[0.02])
    text = "; ".join(f"loss < {th}: " + ", ".join(f"r = {r} {v:.2f}" for r, v in s.items()) for th, s in slopes.items())
    note = (
        f"largest shift of a slope, the paper at most {SHIFT}; the order of r is {'kept' if order else 'lost'}; {text}"
    )
    if order and shift <= SHIFT:
        return holds(shift, note=note)
    errors = [f.stderr for f in exponents(rows, "sgd").values() if isinstance(f, saddle.ExponentFit)]
    seen = SEEN * max(errors) * math.sqrt(2)
    return fails(shift, note=note) if not order else not_reproduced(shift, seen, note=note)


@claim("E4t", at_most(3, "within three combined standard errors"), uses={"kind": "sgd"})
def printed_slopes(rows: Sequence[Row]) -> Measured:
    """The fitted exponents are −1.22 ± 0.06, −2.74 ± 0.06 and −5.42 ± 0.14 for r = 3, 5 and 8

    The fitted slopes against the printed ones, in combined standard errors.
    """
    fits = {r: f for r, f in exponents(rows, "sgd").items() if isinstance(f, saddle.ExponentFit) and r in TABLE}
    gaps = {r: (f.slope - TABLE[r][0]) / math.hypot(f.stderr, TABLE[r][1]) for r, f in fits.items()}
    text = "; ".join(f"r = {r}: {f.slope:.2f} ± {f.stderr:.2g}, printed {TABLE[r][0]}" for r, f in fits.items())
    worst = max(abs(g) for g in gaps.values())
    return Measured(worst, f"{text}; largest gap in combined standard errors")
