"""Do the weights drift to one side, and will they go on?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from netvitals.findings.curves import Curve, Table
from netvitals.findings.rules import Context, called, hit, names, rule, together
from netvitals.runs import Finding

# weight-drift E12: in a small GPT whose sparsity grew to 72–83 % the mean pre-activation went to −0.30 … −0.54 σ.
PREACT = -0.30
SUNK = 0.15  # … and moved this far to get there: an offset that was there at the start is no drift
# weight-drift E5: hidden drift_z is −.02 at moderate and −.05 … −.10 at high learning rates.
WEIGHTS = -0.05


@rule(
    "negative drift",
    "Do weights or pre-activations drift negative?",
    "preactivations",
    ("preactivations", "preact_drift"),
    ("drift", "drift_z"),
    least=3,
)
def negative(context: Context) -> Iterator[Finding]:
    """Pre-activations that sank, or else weights that drifted below zero; with the push of the loss as the outlook."""
    table = context.table
    push = output_push(table)
    outlook = _outlook(push)
    inputs = [
        hit(s, "watch", -s.end, change=True)
        for s in table.at("preactivations", "preact_drift")
        if len(s.finite) > 2 and s.end < PREACT and s.start - s.end > SUNK
    ]
    drifts = [s for s in table.at("drift", "drift_z") if table.is_matrix(s.site) and not _gain(table, s.site)]
    weights = [
        hit(s, "watch", -s.end, change=False)
        for s in drifts[:-1]  # the readout shuts no gate
        if s.end < WEIGHTS
    ]
    ground = (push.evidence(change=True),) if push is not None else ()
    why = (
        "At the start of training the mean gradient at an active unit is positive for every convex loss, so descent "
        "pushes its inputs down; for ReLU-like units that shuts gates and makes activations sparse. " + outlook
    )
    advice = (
        "If sparsity is welcome, leave it, and stay below 70 %. Otherwise use a smaller learning rate, a norm "
        "directly before the activation (its shift then takes the drift and can be decayed), or a readout that "
        "starts smaller."
    )
    found = together(
        inputs,
        why=why,
        advice=advice,
        what=lambda where, worst: (
            f"Pre-activations drift negative in {where}: their mean is "
            f"{worst.evidence[0].value:+.2f} standard deviations in {called(worst.site)}"
            + (f", and the weights of {names([h.site for h in weights])} drift with them." if weights else ".")
        ),
    )
    found = found or together(
        weights,
        vital="drift",
        why=why,
        advice=advice,
        what=lambda where, worst: (
            f"Weights drift negative in {where}: by {worst.size:.3f} of their spread on average ({called(worst.site)})."
        ),
    )
    for f in found:
        yield replace(f, evidence=f.evidence + ground)


def _gain(table: Table, parameter: str) -> bool:
    """Whether a weight is the gain of a norm: it begins as a constant, so its drift has no spread to be measured by."""
    owner = parameter.rpartition(".")[0]
    kinds = {str(s.get("kind")) for s in table.meta.get("sites", ()) if owner in (s.get("name"), s.get("module"))}
    mean, std = (table.get("drift", parameter, m) for m in ("weight_mean", "weight_std"))
    return "norm" in kinds or (mean is not None and std is not None and std.start < 0.5 * abs(mean.start))


def output_push(table: Table) -> Curve | None:
    """⟨o, ∇ℓ⟩ at the model's output."""
    known = {str(s.get("name")) for s in table.meta.get("sites", ()) if s.get("kind") == "output"} or {"output"}
    return next((s for s in table.at("drift", "euler") if s.site in known), None)


def _outlook(push: Curve | None) -> str:
    if push is None:
        return "⟨o, ∇ℓ⟩ was not measured, so nothing can be said about whether it goes on."
    recent = push.finite[-max(3, len(push.finite) // 3) :]
    error = float(recent.std(ddof=1)) / len(recent) ** 0.5 if len(recent) > 2 else 0.0
    if abs(float(recent.mean())) <= 2 * error:
        return (
            f"⟨o, ∇ℓ⟩ = {float(recent.mean()):+.3g} ± {error:.1g} lately: not surely different from zero, so "
            "that it says nothing about whether the drift goes on."
        )
    if push.end > 0:
        return (
            f"⟨o, ∇ℓ⟩ = {push.end:+.3g} is still positive: the loss goes on pushing the outputs, and with them the "
            "active inputs, towards zero, so the drift will persist."
        )
    return (
        f"⟨o, ∇ℓ⟩ = {push.end:+.3g} has turned negative: the push has reversed, so the drift should stop or flip; "
        "what has drifted stays."
    )


RULES = (negative,)
