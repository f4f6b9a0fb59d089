"""Will this run diverge? Signs that a watch measures anyway, against the rule that has only the losses.

    python bench/forecasts/divergence.py      train, fit, score: the part "divergence" of bench/results/forecasts.json

Every ``EVERY`` steps: update/weight ratio, gradient norm, weight norm and root mean square of the outputs, as growth
over ``BACK`` measurements; the learning rate over its highest so far; and how far one update overshoots, −dᵀHd / (gᵀd)
(learning rate × sharpness along the update d, any optimizer; above 2 it raises the loss). A logistic model of them is
fitted on the tuning families (does the run diverge within 20 to 60 steps?). It calls a run on two measurements in a
row above the lowest level with at most 2 % false alarms there. Both rules are then scored once on ``HELD_OUT``.
A run is called in time where a call came 20 steps or more before it diverged; runs lost before step 60 do not count.
"""

from __future__ import annotations

import math
import warnings
from collections import deque
from typing import Any

import numpy as np
import torch
from divergence_families import HELD_OUT, TUNING, Trial, drawn, trials
from results import store

import netvitals as nv
from netvitals.forecasts import Lookahead, skill
from netvitals.forecasts.divergence import Danger

EVERY, BACK, AHEAD, NOTICE = 5, 4, 60, 20
FALSE = 0.02  # of the tuning runs that did not diverge
KINDS = ("update ratio", "gradient", "weights", "outputs", "rate", "overshoot", "above 2")


def trained(trial: Trial) -> dict[str, Any]:
    """One run: its losses, its learning rates and the signs at every measured step."""
    net, x, y, loss_fn = trial.build()
    opt, sched = trial.optimizer_of(net)
    params = [p for p in net.parameters() if p.requires_grad]
    g, losses, rates, looks = drawn(trial.seed), [], [], []
    for step in range(trial.steps):
        rows = slice(None) if not trial.batch else torch.randint(0, len(x), (trial.batch,), generator=g)
        out = net(x[rows])
        loss = loss_fn(out, y[rows])
        measured = step % EVERY == 0
        opt.zero_grad()
        loss.backward()
        before = [p.detach().clone() for p in params] if measured else []
        rates.append(float(opt.param_groups[0]["lr"]))
        opt.step()
        if measured:
            looks.append([step, *signs(net, loss_fn, x[rows], y[rows], params, before, out.detach())])
        sched.step()
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]) or losses[-1] > 1e6 * max(losses[0], 1e-3):
            break
    return {"trial": trial, "losses": losses, "rates": rates, "looks": np.array(looks)}


def signs(net: Any, loss_fn: Any, x: Any, y: Any, params: Any, before: Any, out: torch.Tensor) -> list[float]:
    """Update/weight ratio, gradient norm, weight norm, outputs, and the overshoot of the step that was just taken."""
    moved = [p.detach() - b for p, b in zip(params, before)]
    norm = lambda parts: math.sqrt(sum(float(v.detach().double().square().sum()) for v in parts))
    after = [p.detach().clone() for p in params]
    with torch.no_grad():
        for p, b in zip(params, before):
            p.copy_(b)
    with torch.random.fork_rng():
        grads = torch.autograd.grad(loss_fn(net(x), y), params, create_graph=True, allow_unused=True)
        along = sum((a * d).sum() for a, d in zip(grads, moved) if a is not None)
        bent = torch.autograd.grad(along, params, allow_unused=True)
    with torch.no_grad():
        for p, a in zip(params, after):
            p.copy_(a)
    curved = sum(float((h * d).sum()) for h, d in zip(bent, moved) if h is not None)
    overshoot = curved / max(-float(along.detach()), 1e-12)
    return [
        norm(moved) / max(norm(before), 1e-12), norm([a for a in grads if a is not None]), norm(before),
        float(out.double().square().mean().sqrt()), overshoot,
    ]  # fmt: skip


def by_lookahead(run: dict[str, Any]) -> list[int]:
    """Steps at which a watch with ``lookahead=`` on the last 32 batches calls; the same run, trained again."""
    trial = run["trial"]
    net, x, y, loss_fn = trial.build()
    opt, sched = trial.optimizer_of(net)
    g, recent = drawn(trial.seed), deque[Any](maxlen=32 if trial.batch else 1)
    plan = Lookahead(batches=recent, loss_fn=lambda out, target: loss_fn(out, target))
    with nv.watch(
        net, opt, every=10, vitals=["optimizer"], scheduler=sched, total_steps=trial.steps, lookahead=plan, checks=False
    ) as seen:
        for _ in range(len(run["losses"])):
            rows = slice(None) if not trial.batch else torch.randint(0, len(x), (trial.batch,), generator=g)
            recent.append((x[rows], y[rows]))
            loss = loss_fn(net(x[rows]), y[rows])
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen.step(loss)
            sched.step()
    live = seen._forecasts
    assert live is not None and live.lookahead is not None and not live._failed
    run["kind"], run["cost"] = live.forecaster.kind, live.lookahead.spent / len(run["losses"])
    return [f.made_at for f in seen.forecasts if f.known and f.method == "look-ahead"]


