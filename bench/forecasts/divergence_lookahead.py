"""Danger that is lookahead: is a run that will be lost called in time, and at what cost?

    python bench/forecasts/divergence_lookahead.py HALF …      train and score: bench/results/divergence_lookahead.json

A half is ``tuning``, ``seen``, ``test``, ``fresh`` or ``new`` (families that were made when the rule was settled).
Every run is trained twice: watched with ``lookahead=`` on the last 32 batches of the loop, and watched without, by the
rule that has only the losses. Both must have the same losses, bit for bit. Who is counted how says ``judge_danger``.
"""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import torch
from corpus import FRESH, SEEN, TEST, TUNING, Trial, optimizer_of, scheduler_of, trials
from families_1 import drawn
from families_5 import NEW_FAMILIES, NEW_TASKS
from families_5 import ROWS as NEW_ROWS
from run import NOTHING, _plain, judge_danger

import netvitals as nv
from netvitals.forecasts import Lookahead

RESULTS = Path(__file__).parents[1] / "results" / "divergence_lookahead.json"
EVERY = 10  # steps between looks
BATCHES = 32  # the last ones, which are looked ahead on
HALVES = {"tuning": TUNING, "seen": SEEN, "test": TEST, "fresh": FRESH, "new": NEW_FAMILIES}


def trained(trial: Trial, task: Any, opt: Any, sched: Any, seen: Any, recent: deque[Any]) -> list[float]:
    """The loop of one run under watch, until it ends or breaks off: its losses. ``recent`` gets every batch."""
    net, x, y, loss_fn = task
    g, losses = drawn(trial.seed), []
    for _ in range(trial.steps):
        rows = slice(None) if not trial.batch else torch.randint(0, len(x), (trial.batch,), generator=g)
        recent.append((x[rows], y[rows]))
        loss = loss_fn(net(x[rows]), y[rows])
        opt.zero_grad()
        loss.backward()
        opt.step()
        seen.step(loss)
        sched.step()
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]) or losses[-1] > 1e6 * max(losses[0], 1e-3):
            break
    return losses


def watched(trial: Trial, look: bool) -> dict[str, Any]:
    """One run under watch: its losses, when it was lost, and when it was called."""
    net, x, y, loss_fn = trial.build()
    opt = optimizer_of(trial, net)
    sched = scheduler_of(trial, opt)
    recent: deque[Any] = deque(maxlen=BATCHES if trial.batch else 1)
    plan = Lookahead(batches=recent, loss_fn=lambda out, target: loss_fn(out, target)) if look else False
    with nv.watch(
        net, opt, every=EVERY, vitals=["optimizer"], scheduler=sched, total_steps=trial.steps, lookahead=plan
    ) as seen:
        losses = trained(trial, (net, x, y, loss_fn), opt, sched, seen, recent)
    live = seen._forecasts
    assert live is not None and not live._failed, "forecasting failed"
    danger, tried = live.forecaster.danger, live.lookahead
    made = [f for f in live.forecaster.made if f.quantity == "loss/lost" and f.known]
    broke = len(losses) - 1 if len(losses) < trial.steps else math.inf
    return {
        "losses": losses,
        "lost": danger.lost if danger.lost is not None else broke,
        "calls": [f.made_at for f in made],
        "dates": [(f.made_at, f.value, *f.interval80) for f in made],
        "withdrawn": danger.withdrawn if tried is None else tried.withdrawn,
        "cost": 0.0 if tried is None else tried.spent / len(losses),
        "refused": seen.skipped.get("look-ahead", ""),
    }


def scored(half: str) -> dict[str, Any]:
    """The counts of one half, by family, of both rules."""
    families: dict[str, dict[str, Any]] = {}
    runs = trials(NEW_ROWS, NEW_TASKS) if half == "new" else trials()
    for trial in (t for t in runs if t.family in HALVES[half]):
        begun = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tried, plain = watched(trial, lookahead=True), watched(trial, lookahead=False)
        assert np.array_equal(tried["losses"], plain["losses"], equal_nan=True), f"{trial.name} was disturbed"
        assert not tried["refused"], tried["refused"]
        counts = families.setdefault(
            trial.family,
            {rule: {**NOTHING, "leads": []} for rule in ("looked ahead", "losses")} | {"cost": {}, "runs": {}},
        )
        judge_danger(counts["looked ahead"], tried["calls"], tried["withdrawn"], tried["lost"])
        judge_danger(counts["losses"], plain["calls"], plain["withdrawn"], plain["lost"])
        counts["cost"][trial.name] = tried["cost"]
        counts["runs"][trial.name] = [tried["lost"], tried["calls"], plain["calls"], tried["dates"]]
        print(
            f"{trial.name:55s} lost {tried['lost']:>5} ahead {tried['calls']} (back {tried['withdrawn']}) losses "
            f"{plain['calls']} cost {tried['cost']:.2f}, {time.process_time() - begun:.1f} s",
            flush=True,
        )
    return families


def summary(families: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Both rules over all families of a half, with the cost, the lead and how often the date held."""
    out: dict[str, Any] = {}
    for rule in ("looked ahead", "losses"):
        each = [f[rule] for f in families.values()]
        out[rule] = {key: sum(d[key] for d in each) for key in ("lost", "called", "standing", "sound", "false")}
        leads = [lead for d in each for lead in d["leads"] if lead >= 20]
        out[rule]["lead"] = float(np.median(leads)) if leads else math.nan
    costs = [(cost, f["runs"][name][0]) for f in families.values() for name, cost in f["cost"].items()]
    dated = [(lost, *dates[0]) for f in families.values() for lost, _, _, dates in f["runs"].values() if dates]
    dated = [row for row in dated if 60 <= row[0] < math.inf and row[1] < row[0]]
    ratios = [math.log((lost - made) / (value - made)) for lost, made, value, *_ in dated]
    return out | {
        "cost": float(np.mean([c for c, _ in costs])),
        "cost of sound runs": float(np.mean([c for c, lost in costs if lost == math.inf])),
        "highest cost": max(c for c, _ in costs),
        "dates": len(dated),
        "dates held": sum(low <= lost <= high for lost, _, _, low, high in dated),
        "ln of time left": [float(np.mean(ratios)), float(np.std(ratios))] if ratios else [],
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for half in sys.argv[1:]:
        found = scored(half)
        known[half] = _plain({"families": found, **summary(found)})
        RESULTS.write_text(json.dumps(known, indent=1) + "\n")
        print(half, json.dumps({key: value for key, value in known[half].items() if key != "families"}, indent=1))
