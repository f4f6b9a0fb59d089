"""Can the end of a plateau be told in advance? Forecasts against two baselines, over many small trainings.

Every trial trains a few seeds of one configuration as one stack until the loss has dropped, looks at a fixed probe
batch on the way, and afterwards asks what the forecast said at 10, 25, 50 and 75 % of the true escape step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from netvitals import saddle
from netvitals.saddle import Snapshot
from netvitals.saddle.measure.forecasting import forecast_live
from netvitals.saddle.measure.plateau import measure_plateaus
from netvitals.saddle.students.network import output
from netvitals.saddle.students.task import antithetic_sample
from netvitals_lab import Config, Resources, Row, Study
from netvitals_lab.papers.saddle_escape.series_forecast import series_forecast
from netvitals_lab.training import gradient_step

FRACTIONS = (0.1, 0.25, 0.5, 0.75)
METHODS = ("live", "series", "linear", "power")
FIRST_SEED = 100  # the spread of the interval was set on seeds below

# (task, activation, depth, r, eps, optimizer, learning rate, steps between looks)
GRID: tuple[tuple[str, str, int, int, float, str, float, int], ...] = (
    ("teacher", "tanh", 5, 3, 0.02, "sgd", 0.02, 8),
    ("teacher", "tanh", 6, 4, 0.2, "sgd", 0.003, 8),
    ("teacher", "tanh", 8, 5, 0.3, "sgd", 0.002, 6),
    ("teacher", "tanh", 4, 2, 0.02, "sgd", 0.002, 6),
    ("teacher", "tanh", 4, 1, 0.01, "sgd", 5e-5, 8),
    ("teacher", "gelu", 5, 3, 0.1, "sgd", 0.08, 8),
    ("teacher", "gelu", 6, 4, 0.3, "sgd", 0.03, 8),
    ("teacher", "gelu", 4, 2, 0.05, "sgd", 0.02, 8),
    ("teacher", "silu", 4, 3, 0.1, "sgd", 0.08, 8),
    ("teacher", "silu", 7, 4, 0.4, "sgd", 0.05, 8),
    ("teacher", "relu", 5, 3, 0.05, "sgd", 0.02, 8),
    ("teacher", "relu", 3, 3, 0.1, "sgd", 0.015, 8),
    ("teacher", "relu", 6, 2, 0.05, "sgd", 0.003, 8),
    ("teacher", "tanh", 3, 3, 0.05, "sgd", 0.015, 8),
    ("teacher", "tanh", 5, 3, 0.05, "adam", 8e-6, 6),
    ("teacher", "gelu", 6, 4, 0.2, "adam", 2e-5, 6),
    ("teacher", "silu", 4, 2, 0.05, "adam", 2e-5, 6),
    ("teacher", "relu", 5, 3, 0.1, "adam", 2e-5, 6),
    ("digits", "tanh", 4, 3, 0.1, "sgd", 0.02, 4),
    ("digits", "relu", 4, 3, 0.1, "sgd", 0.03, 5),
    ("digits", "gelu", 5, 4, 0.3, "sgd", 0.06, 5),
    ("digits", "silu", 4, 2, 0.1, "sgd", 0.02, 4),
    ("digits", "tanh", 4, 2, 0.02, "adam", 1e-5, 5),
    ("digits", "gelu", 4, 3, 0.15, "adam", 2e-5, 5),
)


@dataclass(frozen=True)
class ForecastingParameters:
    """Which rows of the grid, how many seeds of each, and the size of the networks."""

    rows: tuple[int, ...]
    seeds: int
    width: int = 64
    batch: int = 128
    max_steps: int = 12_000
    hurry: int = 1  # factor on the learning rates, for shorter plateaus


SCALES = {
    "smoke": ForecastingParameters((3, 8, 16), 2, width=32, batch=64, hurry=4),
    "small": ForecastingParameters(tuple(range(len(GRID))), 5),
    "medium": ForecastingParameters(tuple(range(len(GRID))), 10, width=128, batch=256, max_steps=30_000),
    "paper": ForecastingParameters(tuple(range(len(GRID))), 10, width=128, batch=512, max_steps=60_000),
}


def trials(p: ForecastingParameters) -> list[Config]:
    names = ("task", "activation", "depth", "r", "eps", "optimizer", "lr", "every")
    faster = lambda row: (*row[:6], row[6] * p.hurry, max(1, row[7] // p.hurry))
    return [
        {
            **dict(zip(names, faster(GRID[i]))),
            "seeds": [FIRST_SEED + k for k in range(p.seeds)],
            "width": p.width,
            "batch": p.batch,
            "max_steps": p.max_steps,
        }
        for i in p.rows
    ]


def trial(config: Config) -> list[Row]:
    """Train the seeds of one configuration; one row per seed and method at every fraction of the true escape step."""
    task = _digits(config) if config["task"] == "digits" else _teacher(config)
    drop = 0.2 if config["task"] == "digits" else 0.5
    histories = _train(config, task, drop)
    rule: dict[str, Any] = {"rule": config["optimizer"], "lr": config["lr"]}
    rows: list[Row] = []
    for seed, history in zip(config["seeds"], histories):
        true = escape_step(history, drop)
        head = {"seed": seed, "drop": drop, "true": true, "looks": len(history)}
        if math.isnan(true):
            rows.append({**head, "method": "none", "fraction": None, "step": None, "reason": "did not escape"})
            continue
        if seed == config["seeds"][0]:
            rows.append({**head, "method": "path", "fraction": None, "step": None, **_path(history, rule, drop)})
        for fraction in FRACTIONS:
            seen = [s for s in history if s.step <= fraction * true]
            rows += [{**head, "fraction": fraction, **facts} for facts in _tell(seen, config["r"], rule, drop)]
    return rows


def _tell(seen: Sequence[Snapshot], r: int, rule: dict[str, Any], drop: float) -> list[Row]:
    live = forecast_live(seen, drop=drop, **rule)
    steps = [s.step for s in seen]
    signal = [s.signal for s in seen]
    series = series_forecast(steps, signal, resting=seen[-1].resting, r=r, rule=rule["rule"], drop=drop)
    rows: list[Row] = []
    for name, t in (("live", live), ("series", series)):
        numbers = {"step": t.step, "low": t.low, "high": t.high, "r_found": t.r}
        rows.append({"method": name, **(numbers if t.known else dict.fromkeys(numbers)), "reason": t.reason})
    for name, value in (("linear", linear_extrapolation(seen, drop)), ("power", power_extrapolation(seen, drop))):
        rows.append(
            {
                "method": name,
                "step": value if math.isfinite(value) else None,
                "reason": "" if math.isfinite(value) else "the loss does not fall yet",
            }
        )
    return rows


def _path(history: Sequence[Snapshot], rule: dict[str, Any], drop: float, points: int = 40) -> Row:
    """One run as it unfolds: the loss, and what the forecast said at the time."""
    chosen = sorted({round(k) for k in np.linspace(0, len(history) - 1, points)})
    facts = [forecast_live(history[: k + 1], drop=drop, **rule) for k in chosen]
    known = [(history[k], t) for k, t in zip(chosen, facts) if t.known]
    return {
        "at": [s.step for s, _ in known],
        "loss": [s.loss / history[0].loss for s, _ in known],
        "told": [t.step for _, t in known],
        "low": [t.low for _, t in known],
        "high": [t.high for _, t in known],
    }


def escape_step(history: Sequence[Snapshot], drop: float) -> float:
    """First step with the probe loss below (1 − drop) of its first value, by linear interpolation; NaN if never."""
    loss = np.array([s.loss for s in history])
    steps = np.array([s.step for s in history], float)
    level = (1 - drop) * loss[0]
    below = np.flatnonzero(loss < level)
    if not len(below) or below[0] == 0:
        return math.nan
    k = int(below[0])
    return float(steps[k - 1] + (loss[k - 1] - level) / (loss[k - 1] - loss[k]) * (steps[k] - steps[k - 1]))


def linear_extrapolation(seen: Sequence[Snapshot], drop: float) -> float:
    """Baseline: a straight line through the last half of the losses."""
    part = seen[len(seen) // 2 :] if len(seen) >= 6 else seen
    if len(part) < 3:
        return math.inf
    slope, start = np.polyfit([s.step for s in part], [s.loss for s in part], 1)
    return float(((1 - drop) * seen[0].loss - start) / slope) if slope < 0 else math.inf


def power_extrapolation(seen: Sequence[Snapshot], drop: float) -> float:
    """Baseline: a power law of time through the fall of the loss."""
    points = [(s.step, seen[0].loss - s.loss) for s in seen if s.step > 0 and s.loss < seen[0].loss]
    if len(points) < 4:
        return math.inf
    power, start = np.polyfit(np.log([t for t, _ in points]), np.log([f for _, f in points]), 1)
    if power <= 0:
        return math.inf
    exponent = (math.log(drop * seen[0].loss) - start) / power
    return math.exp(exponent) if exponent < 60 else math.inf


@dataclass(frozen=True)
class _Task:
    f: Callable[[Tensor], Tensor]
    inputs: int
    outputs: int
    probe: tuple[Tensor, Tensor]
    draw: Callable[[int], tuple[Tensor, Tensor]]
    loss: Callable[[Tensor, Tensor], Tensor]  # (copies, n, outputs), targets -> (copies,)


def _teacher(config: Config) -> _Task:
    teacher = saddle.teacher(config["activation"], 16)
    probe = antithetic_sample(512, 16, seed=5).x.float()
    generator = torch.Generator().manual_seed(17)
    return _Task(
        teacher.f,
        16,
        1,
        (probe, teacher.target(probe)),
        lambda n: teacher.batch(n, generator),
        lambda out, y: 0.5 * (out - y).square().sum(-1).mean(-1),
    )


def _digits(config: Config) -> _Task:
    from netvitals.activations import get
    from netvitals_lab.data import load

    data = load("digits")
    x, y = data.train.x.flatten(1).float(), data.train.y
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(5))
    probe, rest = order[:400], order[400:]
    generator = torch.Generator().manual_seed(17)

    def draw(n: int) -> tuple[Tensor, Tensor]:
        index = rest[torch.randint(len(rest), (n,), generator=generator)]
        return x[index], y[index]

    def loss(out: Tensor, target: Tensor) -> Tensor:
        flat = F.cross_entropy(out.flatten(0, 1), target.repeat(out.shape[0]), reduction="none")
        return flat.reshape(out.shape[:2]).mean(1)

    return _Task(get(config["activation"]), x.shape[1], 10, (x[probe], y[probe]), draw, loss)


def _train(config: Config, task: _Task, drop: float) -> list[list[Snapshot]]:
    """Looks of every seed until its loss has dropped well below the level."""
    weights = saddle.he_stack(
        config["depth"],
        config["width"],
        task.inputs,
        small=config["r"],
        eps=config["eps"],
        seeds=config["seeds"],
        outputs=task.outputs,
    )
    for w in weights:
        w.requires_grad_(True)
    kind: Any = torch.optim.SGD if config["optimizer"] == "sgd" else torch.optim.Adam
    optimizer = kind(weights, lr=config["lr"])  # elementwise rules: the copies do not see each other
    histories: list[list[Snapshot]] = [[] for _ in config["seeds"]]
    for step in range(config["max_steps"] + 1):
        if step % config["every"] == 0:
            for history, latest in zip(
                histories, measure_plateaus(weights, task.loss, task.probe, f=task.f, step=step)
            ):
                history.append(latest)
            if all(h[-1].loss < 0.98 * (1 - drop) * h[0].loss for h in histories):
                break
        x, y = task.draw(config["batch"])
        gradient_step(optimizer, task.loss(output(weights, x, task.f), y).sum())
    return histories


def error_table(rows: Sequence[Row], method: str) -> dict[float, list[float]]:
    """|forecast / true − 1| per fraction. A baseline that gives none counts as infinitely wrong; ours is left out."""
    table: dict[float, list[float]] = {f: [] for f in FRACTIONS}
    for row in rows:
        if row["method"] == method and row["fraction"] is not None:
            if row["step"] is not None:
                table[row["fraction"]].append(abs(row["step"] / row["true"] - 1))
            elif method in ("linear", "power"):
                table[row["fraction"]].append(math.inf)
    return table


def coverage(rows: Sequence[Row], method: str = "live") -> float:
    """Share of forecasts whose interval holds the true step."""
    facts = [r for r in rows if r["method"] == method and r["step"] is not None]
    return float(np.mean([r["low"] <= r["true"] <= r["high"] for r in facts])) if facts else math.nan


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    runs = {(r["task"], r["activation"], r["depth"], r["r"], r["optimizer"], r["seed"]) for r in rows}
    out: dict[str, Any] = {"runs": len(runs)}
    for method in METHODS:
        errors = error_table(rows, method)
        out[f"median error, {method}"] = " / ".join(
            f"{100 * float(np.median(e)):.1f} %" if e else "none" for e in errors.values()
        )
    out["coverage of the 80 % interval"] = f"{100 * coverage(rows):.0f} %"
    return out


HYPOTHESIS = (
    "At half of the true escape step the median error of the live forecast is at most 15 %, and at 10, 25, "
    "50 and 75 % it is smaller than that of linear and power-law extrapolation of the loss."
)


STUDIES = (
    Study(
        name="plateau-forecast",
        paper="saddle-escape",
        title="Can the step at which the loss drops be told in advance?",
        scales=SCALES,
        trials=trials,
        resources=Resources(cpus=1, memory_gb=3, core_hours=10),
        trial=trial,
        summary=summary,
        hypothesis=HYPOTHESIS,
    ),
)
