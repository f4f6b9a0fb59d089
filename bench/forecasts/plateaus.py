"""When does a plateau end? The forecast of ``saddle.plateau`` against extrapolation, on families it was not tuned on.

    python bench/forecasts/plateaus.py      train, forecast, score: the part "plateaus" of bench/results/forecasts.json

A run counts where ten looks and four tenths of the way pass before a tenth of the loss is gone. A forecast asked at a
share of the way has the error |forecast − truth| / truth, at most 1. Naive: a line through the last half of the losses,
a power law of time through their fall, and twice the steps so far; the best of the three is chosen after the fact.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import torch
from plateau_families import FAMILIES, task
from results import store

from netvitals.forecasts import kind_of
from netvitals.vitals import PlateauForecast

SHARES, SEEDS, EVERY, DROP = (0.1, 0.25, 0.5, 0.75, 0.9), 8, 4, 0.5
NAIVE = ("line", "power law", "as long again")


def trained(family: str, seed: int) -> dict[str, Any]:
    """One run, looked at on a fixed probe until its loss has halved: forecasts and naive ones at every look."""
    run = task(family, seed)
    g = torch.Generator().manual_seed(seed)
    vital = PlateauForecast(
        run.model, run.loss_fn, (run.x[:256], run.y[:256]), optimizer=run.optimizer, drop=DROP, level=0.8
    )
    made, kind = [], ""
    for step in range(run.steps):
        if step % EVERY == 0:
            made.append(vital.observe(step))
            if vital.observations[-1].loss <= (1 - DROP) * vital.observations[0].resting:
                break
        rows = slice(None) if not run.batch else torch.randint(0, len(run.x), (run.batch,), generator=g)
        loss = run.loss_fn(run.model(run.x[rows]), run.y[rows])
        kind = kind or kind_of(loss, run.model)
        run.optimizer.zero_grad()
        loss.backward()
        run.optimizer.step()
    losses, resting = np.array([s.loss for s in vital.observations]), vital.observations[0].resting
    steps = np.array([s.step for s in vital.observations])
    half, begun = np.flatnonzero(losses <= (1 - DROP) * resting), np.flatnonzero(losses <= 0.9 * resting)
    is_plateau = len(half) > 0 and begun[0] >= 10 and begun[0] >= 0.4 * half[0]
    ends = [-losses[half[0] - 1], -losses[half[0]]] if is_plateau else []
    truth = float(np.interp(-(1 - DROP) * resting, ends, steps[half[0] - 1 : half[0] + 1])) if is_plateau else math.inf
    asked = {}
    for share in SHARES if is_plateau else ():
        i = int(share * half[0])
        f = made[i]
        asked[str(share)] = {
            "naive": {n: _off(v, truth) for n, v in naive(steps[: i + 1], losses[: i + 1], resting).items()},
            "error": _off(f.step, truth) if f.known else None,
            "held": bool(f.low <= truth <= f.high) if f.known else None,
            "silent": f.reason,
        }
    false = sum(f.known and f.drop == DROP and not f.low <= truth <= f.high for f in made)
    return {
        "family": family, "seed": seed, "kind": kind,
        "optimizer": type(run.optimizer).__name__, "truth": truth, "plateau": bool(is_plateau), "asked": asked,
        "looks": len(made), "spoke": sum(f.known for f in made), "false": false,
    }  # fmt: skip


def naive(steps: np.ndarray, losses: np.ndarray, resting: float) -> dict[str, float]:
    """The step of the drop by three extrapolations of the loss; infinite where one sees no fall."""
    part = slice(len(steps) // 2, None) if len(steps) >= 6 else slice(None)
    wanted, out = (1 - DROP) * resting, {"as long again": 2.0 * steps[-1]}
    slope, start = np.polyfit(steps[part], losses[part], 1) if len(steps[part]) > 2 else (0.0, 0.0)
    out["line"] = (wanted - start) / slope if slope < 0 else math.inf
    fell = [(math.log(s), math.log(losses[0] - v)) for s, v in zip(steps, losses) if s > 0 and v < losses[0]]
    power, level = np.polyfit(*zip(*fell), 1) if len(fell) > 3 else (0.0, 0.0)
    left = (math.log(DROP * resting) - level) / power if power > 0 else math.inf
    out["power law"] = math.exp(left) if left < 60 else math.inf
    return out


def _off(step: float, truth: float) -> float:
    return min(1.0, abs(step - truth) / truth)


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Over runs: by share how many it spoke of, the median error and how often the interval held; and the skill."""
    real = [r for r in runs if r["plateau"]]
    out: dict[str, Any] = {"runs": len(runs), "plateaus": len(real), "at": {}}
    for share in map(str, SHARES):
        spoke = [r["asked"][share] for r in real if r["asked"][share]["error"] is not None]
        out["at"][share] = {
            "spoke": len(spoke),
            "median error": float(np.median([a["error"] for a in spoke])) if spoke else None,
            "held": sum(a["held"] for a in spoke),
        }
    said = [a for r in real for a in r["asked"].values() if a["error"] is not None]
    best = min((float(np.mean([a["naive"][n] for a in said])), n) for n in NAIVE) if said else (math.nan, "")
    out["forecasts"], out["best naive"] = len(said), best[1]
    out["skill"] = 1 - float(np.mean([a["error"] for a in said])) / best[0] if said else None
    return out


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = []
    for family in sys.argv[1:] or FAMILIES:
        found += [trained(family, seed) for seed in range(SEEDS)]
        print(family, summary([r for r in found if r["family"] == family]), flush=True)
    store("plateaus", found)
