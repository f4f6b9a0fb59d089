"""Claims 7–14, 23 and 26: does the drift appear, where, and how long, judged on training runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from netvitals_lab import (
    Claims,
    Expected,
    Measured,
    Plot,
    Row,
    Series,
    Verdict,
    fails,
    holds,
    not_judged,
    stats,
    underspecified,
)
from netvitals_lab.engine.claim import PAIRS
from netvitals_lab.engine.judges import column, difference, groups, means, some
from netvitals_lab.engine.judges.comparing import Difference
from netvitals_lab.engine.verdict import Fact
from netvitals_lab.papers.weight_drift._networks import hidden_drift
from netvitals_lab.papers.weight_drift.controls import PAIR, RATES

KINDS = tuple(kind for kind, _ in PAIR)
EARLY = 1.2e-4  # largest |cov| after the start in the reference run
ENOUGH = 50  # steps that a claim on architectures may rest on
HARDLY = 0.06  # |cov| over |prod|: the most of a reference run; the paper has no number


def hidden(rows: Sequence[Row], **where: Any) -> stats.Mean:
    """Mean hidden drift_z over seeds; with one seed there is no error."""
    values = list(hidden_drift(some(rows, **where)).values())
    return stats.mean(values) if len(values) > 1 else stats.Mean(values[0], float("nan"), 1)


def say(drift: stats.Mean) -> str:
    return f"{drift.value:+.4f}" + (f" ± {drift.stderr:.4f}" if drift.stderr == drift.stderr else "")


CASES: dict[str, dict[str, Any]] = {
    "squared error": {"loss": "onehot-mse", "data": "digits"},
    "permuted labels": {"data": "permuted"},
    "weights × 1.5": {"loss": "ce", "data": "digits", "gain": 1.5},
    "cross-entropy": {"loss": "ce", "data": "digits", "gain": 1.0},
}


def too_short(rows: Sequence[Row]) -> str:
    steps = rows[0]["steps"]
    return f"{steps} steps are too few for this claim; run it at a larger scale" if steps < ENOUGH else ""


def sunk(rows: Sequence[Row]) -> Verdict:
    """E7: the mean input of activations sinks in training, by its interval over seeds. The paper does not say whether
    its residual network has a BatchNorm, which holds pre-activations where they are (claim 26), nor the optimiser of
    each: all are set-ups that the text admits."""
    sites = [r | {"sunk": r["preact_drift"] - r["preact_drift_0"]} for r in some(rows, quantity="site")]
    facts: dict[str, Fact] = {}
    changes: dict[str, Difference] = {}
    for (network, kind, random), mine in groups(_apart(sites), "network", "optimizer", "random").items():
        by_seed = means(mine, "sunk", "seed")
        if len(by_seed) < 2:
            return not_judged(f"{len(by_seed)} seed is no spread")
        change = difference(by_seed.values())
        changes |= {} if random else {f"{network} with {kind}": change}
        moved = means(
            _apart(rows), "drift_z", "network", network=network, optimizer=kind, random=random, place="hidden"
        )
        name = f"{network}, {kind}, {'random' if random else 'real'} data: mean input in σ; hidden drift_z"
        facts[name] = [str(change), f"{moved[network]:+.3f}"]
    down, up = [n for n, c in changes.items() if c.high < 0], [n for n, c in changes.items() if c.low > 0]
    note = (
        f"of {len(changes)} set-ups on real data {len(down)} surely sink ({', '.join(down) or 'none'}), {len(up)} rise"
    )
    values, pairs = [c.value for c in changes.values()], min(c.pairs for c in changes.values())
    more: dict[str, Any] = {"note": note, "facts": facts, "seeds": pairs}
    if len(down) == len(changes):
        return holds(max(values), **more)
    if not down:
        return fails(min(values), **more)
    return underspecified((min(values), max(values)), **more)


def _apart(rows: Sequence[Row]) -> list[Row]:
    return [r | {"random": r["data"] == "random"} for r in rows]


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


CHOSEN = (
    "a bias-free MLP of four hidden layers on random data, 300 steps",
    "two optimisers: SGD with momentum at 0.02 and Adam at 0.001",
)
SIGNS, CONTROLS, ARCHITECTURES = "weight-drift-signs", "weight-drift-controls", "weight-drift-architectures"


claim = Claims("weight-drift", study=SIGNS, seeds=PAIRS)


@claim(
    "C7",
    f"|cov| at most {HARDLY:g} of |prod|, with changing sign",
    uses={"check": "persistence"},
    effect="largest |cov| over |prod| of a hidden layer, at step 0 and after",
    choices=("0.06, the most of a reference run of ours, counts as hardly; the paper has no number",),
    seeds=0,
)
def covariance(rows: Sequence[Row]) -> Measured | Verdict:
    """The covariance of gradient and input hardly counts in early training

    E4: hidden layers of the cross-entropy run; the ratio only at step 0, where the product is not near zero.
    """
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
    return Measured(at_start, "largest |cov|/|prod| at step 0", facts=facts, ok=small)


@claim(
    "C8",
    "negative",
    uses={"check": "persistence"},
    effect="hidden drift_z after 3, 6, 12, 24 and 60 steps and at the end",
    choices=("digits, a ReLU MLP without biases", "early is no number in the paper: six horizons"),
    question="How many steps are early training? With cross-entropy on digits the sign turns in the first epoch.",
)
def early_drift(rows: Sequence[Row]) -> Verdict:
    """Weights after positive activations drift negative in early training

    Hidden drift by horizon and case: negative everywhere, somewhere, or nowhere?
    """
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


@claim(
    "C9",
    "negative",
    study=CONTROLS,
    uses=lambda c: c["check"] == "source" or (c["check"] == "random data" and c["act"] == "relu"),
    effect="hidden drift_z on fresh random data",
    choices=CHOSEN,
)
def intrinsic(rows: Sequence[Row]) -> Measured:
    """Drift needs no structure in the data: it is there on random data

    Under both optimisers: every seed drifts down, the mean by more than 4.5 standard errors, both losses.
    """
    facts: dict[str, Fact] = {}
    weakest, down = stats.Mean(-math.inf, 0.0, 0), True
    for kind in KINDS:
        fresh = {"check": "random data", "act": "relu", "optimizer": kind}
        ce, mse = (hidden(rows, loss=loss, **fresh) for loss in ("ce", "onehot-mse"))
        low = list(hidden_drift(some(rows, loss="ce", **fresh)).values())
        down &= max(low) < 0 and ce.z(0) < -4.5 and mse.value < 0
        weakest = max(weakest, ce, key=lambda d: d.value)
        facts |= {
            f"{kind}: p of the sign test over seeds": stats.sign_test(low).p_below,
            f"{kind}: cross-entropy, squared error": [say(ce), say(mse)],
            f"{kind}: fixed, permuted, digits": [
                say(hidden(rows, check="source", data=d, optimizer=kind)) for d in ("fixed", "permuted", "digits")
            ],
        }
    note = "hidden drift_z on fresh random data, the weaker of two optimisers; other data can reverse it"
    return Measured(weakest.value, note, stderr=weakest.stderr, facts=facts, seeds=weakest.n, ok=down)


@claim(
    "C10",
    "negative",
    study=CONTROLS,
    uses={"check": "random data", "act": ("relu", "gelu", "silu")},
    effect="hidden drift_z on fresh random data, the weakest activation and optimiser",
    choices=CHOSEN,
)
def activations(rows: Sequence[Row]) -> Measured:
    """Drift appears with ReLU, GELU and SiLU"""
    fresh = {"check": "random data", "loss": "ce"}
    drifts = {
        f"{a}, {kind}": hidden(rows, act=a, optimizer=kind, **fresh) for kind in KINDS for a in ("relu", "gelu", "silu")
    }
    weakest = max(drifts.values(), key=lambda d: d.value)
    facts = {a: say(d) for a, d in drifts.items()}
    ok = -weakest.z(0) > 3
    return Measured(
        weakest.value,
        "hidden drift_z on random data, the weakest",
        stderr=weakest.stderr,
        facts=facts,
        seeds=weakest.n,
        ok=ok,
    )


@claim(
    "C11",
    "pre-activations sink",
    obstacle=too_short,
    study=ARCHITECTURES,
    effect="change of the mean input of activations, in its standard deviations",
    choices=(
        "small networks, 120 steps",
        "two optimisers: SGD with momentum and Adam; for the GPT Muon and Adam",
        "the residual network with and without BatchNorm; the paper does not say which",
    ),
    question="Does the residual network have BatchNorm, and which statistic drifts there?",
)
def networks(rows: Sequence[Row]) -> Verdict:
    """Drift appears in MLP, ResNet, ViT, GPT and a speech denoiser"""
    return sunk(rows)


@claim(
    "C12",
    "monotone",
    study=CONTROLS,
    uses={"check": "sweep"},
    effect="hidden drift_z by learning rate, mean over seeds",
    choices=("a bias-free MLP on random data, 200 steps", "six optimisers with three rates each, ours"),
    plot=sweep_plot,
)
def optimisers(rows: Sequence[Row]) -> Measured:
    """Drift depends on the optimiser and grows with the learning rate"""
    sweep = groups(rows, "optimizer", "lr", check="sweep")
    drifts = {o: [hidden(sweep[o, lr]).value for lr in rates if (o, lr) in sweep] for o, rates in RATES.items()}
    ordered = all(b < a < 0 for found in drifts.values() for a, b in pairwise(found))
    measured = "monotone" if ordered else "not monotone"
    return Measured(measured, "hidden drift_z by rising learning rate", facts=drifts, ok=ordered)


@claim(
    "C23",
    "g_pos > 0",
    uses={"check": "persistence"},
    plot=flip_plot,
    effect="first step at which g_pos is not positive",
    choices=("digits, a ReLU MLP, two losses",),
)
def persists(rows: Sequence[Row]) -> Measured:
    """The sign of the gradient persists over the first ten epochs"""
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
    return Measured(note="; ".join(facts) + f" ({some(rows, quantity='run')[0]['per_epoch']} steps an epoch)", ok=stays)


@claim(
    "C26",
    "weights near 0, last β negative",
    study=CONTROLS,
    uses=lambda c: c["check"] == "batch norm" or (c["check"] == "random data" and c["act"] == "relu"),
    effect="hidden drift_z with BatchNorm over without",
    choices=CHOSEN,
)
def batch_norm(rows: Sequence[Row]) -> Measured:
    """BatchNorm removes the drift of the weights; its shift takes it"""
    facts: dict[str, Fact] = {}
    left, falls = [], True
    for kind in KINDS:
        weights = hidden(rows, check="batch norm", optimizer=kind)
        bare = hidden(rows, check="random data", act="relu", loss="ce", optimizer=kind)
        norms = some(rows, check="batch norm", quantity="weights", place="norm_shift", optimizer=kind)
        shift = stats.mean([r["moved"] for r in norms if r["name"].split(".")[1] == str(r["depth"] - 1)])
        left.append(abs(weights.value / bare.value))
        falls &= shift.value < 0
        facts[f"{kind}: hidden drift_z with BatchNorm, without; last shift β moved"] = [
            say(weights),
            say(bare),
            say(shift),
        ]
    note = "share of the hidden drift that is left with BatchNorm, the larger of two optimisers"
    return Measured(max(left), note, facts=facts, ok=max(left) < 0.1 and falls)


@claim("E2", "positive", uses={"check": "init"}, seeds=0)
def gradient_sign(rows: Sequence[Row]) -> Measured:
    """At initialisation the gradient on positive pre-activations is positive in every hidden layer; tanh has none on
    average"""
    signs = some(rows, check="init", quantity="signs")
    facts, ratios = {}, []
    for loss in ("ce", "onehot-mse"):
        ratios += [r["mean"] / r["stderr"] for r in some(signs, act="relu", loss=loss, metric="g_pos")]
        rho = column(signs, "mean", act="relu", loss=loss, metric="rho_pos")
        facts[f"rho_pos over active entries, {loss}"] = [min(rho), max(rho)]
    flat = max(map(abs, column(signs, "mean", act="tanh", loss="ce", metric="rho_all")))
    return Measured(
        min(ratios),
        note="weakest g_pos over standard error; with |g| averaged over all entries rho_pos would be larger (by how "
        "much was not measured)",
        facts={**facts, "tanh |rho_all| at most": flat},
        ok=min(ratios) > 3 and flat <= 0.02,
    )


@claim("P10", Expected(1.0, tolerance=0.1), uses={"check": "first step"}, seeds=0)
def first_step(rows: Sequence[Row]) -> Measured:
    """The first step of the mean weight is −η c_l E[a x] (D6)"""
    chosen = [r for r in some(rows, check="first step", quantity="first step") if r["layer"] > 1]
    ratio = [r["mean"] / r["expected"] for r in chosen]
    worst = max(abs(r["gap"]) / r["gap_stderr"] for r in chosen)
    return Measured(
        sum(ratio) / len(ratio),
        "measured over predicted mean step of the hidden weights",
        facts={"largest gap in standard errors": worst, "initialisations": chosen[0]["inits"]},
        ok=worst < 4.5,
    )
