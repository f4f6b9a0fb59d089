"""Claims 7–14, 23 and 26: does the drift appear, where, and how long, judged on training runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from netvitals import stats
from netvitals.lab.engine.judges import matches, some
from netvitals.lab.studies import (
    Claim,
    Expected,
    Plot,
    Row,
    Series,
    Verdict,
    decide,
    erratum,
    fails,
    holds,
    not_run,
)
from netvitals.lab.studies.weight_drift._networks import hidden_drift
from netvitals.lab.studies.weight_drift.controls import RATES

SIGNS, CONTROLS, ARCHITECTURES = "weight-drift-signs", "weight-drift-controls", "weight-drift-architectures"
NONE = 0.003  # |drift_z| of a control that must not drift (reference runs)
EARLY = 1.2e-4  # largest |cov| after the start in the reference run
ENOUGH = 50  # steps that a claim on architectures may rest on
START = 0.06  # |cov| over |prod| at step 0 in the reference run


def _hidden(rows: Sequence[Row], **where: Any) -> stats.Mean:
    """Mean hidden drift_z over seeds; with one seed there is no error."""
    values = list(hidden_drift(some(rows, **where)).values())
    return stats.mean(values) if len(values) > 1 else stats.Mean(values[0], float("nan"), 1)


def _say(drift: stats.Mean) -> str:
    return f"{drift.value:+.4f}" + (f" ± {drift.stderr:.4f}" if drift.stderr == drift.stderr else "")


def _covariance(rows: Sequence[Row]) -> Verdict:
    """E4: hidden layers of the cross-entropy run; the ratio only at step 0, where the product is not near zero."""
    chosen = [
        r for r in some(rows, quantity="split", loss="ce", gain=1.0, data="digits") if 1 < r["layer"] <= r["depth"]
    ]
    at_start = max(abs(r["cov"][0] / r["prod"][0]) for r in chosen)
    later = max(abs(v) for r in chosen for v in r["cov"][1:])
    product = max(abs(v) for r in chosen for v in r["prod"])
    changes = min(sum(a * b < 0 for a, b in pairwise(r["cov"])) for r in chosen)
    return decide(
        at_start <= START and later < 0.1 * product and changes > 0,
        at_start,
        note=f"largest |cov|/|prod| at step 0; afterwards |cov| ≤ {later:.1e} (reference {EARLY:g}) with at "
        f"least {changes} changes of sign, while |prod| reaches {product:.1e}",
    )


def _early_drift(rows: Sequence[Row]) -> Verdict:
    cases: dict[str, dict[str, Any]] = {
        "squared error, digits": {"loss": "onehot-mse"},
        "permuted labels": {"data": "permuted"},
        "cross-entropy, digits, weights × 1.5": {"gain": 1.5},
    }
    down = {name: _hidden(rows, **where) for name, where in cases.items()}
    easy = _hidden(rows, loss="ce", data="digits", gain=1.0)
    facts = "; ".join(f"{name} {_say(d)}" for name, d in {**down, "cross-entropy, digits": easy}.items())
    if any(d.value >= 0 for d in down.values()):
        return fails(facts, note="hidden drift_z after the run")
    if easy.value < 0:
        return holds(facts, note="hidden drift_z after the run")
    return erratum(
        facts,
        note="hidden drift_z: negative only while ⟨o, ∇ℓ⟩ > 0; cross-entropy on data that is learned "
        "at once turns it positive within the first epoch",
    )


def _intrinsic(rows: Sequence[Row]) -> Verdict:
    ce, mse = (_hidden(rows, check="random data", act="relu", loss=loss) for loss in ("ce", "onehot-mse"))
    low = list(hidden_drift(some(rows, check="random data", act="relu", loss="ce")).values())
    others = "; ".join(f"{d} {_say(_hidden(rows, check='source', data=d))}" for d in ("fixed", "permuted", "digits"))
    return decide(
        max(low) < 0 and ce.z(0) < -4.5 and mse.value < 0,
        ce.value,
        ce.stderr,
        note="hidden drift_z on fresh random data, sign test over seeds p = "
        f"{stats.sign_test(low).p_below:.2g}; squared error {_say(mse)}. Data can reverse it: {others}",
        seeds=len(low),
    )


def _activations(rows: Sequence[Row]) -> Verdict:
    drifts = {a: _hidden(rows, check="random data", act=a, loss="ce") for a in ("relu", "gelu", "silu")}
    weakest = max(drifts.values(), key=lambda d: d.value)
    return decide(
        weakest.z(0) < -3,
        weakest.value,
        weakest.stderr,
        note="hidden drift_z on random data: " + ", ".join(f"{a} {_say(d)}" for a, d in drifts.items()),
    )


def _architectures(rows: Sequence[Row]) -> Verdict:
    """E7: pre-activations sink in training. An exception on real data that sinks on random data is reversed by
    learning, as in claim 8. BatchNorm holds the pre-activations (claim 26), so its network is told and not counted."""
    if rows[0]["steps"] < ENOUGH:
        return not_run(f"{rows[0]['steps']} steps are too few for this claim; run it at a larger scale")
    facts, exceptions, refuted = [], [], []
    networks = list(dict.fromkeys(r["network"] for r in rows))
    for network in networks:
        sinks, words = {}, []
        for way in ("real", "random"):
            mine = [r for r in rows if r["network"] == network and (r["data"] == "random") == (way == "random")]
            sites = [r for r in mine if r["quantity"] == "site"]
            if not sites:
                continue
            sinks[way], negative = (
                sum(r[k] - r[f"{k}_0"] for r in sites) / len(sites) for k in ("preact_drift", "neg_preact")
            )
            weights = [r["drift_z"] for r in mine if r["quantity"] == "weights" and r.get("place") == "hidden"]
            words.append(
                f"{way} data preact_drift {sinks[way]:+.3f}, negative share {negative:+.3f}, hidden drift_z "
                f"{sum(weights) / len(weights):+.4f}"
            )
        facts.append(f"{network}: {', '.join(words)}")
        if network != "resnet-bn" and sinks["real"] >= 0:
            exceptions.append(network)
            refuted += [network] if sinks.get("random", 0.0) >= 0 else []
    counted = len(networks) - ("resnet-bn" in networks)
    measured = f"{counted - len(exceptions)} of {counted} sink on real data"
    note = "change over training, mean over sites, activations and seeds. " + "; ".join(facts)
    if refuted or not exceptions:
        return decide(not refuted, measured, note=note)
    return erratum(
        measured, note=f"{', '.join(exceptions)} sinks only where learning does not reverse it (random data); " + note
    )


def _optimisers(rows: Sequence[Row]) -> Verdict:
    facts, ordered = [], True
    for name, rates in RATES.items():
        found = [
            (lr, _hidden(rows, check="sweep", optimizer=name, lr=lr).value)
            for lr in rates
            if any(r["check"] == "sweep" and r["optimizer"] == name and r["lr"] == lr for r in rows)
        ]
        ordered &= all(b < a < 0 for (_, a), (_, b) in pairwise(found))
        facts.append(f"{name} " + "/".join(f"{z:+.3f}" for _, z in found))
    return decide(
        ordered,
        "monotone" if ordered else "not monotone",
        note="hidden drift_z by rising learning rate: " + "; ".join(facts),
    )


def _symmetric(rows: Sequence[Row]) -> Verdict:
    """tanh and identity everywhere, and the first layer (zero-mean input) of the ReLU network."""
    drifts = {a: _hidden(rows, check="random data", act=a, loss="ce") for a in ("tanh", "identity")}
    first = stats.mean([r["drift_z"] for r in some(rows, check="random data", act="relu", loss="ce", place="first")])
    worst = max(abs(d.value) for d in (*drifts.values(), first))
    return decide(
        worst <= NONE,
        worst,
        note="largest |drift_z|: "
        + ", ".join(f"{a} {_say(d)}" for a, d in {**drifts, "first layer of the ReLU network": first}.items()),
    )


def _sign_rule(rows: Sequence[Row]) -> Verdict:
    up, neg = (_hidden(rows, check="random data", act=a, loss="ce") for a in ("alternating", "neg_relu"))
    return decide(
        up.z(0) > 3 and neg.z(0) < -3,
        up.value,
        up.stderr,
        note=f"hidden drift_z of ReLU and −ReLU(−x) in turn; −ReLU(−x) everywhere {_say(neg)}",
    )


def _batch_norm(rows: Sequence[Row]) -> Verdict:
    weights = _hidden(rows, check="batch norm")
    bare = _hidden(rows, check="random data", act="relu", loss="ce")
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
        note=f"hidden drift_z with BatchNorm, without it {_say(bare)}; the last shift β moved by {_say(shift)}",
    )


def _persistence(rows: Sequence[Row]) -> Verdict:
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


def _first_step(rows: Sequence[Row]) -> Verdict:
    chosen = [r for r in some(rows, check="first step", quantity="first step") if r["layer"] > 1]
    ratio = [r["mean"] / r["expected"] for r in chosen]
    worst = max(abs(r["gap"]) / r["gap_stderr"] for r in chosen)
    return decide(
        worst < 4.5,
        sum(ratio) / len(ratio),
        note="measured over predicted mean step of the hidden weights; "
        f"largest gap {worst:.1f} standard errors over {chosen[0]['inits']} initialisations",
    )


def _gradient_sign(rows: Sequence[Row]) -> Verdict:
    facts = {}
    weakest = float("inf")
    for loss in ("ce", "onehot-mse"):
        chosen = some(rows, check="init", quantity="signs", act="relu", loss=loss)
        weakest = min(weakest, *(r["mean"] / r["stderr"] for r in chosen if r["metric"] == "g_pos"))
        rho = [r["mean"] for r in chosen if r["metric"] == "rho_pos"]
        facts[loss] = f"{min(rho):+.3f} … {max(rho):+.3f}"
    flat = max(
        abs(r["mean"]) for r in some(rows, check="init", quantity="signs", act="tanh", loss="ce", metric="rho_all")
    )
    return decide(
        weakest > 3 and flat <= 0.02,
        weakest,
        note=f"weakest g_pos over standard error; rho_pos over active "
        f"entries {facts['ce']} (cross-entropy), {facts['onehot-mse']} (squared error); with |g| averaged over "
        f"all entries it would be larger (by how much was not measured); tanh |rho_all| ≤ {flat:.3f}",
    )


def _flip_plot(rows: Sequence[Row]) -> Plot:
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


def _sweep_plot(rows: Sequence[Row]) -> Plot:
    return Plot(
        "learning rate",
        "hidden |drift_z|",
        [
            Series(
                name,
                [lr for lr in rates if any(r["lr"] == lr and r["optimizer"] == name for r in rows)],
                [
                    abs(_hidden(rows, optimizer=name, lr=lr).value)
                    for lr in rates
                    if any(r["lr"] == lr and r["optimizer"] == name for r in rows)
                ],
                line=True,
            )
            for name, rates in RATES.items()
        ],
        log_x=True,
        log_y=True,
    )


def _claims() -> Iterator[Claim]:
    persistence = matches(check="persistence")
    random = matches(check="random data")
    yield Claim(
        "weight-drift/C7",
        SIGNS,
        "The covariance of gradient and input hardly counts in early training",
        Expected(direction=f"|cov| ≤ {START:g} |prod| at step 0, then small with changing sign"),
        _covariance,
        "Remark A.2, Fig. 4",
        persistence,
    )
    yield Claim(
        "weight-drift/C8",
        SIGNS,
        "Weights after positive activations drift negative in early training",
        Expected(direction="negative"),
        _early_drift,
        "abstract",
        persistence,
    )
    yield Claim(
        "weight-drift/C9",
        CONTROLS,
        "Drift needs no structure in the data: it is there on random data",
        Expected(direction="negative"),
        _intrinsic,
        "announcement",
        lambda c: c["check"] == "source" or (c["check"] == "random data" and c["act"] == "relu"),
    )
    yield Claim(
        "weight-drift/C10",
        CONTROLS,
        "Drift appears with ReLU, GELU and SiLU",
        Expected(direction="negative"),
        _activations,
        "abstract",
        matches(check="random data", act=("relu", "gelu", "silu")),
    )
    yield Claim(
        "weight-drift/C11",
        ARCHITECTURES,
        "Drift appears in MLP, ResNet, ViT, GPT and a speech denoiser",
        Expected(direction="pre-activations sink"),
        _architectures,
        "abstract",
    )
    yield Claim(
        "weight-drift/C12",
        CONTROLS,
        "Drift depends on the optimiser and grows with the learning rate",
        Expected(direction="monotone"),
        _optimisers,
        "paragraph on optimisers",
        matches(check="sweep"),
        _sweep_plot,
    )
    yield Claim(
        "weight-drift/C13",
        CONTROLS,
        "Symmetric activations do not drift, nor does a layer with centred input",
        Expected(0.0, tolerance=NONE),
        _symmetric,
        "beyond the paper",
        random,
    )
    yield Claim(
        "weight-drift/C14",
        CONTROLS,
        "Sign rule: alternating ReLU and −ReLU(−x) drift positive",
        Expected(direction="positive"),
        _sign_rule,
        "beyond the paper",
        random,
    )
    yield Claim(
        "weight-drift/C23",
        SIGNS,
        "The sign of the gradient persists over the first ten epochs",
        Expected(direction="g_pos > 0"),
        _persistence,
        "rebuttal",
        persistence,
        _flip_plot,
    )
    yield Claim(
        "weight-drift/C26",
        CONTROLS,
        "BatchNorm removes the drift of the weights; its shift takes it",
        Expected(direction="weights near 0, last β negative"),
        _batch_norm,
        "beyond the paper",
        lambda c: c["check"] == "batch norm" or (c["check"] == "random data" and c["act"] == "relu"),
    )
    yield Claim(
        "weight-drift/E2",
        SIGNS,
        "At initialisation the gradient on positive pre-activations is positive in "
        "every hidden layer; tanh has none on average",
        Expected(direction="positive"),
        _gradient_sign,
        "Theorem 1.2",
        matches(check="init"),
    )
    yield Claim(
        "weight-drift/P10",
        SIGNS,
        "The first step of the mean weight is −η c_l E[a x] (D6)",
        Expected(1.0, tolerance=0.1),
        _first_step,
        "beyond the paper",
        matches(check="first step"),
    )


CLAIMS = tuple(_claims())
