"""Do the weights drift to one side, and will they go on?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from netvitals.findings.rules import Context, hit, in_worst, names, rule, together
from netvitals.findings.series import Measurements, Series
from netvitals.findings.statistics import line
from netvitals.findings.updates import set_rate
from netvitals.runs import Finding

# weight-drift E12: in a small GPT whose sparsity grew to 72–83 % the mean pre-activation went to −0.30 … −0.54 σ.
PREACT = -0.30
SUNK = 0.15  # … and moved this far to get there: an offset that was there at the start is no drift
# weight-drift E5: hidden drift_z is −.02 at moderate and −.05 … −.10 at high learning rates.
WEIGHTS = -0.05
LEAST = 3  # measurements behind any word about drift
SURE = 4.0  # standard errors
HOMOGENEOUS = ("relu", "relu_", "leaky_relu", "leakyrelu", "identity")  # where Euler's identity holds layer by layer


@rule(
    "negative drift",
    "Do weights and activation inputs keep their mean?",
    "preactivations",
    ("preactivations", "preact_drift"),
    ("drift", "drift_z"),
    least=3,
    null="the means of weights and activation inputs change by less than their standard error",
    threshold=f"activation inputs {SUNK:g} standard deviations below their first value and {-PREACT:g} below zero, or "
    f"weights {-WEIGHTS:g} standard deviations below their first value (|t| > {SURE:g})",
    source="weight-drift E5, E12",
    refuted_by="more measurements show no slope",
    also=("drift",),
)
def negative(context: Context) -> Iterator[Finding]:
    """Pre-activations that sank, or else weights that drifted below zero; with the push of the loss as the outlook."""
    table = context.table
    push, holds = output_push(table), law_holds(table)
    outlook = _outlook(push) if holds else _measured(table)
    inputs = [
        hit(s, "note", -s.end, change=True, beyond=PREACT, above=False)
        for s in table.units("preactivations", "preact_drift")
        if len(s.finite) >= LEAST and s.end < PREACT and s.start - s.end > SUNK and _sinks(s)
    ]
    drifts = [s for s in table.at("drift", "drift_z") if table.is_matrix(s.site) and not _gain(table, s.site)]
    weights = [
        hit(s, "note", -s.end, change=False, beyond=WEIGHTS, above=False)
        for s in drifts[:-1]  # the readout shuts no gate
        if s.end < WEIGHTS and _surely(table, s)
    ]
    push = push if holds else None
    ground = (push.evidence(change=True),) if push is not None else ()
    why = (
        "Early in training, gradient descent pushes the inputs of active units down. "
        f"Units turn off and activations become sparse. {outlook}"
    )
    advice = (
        "No change is needed while the validation score is good. Otherwise put a norm layer directly before the "
        f"activation. A lower learning rate also slows the drift. {set_rate(table, 0.3)}."
    )
    found = together(
        inputs,
        why=why,
        advice=advice,
        what=lambda where, worst: (
            f"Activation inputs drift negative in {where}: their mean{in_worst(where, worst)} is "
            f"{worst.evidence[0].value:+.2f} of their standard deviation."
            + (f" The weights of {names([h.site for h in weights])} drift negative too." if weights else "")
        ),
    )
    found = found or together(
        weights,
        vital="drift",
        why=why,
        advice=advice,
        what=lambda where, worst: (
            f"Weights drift negative in {where}: their mean{in_worst(where, worst)} has moved by {worst.size:.3f} "
            "standard deviations."
        ),
    )
    for f in found:
        yield replace(f, evidence=f.evidence + ground)


def law_holds(table: Measurements) -> bool:
    """Whether ⟨o, ∇ℓ⟩ at the output speaks for every layer: a chain of positively homogeneous activations, without
    norms, skips or attention on the way. In a pre-norm GPT its sign is right for half of the layers only.
    """
    sites = table.meta.get("sites", ())
    ops = {str(s.get("op", "")).lower() for s in sites if s.get("kind") == "activation"}
    others = {str(s.get("kind")) for s in sites} & {"norm", "stream", "heads", "attention", "product"}
    return not others and all(op in HOMOGENEOUS for op in ops)


def _measured(table: Measurements) -> str:
    """What the layers' own gradients say, where the law of the whole chain does not hold."""
    pushes = [s for s in table.units("drift", "g_all") if len(s.finite) >= LEAST]
    if not pushes:
        return "For this architecture it is not known whether the drift will continue."
    down = sum(line(s.steps, s.values).t == 0 or float(np.mean(s.finite[-5:])) > 0 for s in pushes)
    return f"At the moment gradient descent pushes the inputs of {down} of {len(pushes)} layers down."


def _sinks(curve: Series) -> bool:
    """Whether the series surely falls, or ended surely below where it began."""
    trend = line(curve.steps, curve.values) if len(curve.finite) == len(curve.values) else None
    return trend is None or len(curve.values) < 4 or trend.t < -SURE or trend.stderr == 0


def _surely(table: Measurements, curve: Series) -> bool:
    """Whether a tensor's mean has moved by more than its own error, and was measured often enough to say so."""
    t = table.get("drift", curve.site, "drift_t")
    return len(curve.finite) >= LEAST and (t is None or t.end < -SURE)


def _gain(table: Measurements, parameter: str) -> bool:
    """Whether a weight is the gain of a norm: it begins as a constant, so its drift has no spread to be measured by."""
    owner = parameter.rpartition(".")[0]
    mean, std = (table.get("drift", parameter, m) for m in ("weight_mean", "weight_std"))
    return owner in table.norms or (mean is not None and std is not None and std.start < 0.5 * abs(mean.start))


def output_push(table: Measurements) -> Series | None:
    """⟨o, ∇ℓ⟩ at the model's output."""
    known = {str(s.get("name")) for s in table.meta.get("sites", ()) if s.get("kind") == "output"} or {"output"}
    return next((s for s in table.at("drift", "euler") if s.site in known), None)


def _outlook(push: Series | None) -> str:
    if push is None:
        return "Whether the drift will continue was not measured."
    recent = push.finite[-max(3, len(push.finite) // 3) :]
    error = float(recent.std(ddof=1)) / len(recent) ** 0.5 if len(recent) > 2 else 0.0
    mean = float(recent.mean())
    if abs(mean) <= 2 * error:
        return (
            f"The product ⟨o, ∇ℓ⟩ of outputs and their gradients is {mean:+.3g} ± {error:.1g}. "
            "It is not clearly different from zero, so the drift may continue or stop."
        )
    if mean > 0:
        return (
            f"The product ⟨o, ∇ℓ⟩ of outputs and their gradients is {mean:+.3g} ± {error:.1g}. "
            "A positive product means that the drift will persist."
        )
    return (
        f"The product ⟨o, ∇ℓ⟩ of outputs and their gradients is {mean:+.3g} ± {error:.1g}. "
        "A negative product means that the drift should stop or reverse."
    )


RULES = (negative,)