def features(run: dict[str, Any]) -> np.ndarray:
    """Looks × signs, each of what was known at the time."""
    looks, rates = run["looks"], np.array(run["rates"])
    values = np.nan_to_num(looks[:, 1:5], nan=1e12, posinf=1e12).clip(1e-12, 1e12)
    logs, out = np.log(values), []
    for i in range(len(looks)):
        grown = logs[i] - logs[max(0, i - BACK)]
        step = int(looks[i, 0])
        rate = math.log(max(rates[step], 1e-12) / max(rates[: max(1, step - 20)].max(), 1e-12))
        recent = np.nan_to_num(looks[max(0, i - BACK + 1) : i + 1, 5], nan=20.0).clip(-20, 20)
        out.append([*grown.clip(-5, 5), np.clip(rate, -5, 5), float(np.median(recent)), float((recent > 2).mean())])
    return np.array(out)


def lost_at(run: dict[str, Any]) -> float:
    danger, losses = Danger(), run["losses"]
    for t, loss in enumerate(losses):
        danger.add(t, loss, run["rates"][t])
    if danger.lost is not None:
        return float(danger.lost)
    return len(losses) - 1.0 if len(losses) < run["trial"].steps else math.inf


def by_losses(run: dict[str, Any]) -> list[int]:
    """Steps at which the rule that has the losses and the planned rates calls."""
    danger, calls, planned = Danger(), [], run["trial"].planned()
    for t, loss in enumerate(run["losses"]):
        if t % EVERY == 0:
            danger.plan(t, planned[t:])
        if danger.add(t, loss, run["rates"][t], planned[min(t + 20, len(planned) - 1)]):
            calls.append(t)
    return calls


def fitted(x: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ridge logistic regression by Newton's method; both classes weigh the same."""
    middle, spread = x.mean(0), x.std(0) + 1e-9
    z = np.c_[(x - middle) / spread, np.ones(len(x))]
    weight = np.where(wanted, 0.5 / max(1, wanted.sum()), 0.5 / max(1, (~wanted).sum()))
    w = np.zeros(z.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-(z @ w).clip(-30, 30)))
        slope = z.T @ (weight * (p - wanted)) + 1e-3 * w
        w = w - np.linalg.solve((z.T * (weight * p * (1 - p) + 1e-9)) @ z + 1e-3 * np.eye(len(w)), slope)
    return w, middle, spread


def scores(run: dict[str, Any], model: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    """Per measurement, the lower of this score and the last one: two in a row have to be above a level."""
    w, middle, spread = model
    found = np.c_[(features(run) - middle) / spread, np.ones(len(run["looks"]))] @ w
    found[run["looks"][:, 0] < 20] = -np.inf
    return np.minimum(found, np.r_[-np.inf, found[:-1]])


def tuned(runs: list[dict[str, Any]]) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], float]:
    rows, wanted = [], []
    for run in runs:
        left = lost_at(run) - run["looks"][:, 0]
        keep = (run["looks"][:, 0] >= 20) & ((left > AHEAD) | ((left >= NOTICE) & (left <= AHEAD)))
        rows.append(features(run)[keep])
        wanted.append((left <= AHEAD)[keep])
    model = fitted(np.concatenate(rows), np.concatenate(wanted))
    sound = sorted((float(scores(r, model).max()) for r in runs if lost_at(r) == math.inf), reverse=True)
    return model, sound[int(FALSE * len(sound))]


def counted(runs: list[dict[str, Any]], calls_of: Any) -> dict[str, int]:
    """Of the runs that diverged how many were called in time; of the others how many were called."""
    out = {"lost": 0, "called": 0, "sound": 0, "false": 0}
    for run in runs:
        lost, calls = lost_at(run), run.get("calls") if calls_of is by_lookahead else None
        calls = calls_of(run) if calls is None else calls
        if calls_of is by_lookahead:
            run["calls"] = calls
        if lost == math.inf:
            out["sound"] += 1
            out["false"] += bool(calls)
        elif lost >= 60:
            out["lost"] += 1
            out["called"] += any(c <= lost - NOTICE for c in calls)
    return out


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    tuning, held_out = ([trained(t) for t in trials(rows)] for rows in (TUNING, HELD_OUT))
    model, level = tuned(tuning)
    by_signs = lambda run: [int(s) for s in run["looks"][scores(run, model) > level, 0]]
    found: dict[str, Any] = {
        half: {"signs": counted(runs, by_signs), "losses": counted(runs, by_losses)}
        for half, runs in (("tuning", tuning), ("held out", held_out))
    }
    skill.LEAST = -math.inf  # here it is measured
    found["held out"]["look-ahead"] = counted(held_out, by_lookahead)
    found["cost of look-ahead"] = float(np.mean([r["cost"] for r in held_out]))
    found["kinds"] = {
        kind: {
            method: counted([r for r in held_out if r["kind"] == kind], calls_of)
            for method, calls_of in (("losses", by_losses), ("look-ahead", by_lookahead))
        }
        for kind in sorted({r["kind"] for r in held_out})
    }
    # the level at which the signs have as many false alarms on the tuning runs as the rule of the losses
    alike = found["tuning"]["losses"]["false"]
    level = sorted((float(scores(r, model).max()) for r in tuning if lost_at(r) == math.inf), reverse=True)[alike]
    found["signs at the false alarms of the losses"] = counted(held_out, by_signs)
    print(found)
    found["weights"] = dict(zip(KINDS, model[0].tolist()))
    store("divergence", found)


if __name__ == "__main__":
    main()
