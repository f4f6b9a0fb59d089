"""How good are the forecasts? Replays the corpus look by look, scores every forecast, and writes ``docs/forecasts.md``.

    python bench/forecasts/corpus.py make FOLDER      the runs (made once, in pieces if need be)
    python bench/forecasts/run.py score FOLDER           replay and score: bench/results/forecasts.json
    python bench/forecasts/run.py docs                   docs/forecasts.md from that file

Parameters of the methods were chosen on the tuning families; the others were replayed once all was settled.
"""

from __future__ import annotations

import gzip
import json
import math
import pickle
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from ceilings import LawCeiling, ceiling, shows_a_sign, smooth_error
from corpus import FRESH, SEEN, TEST, TUNING, planned_rates, trials

from netvitals.capture import StepColumns
from netvitals.forecasts import Forecaster, Score
from netvitals.forecasts.log import scored
from netvitals.forecasts.plateaus import first_below
from netvitals.optim.schedules import RatePlan
from netvitals.saddle.measure.outlook import forecast_escape

RESULTS = Path(__file__).parents[1] / "results" / "forecasts.json"
FRACTIONS = (0.1, 0.25, 0.5, 0.75)
DRAWS = 400  # of the bootstrap over runs
GATES = "gates/density@0.01"
NOTHING = {"lost": 0, "called": 0, "standing": 0, "signs": 0, "sound": 0, "false": 0}
TRIALS = {trial.name: trial for trial in trials()}


Columns = dict[tuple[str, str, str], tuple[np.ndarray, np.ndarray]]


