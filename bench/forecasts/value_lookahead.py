"""Values that are lookahead: how far is a copy that trains ahead from what came, and what does it cost?

    python bench/forecasts/value_lookahead.py HALF …     train and score: bench/results/value_lookahead.json
    python bench/forecasts/value_lookahead.py batches    gate density by the number of batches at hand, on two families

Every run of a half of the corpus that has gates is trained under watch with ``Lookahead(horizon=1)`` on the last 32
batches of its loop, and on the fixed batch that the corpus is measured with. Forecasts by look-ahead are scored
against
the best of the four forecasts without a law, chosen after the fact, as ``bench/forecasts/run.py`` does. Runs on one
batch that never changes are counted apart: there a look-ahead is the future itself. Nothing is fitted but the widths of
intervals, on the first seed of the tuning half.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import torch
from corpus import FRESH, TEST, TUNING, WATCHED, Trial, optimizer_of, scheduler_of, trials
from divergence_lookahead import BATCHES, trained
from families_5 import NEW_FAMILIES, NEW_TASKS
from families_5 import ROWS as NEW_ROWS
from run import Sums, _plain, best_naive, between, pooled_mean, pooled_skill

import netvitals as nv
from netvitals.forecasts import Lookahead, Score
from netvitals.forecasts import value_lookahead as lookahead_values
from netvitals.forecasts.log import scored
from netvitals.forecasts.value_lookahead import READ

RESULTS = Path(__file__).parents[1] / "results" / "value_lookahead.json"
HALVES = {"tuning": TUNING, "test": TEST, "fresh": FRESH, "new": NEW_FAMILIES}
UNITS: dict[tuple[str, str], dict[str, list[float]]] = {}  # (horizon, family) → error over the half width, by vital


def watched(trial: Trial, ahead: float = 1.0, batches: int = BATCHES) -> tuple[list[Score], float, float]:
    """Scores of all that was forecast on one run, the cost of its look-aheads, and when it was lost."""
    net, x, y, loss_fn = trial.build()
    opt = optimizer_of(trial, net)
    sched = scheduler_of(trial, opt)
    recent: deque[Any] = deque(maxlen=batches)
    plan = Lookahead(batches=recent, loss_fn=lambda out, target: loss_fn(out, target), budget=-math.inf, ahead=ahead)
    series: dict[tuple[str, str, str], tuple[list[int], list[float]]] = {}

    def keep(page: Any) -> None:
        for name, value in zip(page.names(), page.values.tolist()):
            steps, values = series.setdefault(name, ([], []))
            steps.append(page.step)
            values.append(value)

    with nv.watch(
        net,
        opt,
        every=max(1, trial.steps // trial.looks),
        probe=(x[:256], y[:256], loss_fn),
        vitals=[*(n for n in WATCHED if n in READ), "optimizer"],
        scheduler=sched,
        total_steps=trial.steps,
        lookahead=plan,
    ) as seen:
        seen._buffer.finished.append(keep)
        losses = trained(trial, (net, x, y, loss_fn), opt, sched, seen, recent)
    live = seen._forecasts
    assert live is not None and live.values is not None and not live._failed, "forecasting failed"
    assert "look-ahead" not in seen.skipped, seen.skipped["look-ahead"]
    columns = {k: (np.array(s), np.array(v)) for k, (s, v) in series.items()}
    lost = live.forecaster.danger.lost or (len(losses) - 1 if len(losses) < trial.steps else math.inf)
    return scored(live.forecaster.made, columns, len(losses) - 1), live.values.spent / len(losses), float(lost)


def gathered(half: str) -> dict[str, Any]:
    """Skill and calibration of a half by quantity and horizon, of look-aheads and of the methods beside them."""
    sums: dict[tuple[str, str, str, str], list[Sums]] = {}
    costs: list[float] = []
    runs = trials(NEW_ROWS, NEW_TASKS) if half == "new" else trials()
    for trial in (t for t in runs if t.family in HALVES[half] and (half != "tuning" or t.seed == 0)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scores, cost, lost = watched(trial)
        kind = "minibatches" if trial.batch else "one batch"
        told = {(s.forecast.quantity, s.forecast.site, s.forecast.made_at, s.forecast.for_step)
                for s in scores if s.forecast.method == "look-ahead"}  # fmt: skip
        mine: dict[tuple[str, str, str, str], Sums] = {}
        for s in scores:
            f = s.forecast
            if f.is_event or f.for_step >= lost or (f.quantity, f.site, f.made_at, f.for_step) not in told:
                continue  # the others are scored on the days that were lookahead, too
            method = "look-ahead" if f.method == "look-ahead" else "past"
            mine.setdefault((f.quantity, f.horizon, method, kind), Sums(trial.family)).add(s, math.nan, math.nan)
            if method == "look-ahead":
                half_width = max(f.interval80[1] - f.interval80[0], 1e-12) / 2
                UNITS.setdefault((f.horizon, trial.family), {}).setdefault(f.quantity, []).append(s.error / half_width)
        for key, found in mine.items():
            sums.setdefault(key, []).append(found)
        costs.append(cost)
        print(f"{trial.name:55s} {len(told):5d} lookahead, cost {cost:.2f}", flush=True)
    return {"cost": float(np.mean(costs)), "runs": len(costs), "values": _tables(sums)}


def _tables(sums: dict[tuple[str, str, str, str], list[Sums]]) -> dict[str, Any]:
    out = {}
    for quantity, horizon, method in dict.fromkeys(key[:3] for key in sorted(sums)):
        for kinds in (("minibatches", "one batch"), ("minibatches",)):
            runs = [r for kind in kinds for r in sums.get((quantity, horizon, method, kind), [])]
            if runs:
                out[f"{quantity} | {horizon} | {method} | {'all' if len(kinds) > 1 else kinds[0]}"] = {
                    "forecasts": sum(r.scores for r in runs),
                    "runs": len(runs),
                    "skill": between(runs, pooled_skill),
                    "best_naive": best_naive(runs)[0],
                    "coverage50": pooled_mean("covered50")(runs),
                    "coverage80": pooled_mean("covered80")(runs),
                    "families": {
                        family: pooled_skill([r for r in runs if r.family == family])
                        for family in dict.fromkeys(r.family for r in runs)
                    },
                }
    return out


def by_batches() -> dict[str, dict[str, float]]:
    """Skill of gate density by the number of batches and the horizon, first seed of two families on images."""
    out: dict[str, dict[str, float]] = {}
    lookahead_values.ENOUGH = 1
    for count in (2, 4, 8, 16, 32):
        sums: dict[str, list[Sums]] = {}
        for trial in (t for t in trials() if t.family in ("cnn images", "mlp images") and t.seed == 0):
            scores, _, lost = watched(trial, batches=count)
            mine: dict[str, Sums] = {}
            for s in scores:
                f = s.forecast
                if f.method == "look-ahead" and f.quantity.startswith("gates") and f.for_step < lost:
                    mine.setdefault(f.horizon, Sums(trial.family)).add(s, math.nan, math.nan)
            for horizon, found in mine.items():
                sums.setdefault(horizon, []).append(found)
        out[str(count)] = {horizon: pooled_skill(runs) for horizon, runs in sums.items()}
        print(count, out[str(count)], flush=True)
    return out


def widths() -> None:
    """Factors on the half widths that 50 and 80 % intervals should have had, all families counting alike."""
    for horizon in dict.fromkeys(h for h, _ in UNITS):
        for quantity in dict.fromkeys(q for found in UNITS.values() for q in found):
            rows = [np.array(found[quantity]) for (h, _), found in UNITS.items() if h == horizon and quantity in found]
            every, alike = np.concatenate(rows), np.concatenate([np.full(len(r), 1 / len(r)) for r in rows])
            order = np.argsort(every)
            at = np.searchsorted(np.cumsum(alike[order]) / alike.sum(), (0.5, 0.8))
            print(horizon, quantity, np.round(every[order][at], 3))


if __name__ == "__main__":
    torch.set_num_threads(1)
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for half in sys.argv[1:]:
        known[half] = _plain(by_batches() if half == "batches" else gathered(half))
        RESULTS.write_text(json.dumps(known, indent=1) + "\n")
        for key, row in known[half].get("values", {}).items():
            print(half, key, row["skill"], row["coverage50"], row["coverage80"])
    widths()
