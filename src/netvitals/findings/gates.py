"""Do the units carry gradient, and will they go on doing so?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from netvitals.findings.curves import Curve, Table
from netvitals.findings.rules import Context, Hit, called, hit, percent, rule, together
from netvitals.runs import Evidence, Finding, Severity

if TYPE_CHECKING:
    from netvitals.gates.forecasting import GateForecast

# A unit is dead when none of its gates was open on the measured batch, dying when hardly any was (choices of this
# project; weight-drift §2.4 defines dead units as zero on every sample).
DYING = 0.02  # a dying unit's gates are open on at most this share of the batch
DEAD_WATCH, DEAD_WARNING, DEAD_CRITICAL = 0.05, 0.20, 0.75
DYING_WATCH = 0.10

# gate-density §2.3, table "why it matters": when σ shrinks to a third, a ReLU's density falls from .500 to .440.
FALL_WATCH = 0.06
FALL_WARNING = 0.5  # … and half of what there was is more than that mechanism can take from a centred unit
SPARSE = 0.10  # with fewer gates open than this, nine tenths of a layer learn nothing from a sample

# Forecast (gate-density §2.3, general form): speak only where the law explains the present.
LAW_ERROR = 0.05  # |predicted − measured| density of the site
SHRINKING = 0.90  # σ fell to at most this share of its start
CHANGE = 0.03  # a forecast change smaller than this is not worth a word


def theta_of(table: Table) -> str:
    """The density metric to judge by: the smallest threshold that was recorded."""
    return next(iter(densities(table)), "density@0.01")


def densities(table: Table) -> list[str]:
    """The density metrics that were recorded, the smallest threshold first."""
    found = {m for v, _, m in table.series if v == "gates" and m.startswith("density@") and ":" not in m}
    return sorted(found, key=lambda m: float(m.split("@")[1]))


@rule(
    "dead units", "Are there units whose gates never open?", "gates", ("gates", "density@"), ("sparsity", "dead_units")
)
def dead_units(context: Context) -> Iterator[Finding]:
    """Units whose gates were shut on the whole batch, and units that are nearly so."""
    table, metric = context.table, theta_of(context.table)
    dead, dying = [], []
    if not any((v, m) == ("gates", metric) for v, _, m in table.arrays):
        dead = [hit(s, _gravity(s.end), s.end) for s in table.units("sparsity", "dead_units") if s.end >= DEAD_WATCH]
    for s in table.units("gates", metric):
        shares = table.array("gates", s.site, metric)
        if shares is None or shares.size < 2:
            continue
        share, fading = float((shares <= 0).mean()), float(((shares > 0) & (shares <= DYING)).mean())
        step = int(s.steps[-1])
        if share >= DEAD_WATCH:
            ground = s.evidence(metric=f"share of units with {metric} = 0", step=step, value=share)
            dead.append(Hit(s.site, _gravity(share), (ground,), share))
        if fading >= DYING_WATCH:
            ground = s.evidence(metric=f"share of units with {metric} ≤ {DYING:g}", step=step, value=fading)
            dying.append(Hit(s.site, "watch", (ground,), fading))
    yield from together(
        dead,
        what=lambda where, worst: (
            f"Dead units in {where}: up to {percent(worst.size)} of them ({called(worst.site)}) "
            f"passed no gradient on the measured batch."
        ),
        why="A unit whose gate is shut for every sample gets no gradient, so it cannot come back by itself.",
        advice="Lower the learning rate, add warm-up, decay the weights less, or use an activation whose gate stays "
        "open below zero (leaky_relu, gelu, silu). If the batch is small, measure on a larger one before "
        "acting.",
    )
    yield from together(
        dying,
        what=lambda where, worst: (
            f"Dying units in {where}: up to {percent(worst.size)} of them ({called(worst.site)}) "
            f"are open on at most {percent(DYING)} of the samples."
        ),
        why="Units that are nearly always shut learn from a few samples only and are the next to die.",
        advice="Watch whether their number grows; weight decay on biases and norm shifts, or a smaller learning rate, "
        "keeps inputs near zero.",
    )


def _gravity(share: float) -> Severity:
    return "critical" if share >= DEAD_CRITICAL else "warning" if share >= DEAD_WARNING else "watch"


@rule("gate density falls", "Does gate density hold its level?", "gates", ("gates", "density@"))
def density_falls(context: Context) -> Iterator[Finding]:
    """Layers whose gate density fell further than a shrinking variance explains, and layers with hardly a gate open."""
    shut, hits = [], []
    for s in context.table.units("gates", theta_of(context.table)):
        fall = s.start - s.end if len(s.finite) > 2 else 0.0
        if fall > FALL_WATCH:
            grave = s.end < max(SPARSE, FALL_WARNING * s.start)
            hits.append(hit(s, "warning" if grave else "watch", fall, change=True))
        elif s.end < SPARSE:
            shut.append(hit(s, "warning", 1 - s.end))
    yield from together(
        hits,
        what=lambda where, worst: (
            f"Gate density is down in {where}: {worst.evidence[0].before:.2f} → "
            f"{worst.evidence[0].value:.2f} in {called(worst.site)}."
        ),
        why=f"A ReLU whose input variance shrinks to a third loses about {FALL_WATCH:g} of density; more than that "
        "means that the inputs' mean is moving below zero as well.",
        advice="Look at preact_drift and sigma of the same layers. If the mean sinks, the weights or the norm's shift "
        "drift negative: less learning rate, or decay on the shift. If only sigma shrinks, less weight decay on "
        "the norm's scale.",
    )
    yield from together(
        shut,
        what=lambda where, worst: (
            f"Hardly any gate is open in {where}: {percent(worst.evidence[0].value)} in {called(worst.site)}."
        ),
        why="So few open gates mean that a sample teaches these layers next to nothing.",
        advice="Lower the learning rate or add warm-up; a norm directly before the activation, or an activation whose "
        "gate stays open below zero (leaky_relu, gelu, silu), keeps gradient flowing.",
    )


@rule(
    "gate forecast",
    "Where does gate density go if the variance keeps shrinking?",
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
        severity: Severity = "warning" if seen.later < SPARSE else "watch" if seen.direction < 0 else "info"
        (down if seen.direction < 0 else up).append(Hit(sigma.site, severity, evidence, abs(seen.change)))
    law = (
        "The interval-union law D(θ) = Σ Φ((b−μ)/σ) − Φ((a−μ)/σ) over the intervals where |f′| > θ reproduces "
        f"today's density of these layers within {LAW_ERROR:g}; σ has shrunk and is halved for the forecast, which "
        "comes out the same way whether the mean stays or moves on as it did."
    )
    yield from together(
        down,
        what=lambda where, worst: (
            f"Gate density is predicted to fall further in {where} if the variance keeps "
            f"shrinking: {_noted(worst)} when its σ has halved once more."
        ),
        why=law,
        advice="Inputs sit on the shut side of the threshold (μ < z_low). Less weight decay on norm scales "
        "slows the shrinking; an activation with a lower threshold (gelu, silu) turns the fall into a "
        "rise.",
    )
    yield from together(
        up,
        what=lambda where, worst: (
            f"Gate density is predicted to rise in {where} as the variance shrinks: {_noted(worst)}."
        ),
        why=law,
        advice="Nothing to do: the inputs sit on the open side of the threshold.",
    )


def _noted(hit: Hit) -> str:
    density, margin, confidence = hit.evidence[:3]
    return (
        f"{density.before:.2f} → {density.value:.2f} in {called(hit.site)} (margin {margin.value:+.1f} σ, "
        f"confidence {percent(confidence.value)})"
    )


def _outlook(table: Table, sigma: Curve, metrics: Iterable[str], f: Any) -> tuple[GateForecast, int] | None:
    """The forecast for one site at the threshold where it changes most, and in how many steps σ is halved at the
    present pace; None where σ does not shrink, the activation is not known, or at no threshold the law explains the
    present and the outcome is the same with and without the mean's own movement."""
    from netvitals.gates.forecasting import forecast as predicted

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


RULES = (dead_units, density_falls, forecast)