def stored(folder: Path, families: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for family in families:
        for file in sorted(folder.glob(f"{family.replace(' ', '_')}-*.pkl.gz")):
            with gzip.open(file) as opened:
                yield pickle.load(opened)


def plans(run: dict[str, Any]) -> dict[int, RatePlan]:
    """The plan of learning rates at each look: the whole schedule was known, also where the run broke off."""
    rates = planned_rates(TRIALS[run["name"]])
    return {
        step: RatePlan(step=step, lr=rates[step:], gain=gain, decay=decay, end=run["total"], source="replay")
        for step, gain, decay in run["plans"]
    }


def lost_at(run: dict[str, Any], forecaster: Forecaster) -> float:
    """The step at which a run was lost, infinite where it was not; one that broke off was, whatever its last losses."""
    if forecaster.danger.lost is not None:
        return forecaster.danger.lost
    return len(run["losses"]) - 1 if len(run["losses"]) < run["total"] else math.inf


def without_plateau(columns: StepColumns) -> StepColumns:
    keep, layout, place = [], [], 0
    for entry in columns.layout:
        size = len(entry[1]) * len(entry[2])
        if entry[0] != "plateau":
            layout.append(entry)
            keep.append(columns.values[place : place + size])
        place += size
    return replace(columns, layout=tuple(layout), values=np.concatenate(keep) if keep else np.empty(0))


def replayed(run: dict[str, Any]) -> tuple[list[Score], Forecaster, Columns]:
    """Every forecast that a watch of this run would have made, scored by its measurements."""
    known = plans(run)
    forecaster = Forecaster(lambda: run["meta"]["activations"], known.get)
    series: dict[tuple[str, str, str], tuple[list[int], list[float]]] = {}
    at = 0
    for page in run["pages"]:
        page = without_plateau(page)
        forecaster.losses(range(at, page.step), run["losses"][at : page.step])
        at = page.step
        forecaster.observe(page)
        for name, value in zip(page.names(), page.values.tolist()):
            steps, values = series.setdefault(name, ([], []))
            steps.append(page.step)
            values.append(value)
    forecaster.losses(range(at, len(run["losses"])), run["losses"][at:])
    columns = {k: (np.array(s), np.array(v)) for k, (s, v) in series.items()}
    columns["loss", "model", "loss"] = (np.arange(len(run["losses"])), run["losses"])
    return scored(forecaster.made, columns, len(run["losses"]) - 1), forecaster, columns


# ---------------------------------------------------------------- plateaus


def rule_of(run: dict[str, Any]) -> dict[str, Any]:
    name = run["meta"]["optimizer"][0]["name"]
    if name == "SGD":
        return {"rule": "sgd", "momentum": 0.9 if "-momentum-" in run["name"] else 0.0}
    return {"rule": "adam", "beta2": 0.999}


def plateau_of(run: dict[str, Any]) -> dict[str, Any]:
    """Forecasts of the first drop by half, at shares of the true time; of later plateaus, when they are left."""
    looks, rates = run["snapshots"], run["rates"][:, 0]
    spent = np.concatenate([[0], np.cumsum(rates)])
    taus = [float(spent[min(s.step, len(rates))]) for s in looks]
    known, made = plans(run), []
    for i, now in enumerate(looks):
        plan = known.get(now.step)
        if plan is None or not plan.lr[0, 0] > 0:
            break
        arguments = {**rule_of(run), "lr": float(plan.lr[0, 0]), "decay": plan.decay[0], "when": plan.when}
        made.append(forecast_escape(looks[: i + 1], taus[: i + 1], earlier=made, **arguments))
    losses, steps = np.array([s.loss for s in looks]), np.array([s.step for s in looks])
    resting = looks[0].resting
    below = np.flatnonzero(losses <= 0.5 * resting)
    begun = np.flatnonzero(losses <= 0.9 * resting)
    # a plateau: ten looks and half of the way to the drop pass before a tenth of the loss is gone
    is_plateau = bool(len(below)) and below[0] >= 10 and begun[0] >= 0.4 * below[0]
    truth = math.inf
    if len(below) and below[0] > 0:
        i = below[0]
        truth = float(np.interp(-0.5 * resting, [-losses[i - 1], -losses[i]], [steps[i - 1], steps[i]]))
    out: dict[str, Any] = {"plateau": is_plateau, "truth": truth, "asked": {}, "all": [], "later": []}
    for share in FRACTIONS if is_plateau else ():
        f = made[min(int(share * below[0]), len(made) - 1)]
        out["asked"][str(share)] = None if not f.known else [abs(f.step - truth) / truth, f.low <= truth <= f.high]
    for f in made:
        if not f.known:
            continue
        if f.drop >= 0.1:
            out["all"].append([f.at, f.step, f.low <= truth <= f.high])
        else:
            last = int(steps[-1])
            came = first_below(steps.tolist(), losses.tolist(), f.at, (1 - f.drop) * f.rest, math.ceil(f.high), last)
            if came is None:
                continue  # the run ended first
            out["later"].append([f.at, f.step, came, f.low <= came <= f.high])
    out["looks"] = len(made)
    return out


# ---------------------------------------------------------------- gathering


def between(values: list[Any], number: Callable[[list[Any]], float]) -> list[float]:
    """A number and its 90 % interval, from drawing runs again."""
    g = np.random.default_rng(0)
    if not values:
        return [math.nan] * 3
    draws = [number([values[i] for i in g.integers(0, len(values), len(values))]) for _ in range(DRAWS)]
    found = [d for d in draws if math.isfinite(d)]
    low, high = (float(np.quantile(found, q)) for q in (0.05, 0.95)) if found else (math.nan, math.nan)
    return [number(values), low, high]


class Sums:
    """Scores of one quantity and horizon on one run, added up, with the errors of those who know the future."""

    def __init__(self, family: str) -> None:
        self.family, self.scores = family, 0
        self.total = dict.fromkeys(("error", "covered50", "covered80"), 0.0)
        self.naive: dict[str, float] = {}
        self.smooth: list[float] = []
        self.law: list[float] = []
        self.naives: list[dict[str, float]] = []

    def add(self, s: Score, smooth: float, law: float) -> None:
        if not math.isfinite(s.error):
            return
        self.scores += 1
        for name in self.total:
            self.total[name] += float(getattr(s, name))
        for name, error in s.naive.items():
            self.naive[name] = self.naive.get(name, 0.0) + error
        self.smooth.append(smooth)
        self.law.append(law)
        self.naives.append(dict(s.naive))


def best_naive(runs: list[Sums]) -> tuple[str, float]:
    """The forecast without a law that did best on all of them, chosen after the fact, and its total error."""
    totals = {name: sum(r.naive.get(name, 0.0) for r in runs) for name in (runs[0].naive if runs else {})}
    return min(totals.items(), key=lambda item: item[1]) if totals else ("", math.nan)


def pooled_skill(runs: list[Sums]) -> float:
    best = best_naive(runs)[1]
    return 1 - sum(r.total["error"] for r in runs) / best if best > 0 else math.nan


def pooled_mean(name: str) -> Callable[[list[Sums]], float]:
    return lambda runs: sum(r.total[name] for r in runs) / max(1, sum(r.scores for r in runs))


def pooled_ceiling(runs: list[Sums], which: str) -> float:
    return ceiling([e for r in runs for e in getattr(r, which)], [n for r in runs for n in r.naives])


def gathered(folder: Path, families: tuple[str, ...]) -> dict[str, Any]:
    values: dict[tuple[str, str], list[Sums]] = {}
    plateaus: dict[str, list[dict[str, Any]]] = {}
    danger: dict[str, dict[str, Any]] = {}
    alone: list[Score] = []
    counts: dict[str, int] = {}
    for run in stored(folder, families):
        counts[run["family"]] = counts.get(run["family"], 0) + 1
        scores, forecaster, columns = replayed(run)
        groups: dict[tuple[str, str], Sums] = {}
        lost, law = lost_at(run, forecaster), LawCeiling(run)
        for s in scores:
            f = s.forecast
            if f.is_event:
                alone += [s] if f.method == "loss alone" else []
            elif f.for_step < lost:  # how a run that is lost ends is another question
                vital, _, metric = f.quantity.partition("/")
                smooth = smooth_error(f, columns[vital, f.site, metric], s.truth)
                found = groups.setdefault((f.quantity, f.horizon), Sums(run["family"]))
                found.add(s, smooth, law.error(s) if f.quantity == GATES else math.nan)
        for key, found in groups.items():
            values.setdefault(key, []).append(found)
        plateaus.setdefault(run["family"], []).append(plateau_of(run))
        calls = [f.made_at for f in forecaster.made if f.quantity == "loss/lost"]
        counts = danger.setdefault(run["family"], {**NOTHING, "leads": []})
        judge_danger(counts, calls, forecaster.danger.withdrawn, lost)
        danger[run["family"]]["signs"] += math.inf > lost >= 60 and shows_a_sign(run["losses"], lost)
        print(run["name"], len(scores), flush=True)
    return {
        "runs": counts,
        "values": {
            f"{q} | {h}": {
                "forecasts": sum(r.scores for r in runs),
                "runs": len(runs),
                "skill": between(runs, pooled_skill),
                "error": pooled_mean("error")(runs),
                "best_naive": best_naive(runs)[0],
                "coverage50": between(runs, pooled_mean("covered50")),
                "coverage80": between(runs, pooled_mean("covered80")),
                "ceiling": pooled_ceiling(runs, "smooth"),
                "law_ceiling": pooled_ceiling(runs, "law"),
                "families": {
                    family: pooled_skill([r for r in runs if r.family == family])
                    for family in dict.fromkeys(r.family for r in runs)
                },
            }
            for (q, h), runs in sorted(values.items())
        },
        "plateaus": {family: _plateaus(found) for family, found in plateaus.items()},
        "plateau": _plateaus([p for found in plateaus.values() for p in found]),
        "alone": {
            "forecasts": len(alone),
            "covered80": float(np.mean([s.covered80 for s in alone])) if alone else math.nan,
        },
        "danger": {
            key: sum(d[key] for d in danger.values())
            for key in ("lost", "called", "standing", "signs", "sound", "false")
        },
        "dangers": danger,
    }


def judge_danger(danger: dict[str, Any], calls: list[int], withdrawn: list[int], lost: float) -> None:
    """Count one run: was it lost after step 60, was it called twenty steps before and did the call stand; or was it a
    false alarm?"""
    if lost == math.inf:
        danger["sound"] += 1
        danger["false"] += bool(calls)
    elif lost >= 60:
        danger["lost"] += 1
        lead = max((lost - c for c in calls if c < lost), default=-1)
        danger["leads"].append(lead)
        danger["called"] += lead >= 20
        danger["standing"] += any(c <= lost - 20 and not any(c < w < lost for w in withdrawn) for c in calls)


def _plateaus(found: list[dict[str, Any]]) -> dict[str, Any]:
    real, none = [p for p in found if p["plateau"]], [p for p in found if not p["plateau"]]
    at = {}
    for share in map(str, FRACTIONS):
        asked = [p["asked"].get(share) for p in real]
        spoke = [a for a in asked if a is not None]
        at[share] = {
            "asked": len(asked),
            "spoke": len(spoke),
            "error": between(spoke, lambda v: float(np.median([e for e, _ in v])) if v else math.nan),
            "covered80": float(np.mean([c for _, c in spoke])) if spoke else math.nan,
        }
    later = [entry for p in found for entry in p["later"]]
    every = [c for p in real for *_, c in p["all"]]
    return {
        "plateaus": len(real),
        "at": at,
        "covered80": float(np.mean(every)) if every else math.nan,
        "forecasts": len(every),
        "others": len(none),
        "false": sum(1 for p in none if _alarms(p)),
        "looks": sum(p["looks"] for p in none),
        "false looks": sum(_alarms(p) for p in none),
        "later": len(later),
        "later covered80": float(np.mean([c for *_, c in later])) if later else math.nan,
    }


def _alarms(p: dict[str, Any]) -> int:
    """Forecasts of a drop on a run that has no plateau, but for those that came true."""
    return sum(1 for _, _, covered in p["all"] if not covered)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float | np.floating):
        return None if not math.isfinite(value) else float(f"{float(value):.4g}")
    return value


if __name__ == "__main__":
    if sys.argv[1] == "docs":
        from forecast_page import page

        names = ("forecasts", "forecast_lookahead", "forecast_rehearsed_values")
        found = [json.loads((RESULTS.parent / f"{name}.json").read_text()) for name in names]
        (Path(__file__).parents[2] / "docs" / "forecasts.md").write_text(page(*found))
    else:
        halves = {"tuning": TUNING, "test": TEST, "seen": SEEN, "fresh": FRESH}
        wanted = sys.argv[3:] or list(halves)
        RESULTS.parent.mkdir(exist_ok=True)
        known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        known.update({half: _plain(gathered(Path(sys.argv[2]), halves[half])) for half in wanted})
        RESULTS.write_text(json.dumps(known, indent=1) + "\n")
