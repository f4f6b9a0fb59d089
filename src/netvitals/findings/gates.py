"""Where does gate density go?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from netvitals.findings.rules import Context, Hit, in_worst, rule, together
from netvitals.findings.series import Measurements, Series
from netvitals.findings.step_size import EXEMPT, weight_decay
from netvitals.runs import Evidence, Finding, Severity

if TYPE_CHECKING:
    from netvitals.gates import GateForecast

SPARSE = 0.10  # with fewer gates open than this, nine tenths of a layer learn nothing from a sample

# Forecast (gate-density §2.3, general form): speak only where the law explains the present.
LAW_ERROR = 0.05  # |predicted − measured| density of the site
SHRINKING = 0.90  # σ fell to at most this share of its start
CHANGE = 0.03  # a forecast change smaller than this is not worth a word


def theta_of(table: Measurements) -> str:
    """The density metric to judge by: the smallest threshold that was recorded."""
    return next(iter(densities(table)), "density@0.01")


def densities(table: Measurements) -> list[str]:
    """The density metrics that were recorded, the smallest threshold first."""
    found = {m for v, _, m in table.series if v == "gates" and m.startswith("density@") and ":" not in m}
    return sorted(found, key=lambda m: float(m.split("@")[1]))


@rule(
    "gate forecast",
    "Will the share of active units change if the input variance keeps shrinking?",
    "gates",
    ("preactivations", "sigma"),
    least=5,
)
def forecast(context: Context) -> Iterator[Finding]:
    """Where gate density goes when σ halves once more, by the interval-union law where it explains the present."""
    table, metrics = context.table, densities(context.table)
    down: list[Hit] = []
    up: list[Hit] = []
    for sigma in table.at("preactivations", "sigma"):
        outlook = _outlook(table, sigma, metrics, context.activations.get(sigma.site))
        if outlook is None:
            continue
        seen, steps = outlook
        step = int(sigma.steps[-1])
        predicted = f"density@{seen.theta:g} predicted at σ/2, in about {steps:,} steps"
        ground = partial(Evidence, vital="gates", site=sigma.site, step=step)
        evidence = (
            ground(metric=predicted, value=seen.later, before=seen.now),
            ground(metric="median margin (μ − z_low)/σ", value=seen.margin),
            ground(metric="confidence: agreement of channels", value=seen.confidence),
            sigma.evidence(change=True),
        )
        severity: Severity = "warning" if seen.later < SPARSE else "note" if seen.direction < 0 else "info"
        (down if seen.direction < 0 else up).append(Hit(sigma.site, severity, evidence, abs(seen.change)))
    law = (
        "The forecast assumes normally distributed inputs whose standard deviation halves once more. "
        "For the inputs measured now, this assumption gives a share of active units within "
        f"{LAW_ERROR:g} of the measured share."
    )
    yield from together(
        down,
        what=lambda where, worst: (
            f"Fewer units will be active in {where} if the input variance keeps falling: the share "
            f"falls {_noted(where, worst)}."
        ),
        why=law,
        advice=(f"{EXEMPT} " if weight_decay(table) > 0 else "")
        + "An activation that stays active below zero (nn.GELU, nn.SiLU) keeps more units active.",
    )
    yield from together(
        up,
        what=lambda where, worst: (
            f"More units will be active in {where} if the input variance keeps falling: the share "
            f"rises {_noted(where, worst)}."
        ),
        why=law,
        advice="No change is needed.",
    )


def _noted(where: str, worst: Hit) -> str:
    density = worst.evidence[0]
    return f"from {density.before:.2f} to {density.value:.2f}{in_worst(where, worst)}"


def _outlook(table: Measurements, sigma: Series, metrics: Iterable[str], f: Any) -> tuple[GateForecast, int] | None:
    """The forecast for one site at the threshold where it changes most, and in how many steps σ is halved at the
    present pace; None where σ does not shrink, the activation is not known, or at no threshold the law explains the
    present and the outcome is the same with and without the mean's own movement."""
    from netvitals.gates import forecast as predicted

    mu_c, sigma_c = (table.array("preactivations", sigma.site, m) for m in ("mu", "sigma"))
    if f is None or mu_c is None or sigma_c is None or len(sigma.finite) < 5:
        return None
    if not 0 < sigma.end <= SHRINKING * sigma.start:
        return None
    span = max(float(sigma.steps[-1] - sigma.steps[0]), 1.0)
    steps = math.log(2) * span / math.log(sigma.start / sigma.end)
    mean = table.get("preactivations", sigma.site, "mean")
    moved = (mean.end - mean.start) * steps / span if mean is not None and len(mean.finite) else 0.0
    best: GateForecast | None = None
    for metric in metrics:
        measured = table.get("gates", sigma.site, metric)
        if measured is None:
            continue
        theta = float(metric.split("@")[1])
        seen, drifting = (predicted(mu_c, sigma_c, f, theta, shift=shift) for shift in (0.0, moved))
        sure = (
            abs(seen.now - measured.last) <= LAW_ERROR
            and abs(seen.change) >= CHANGE
            and seen.direction == drifting.direction
        )
        if sure and (best is None or abs(seen.change) > abs(best.change)):
            best = replace(seen, confidence=min(seen.confidence, drifting.confidence))
    return None if best is None else (best, round(steps))


RULES = (forecast,)
