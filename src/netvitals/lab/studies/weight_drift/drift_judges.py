"""How training runs decide whether weights drift, where, and how long."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from netvitals import stats
from netvitals.lab.engine.judges import at_most, column, difference, groups, means, sign_of, some
from netvitals.lab.engine.verdict import Fact
from netvitals.lab.studies import (
    Plot,
    Row,
    Series,
    Verdict,
    decide,
    fails,
    holds,
    not_judged,
    not_run,
    underspecified,
)
from netvitals.lab.studies.weight_drift._networks import hidden_drift
from netvitals.lab.studies.weight_drift.controls import RATES

NONE = 0.003  # |drift_z| of a control that must not drift (reference runs)
EARLY = 1.2e-4  # largest |cov| after the start in the reference run
ENOUGH = 50  # steps that a claim on architectures may rest on
HARDLY = 0.06  # |cov| over |prod|: the most of a reference run; the paper has no number


def hidden(rows: Sequence[Row], **where: Any) -> stats.Mean:
    """Mean hidden drift_z over seeds; with one seed there is no error."""
    values = list(hidden_drift(some(rows, **where)).values())
    return stats.mean(values) if len(values) > 1 else stats.Mean(values[0], float("nan"), 1)


def say(drift: stats.Mean) -> str:
    return f"{drift.value:+.4f}" + (f" ± {drift.stderr:.4f}" if drift.stderr == drift.stderr else "")


def covariance(rows: Sequence[Row]) -> Verdict:
    """E4: hidden layers of the cross-entropy run; the ratio only at step 0, where the product is not near zero."""
    splits = some(rows, quantity="split", loss="ce", gain=1.0, data="digits")
    chosen = [r for r in splits if 1 < r["layer"] <= r["depth"]]
    at_start = max(abs(r["cov"][0] / r["prod"][0]) for r in chosen)
    later = max(abs(v) for r in chosen for v in r["cov"][1:])
    product = max(abs(v) for r in chosen for v in r["prod"])
    changes = min(sum(a * b < 0 for a, b in pairwise(r["cov"])) for r in chosen)
    small = later < HARDLY * product and changes > 0
    facts: dict[str, Fact] = {
        "afterwards |cov| at most": later,
        "reference": EARLY,
        "fewest changes of its sign": changes,
        "|prod| at most": product,
    }
    if small and at_start > HARDLY:
        why = f"the paper does not say how little is hardly; the largest |cov|/|prod| at step 0 is {at_start:.3f}"
        return not_judged(why, facts=facts)
    return decide(small, at_start, note="largest |cov|/|prod| at step 0", facts=facts)


CASES: dict[str, dict[str, Any]] = {
    "squared error": {"loss": "onehot-mse", "data": "digits"},
    "permuted labels": {"data": "permuted"},
    "weights × 1.5": {"loss": "ce", "data": "digits", "gain": 1.5},
    "cross-entropy": {"loss": "ce", "data": "digits", "gain": 1.0},
}


def early_drift(rows: Sequence[Row]) -> Verdict:
    """Hidden drift by horizon and case: negative everywhere, somewhere, or nowhere?"""
    facts: dict[str, Fact] = {}
    signs: list[int] = []
    values: list[float] = []
    pairs = 0
    for name, where in CASES.items():
        early = {
            step: means(mine, "drift_z", "seed")
            for step, mine in groups(rows, "step", quantity="early", place="hidden", **where).items()
        }
        early[math.inf] = hidden_drift(some(rows, **where))
        words = []
        for step, by_seed in sorted(early.items()):
            if len(by_seed) < 2:
                return not_judged(f"{len(by_seed)} seed is no spread")
            found, pairs = difference(by_seed.values()), len(by_seed)
            signs.append(-1 if found.high < 0 else 1 if found.low > 0 else 0)
            values.append(found.value)
            words.append(f"{'end' if step == math.inf else step}: {found.value:+.4f} ± {found.stderr:.4f}")
        facts[f"{name}, by step"] = words
    counts = f"negative at {signs.count(-1)} of {len(signs)} horizons and cases, positive at {signs.count(1)}"
    note = f"hidden drift_z; beyond its 95 % interval {counts}"
    more: dict[str, Any] = {"note": note, "facts": facts, "seeds": pairs}
    if signs.count(1) == 0 and signs.count(-1) > 0:
        return holds(max(values), **more)
    if signs.count(-1) == 0:
        return fails(min(values), **more)
    return underspecified((min(values), max(values)), **more)


def intrinsic(rows: Sequence[Row]) -> Verdict:
    ce, mse = (hidden(rows, check="random data", act="relu", loss=loss) for loss in ("ce", "onehot-mse"))
    low = list(hidden_drift(some(rows, check="random data", act="relu", loss="ce")).values())
    return decide(
        max(low) < 0 and ce.z(0) < -4.5 and mse.value < 0,
        ce.value,
        ce.stderr,
        note="hidden drift_z on fresh random data; other data can reverse it",
        facts={
            "p of the sign test over seeds": stats.sign_test(low).p_below,
            "squared error": say(mse),
            **{f"{d} data": say(hidden(rows, check="source", data=d)) for d in ("fixed", "permuted", "digits")},
        },
        seeds=len(low),
    )


def activations(rows: Sequence[Row]) -> Verdict:
    drifts = {a: hidden(rows, check="random data", act=a, loss="ce") for a in ("relu", "gelu", "silu")}
    weakest = max(drifts.values(), key=lambda d: d.value)
    facts = {a: say(d) for a, d in drifts.items()}
    return sign_of(weakest, -1, note="hidden drift_z on random data, the weakest", facts=facts)


def architectures(rows: Sequence[Row]) -> Verdict:
    """E7: the mean input of activations sinks in training. The paper does not say whether its residual network has a
    BatchNorm, which holds pre-activations where they are (claim 26): both are set-ups of one architecture."""
    if rows[0]["steps"] < ENOUGH:
        return not_run(f"{rows[0]['steps']} steps are too few for this claim; run it at a larger scale")
    sites = [r | {"sunk": r["preact_drift"] - r["preact_drift_0"]} for r in some(rows, quantity="site")]
    weights = some(rows, quantity="weights", place="hidden")
    facts: dict[str, Fact] = {}
    sunk: dict[str, float] = {}
    for network in dict.fromkeys(r["network"] for r in rows):
        for way, of in (("real", lambda r: r["data"] != "random"), ("random", lambda r: r["data"] == "random")):
            mine = [r["sunk"] for r in sites if r["network"] == network and of(r)]
            moved = [r["drift_z"] for r in weights if r["network"] == network and of(r)]
            if mine:
                change = sum(mine) / len(mine)
                sunk |= {network: change} if way == "real" else {}
                facts[f"{network}, {way} data: mean input in σ, hidden drift_z"] = [change, sum(moved) / len(moved)]
    down = [n for n, change in sunk.items() if change < 0]
    note = f"{len(down)} of {len(sunk)} set-ups sink on real data: {', '.join(down)}"
    if len(down) == len(sunk):
        return holds(max(sunk.values()), note=note, facts=facts)
    if not down:
        return fails(min(sunk.values()), note=note, facts=facts)
    return underspecified((min(sunk.values()), max(sunk.values())), note=note, facts=facts)


def optimisers(rows: Sequence[Row]) -> Verdict:
    sweep = groups(rows, "optimizer", "lr", check="sweep")
    drifts = {o: [hidden(sweep[o, lr]).value for lr in rates if (o, lr) in sweep] for o, rates in RATES.items()}
    ordered = all(b < a < 0 for found in drifts.values() for a, b in pairwise(found))
    measured = "monotone" if ordered else "not monotone"
    return decide(ordered, measured, note="hidden drift_z by rising learning rate", facts=drifts)


def symmetric(rows: Sequence[Row]) -> Verdict:
    """tanh and identity everywhere, and the first layer (zero-mean input) of the ReLU network."""
    drifts = {a: hidden(rows, check="random data", act=a, loss="ce") for a in ("tanh", "identity")}
    first = column(rows, "drift_z", check="random data", act="relu", loss="ce", place="first")
    drifts["first layer of the ReLU network"] = stats.mean(first)
    worst = max(abs(d.value) for d in drifts.values())
    return at_most(worst, NONE, "largest |drift_z|", facts={name: say(d) for name, d in drifts.items()})


def sign_rule(rows: Sequence[Row]) -> Verdict:
    up, neg = (hidden(rows, check="random data", act=a, loss="ce") for a in ("alternating", "neg_relu"))
    return decide(
        up.z(0) > 3 and neg.z(0) < -3,
        up.value,
        up.stderr,
        note="hidden drift_z of ReLU and −ReLU(−x) in turn",
        facts={"−ReLU(−x) everywhere": say(neg)},
    )


def batch_norm(rows: Sequence[Row]) -> Verdict:
    weights = hidden(rows, check="batch norm")
    bare = hidden(rows, check="random data", act="relu", loss="ce")
    shifts = [
        r["moved"]
        for r in some(rows, check="batch norm", quantity="weights", place="norm_shift")
        if r["name"].split(".")[1] == str(r["depth"] - 1)
    ]
    shift = stats.mean(shifts)
    return decide(
        abs(weights.value) < 0.1 * abs(bare.value) and shift.value < 0,
        weights.value,
        weights.stderr,
        note=f"hidden drift_z with BatchNorm, without it {say(bare)}; the last shift β moved by {say(shift)}",
    )


def persistence(rows: Sequence[Row]) -> Verdict:
    """Does g_pos stay positive for ten epochs?"""
    facts = []
    stays = True
    for name, where in (
        ("cross-entropy", {"loss": "ce", "data": "digits", "gain": 1.0}),
        ("squared error", {"loss": "onehot-mse"}),
        ("permuted labels", {"data": "permuted"}),
    ):
        layers, runs = some(rows, quantity="layer", **where), some(rows, quantity="run", **where)
        flips = [r["t_flip"] for r in layers]
        stays &= all(t is None for t in flips)
        known = [t for t in flips if t is not None]
        pushes = ", ".join("never" if r["push_flip"] is None else str(r["push_flip"]) for r in runs)
        share = sum(sum(r["positive"]) / len(r["positive"]) for r in layers) / len(layers)
        agree = sum(r["agreement"] for r in layers) / len(layers)
        facts.append(
            f"{name}: g_pos flips at step {min(known)}–{max(known)}" if known else f"{name}: g_pos never flips"
        )
        facts[-1] += f", ⟨o, ∇ℓ⟩ at {pushes}; positive on {share:.0%} of steps, sign as ⟨o, ∇ℓ⟩ on {agree:.0%}"
    return decide(stays, note="; ".join(facts) + f" ({some(rows, quantity='run')[0]['per_epoch']} steps an epoch)")


def first_step(rows: Sequence[Row]) -> Verdict:
    chosen = [r for r in some(rows, check="first step", quantity="first step") if r["layer"] > 1]
    ratio = [r["mean"] / r["expected"] for r in chosen]
    worst = max(abs(r["gap"]) / r["gap_stderr"] for r in chosen)
    return decide(
        worst < 4.5,
        sum(ratio) / len(ratio),
        note="measured over predicted mean step of the hidden weights",
        facts={"largest gap in standard errors": worst, "initialisations": chosen[0]["inits"]},
    )


def gradient_sign(rows: Sequence[Row]) -> Verdict:
    signs = some(rows, check="init", quantity="signs")
    facts, ratios = {}, []
    for loss in ("ce", "onehot-mse"):
        ratios += [r["mean"] / r["stderr"] for r in some(signs, act="relu", loss=loss, metric="g_pos")]
        rho = column(signs, "mean", act="relu", loss=loss, metric="rho_pos")
        facts[f"rho_pos over active entries, {loss}"] = [min(rho), max(rho)]
    flat = max(map(abs, column(signs, "mean", act="tanh", loss="ce", metric="rho_all")))
    return decide(
        min(ratios) > 3 and flat <= 0.02,
        min(ratios),
        note="weakest g_pos over standard error; with |g| averaged over all entries rho_pos would be larger (by how "
        "much was not measured)",
        facts={**facts, "tanh |rho_all| at most": flat},
    )


def flip_plot(rows: Sequence[Row]) -> Plot:
    runs = [r for r in some(rows, quantity="run") if r["seed"] == 0]
    names = {
        ("ce", "digits", 1.0): "cross-entropy",
        ("onehot-mse", "digits", 1.0): "squared error",
        ("ce", "permuted", 1.0): "permuted labels",
        ("ce", "digits", 1.5): "weights × 1.5",
    }
    return Plot(
        "training step",
        "⟨o, ∇ℓ⟩ over its start",
        [
            Series(
                names[r["loss"], r["data"], r["gain"]],
                r["steps"],
                [v / abs(r["push"][0]) for v in r["push"]],
                line=True,
            )
            for r in runs
        ],
    )


def sweep_plot(rows: Sequence[Row]) -> Plot:
    series = []
    for name, rates in RATES.items():
        runs = groups(some(rows, optimizer=name), "lr")
        run = [lr for lr in rates if lr in runs]
        series.append(Series(name, run, [abs(hidden(runs[lr]).value) for lr in run], line=True))
    return Plot("learning rate", "hidden |drift_z|", series, log_x=True, log_y=True)
