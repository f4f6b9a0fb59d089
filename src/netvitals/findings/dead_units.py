"""Do the units carry gradient, and will they go on doing so?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from netvitals.findings.gates import theta_of
from netvitals.findings.rules import Context, Hit, crossed, hit, in_worst, names, percent, rule, together
from netvitals.findings.series import Measurements, Series
from netvitals.findings.updates import set_rate
from netvitals.runs import Finding, Remedy, Severity

# A unit is dead when none of its gates was open on the measured batch, dying when hardly any was (choices of this
# project; weight-drift §2.4 defines dead units as zero on every sample). In healthy narrow ReLU networks of eight
# layers
# up to 38 % are dead from the very start, so that what counts is that
# their number grew.
DYING = 0.02  # a dying unit's gates are open on at most this share of the batch
DEAD_WATCH, DEAD_CRITICAL = 0.05, 0.75
GREW = 0.25  # of those that lived at the start, for a warning from DEAD_GROWING on
DEAD_GROWING = 0.30
DYING_WATCH = 0.10
AGAIN = 3  # measurements in a row that must show it: one batch may not wake a unit by chance

# gate-density §2.3, table "why it matters": when σ shrinks to a third, a ReLU's density falls from .500 to .440.
FALL_WATCH = 0.06
FALL_WARNING = 0.5  # … and half of what there was is more than that mechanism can take from a centred unit
SPARSE = 0.10  # with fewer gates open than this, nine tenths of a layer learn nothing from a sample
SATURATED = 0.35  # gates open at a sigmoid or tanh: a unit Gaussian input leaves more than 0.97
FAR, LEAK = 50.0, 1e-3  # so far out, a slope of this size still teaches
# their slope is zero everywhere: training goes around it
STEPS = frozenset(("gt", "ge", "lt", "le", "eq", "sign", "sgn", "round", "floor", "ceil", "heaviside"))
FLAT_BOTH_ENDS = ("sigmoid", "tanh", "softsign", "hardtanh", "erf")


def flat_at_both_ends(table: Measurements, site: str) -> bool:
    """Whether the activation at a site saturates on both sides, by its operation's name."""
    return any(word in table.op(site).lower() for word in FLAT_BOTH_ENDS) and "shrink" not in table.op(site).lower()


def leaks(context: Context, site: str) -> bool:
    """Whether the activation at a site has a slope on both sides however far out, as a leaky ReLU has: its units get a
    gradient on either side, and none of them is ever dead.
    """
    import torch

    from netvitals.activations import derivative

    f = context.activations.get(site)
    try:
        slopes = derivative(f)(torch.tensor([-FAR, FAR], dtype=torch.float64)) if f is not None else torch.zeros(2)
    except (ValueError, TypeError):  # a slope for each channel, or no function of one number
        return False
    return bool((slopes.abs() >= LEAK).all())


@rule(
    "dead units",
    "Is every unit active for some example?",
    "gates",
    ("gates", "density@"),
    ("sparsity", "dead_units"),
    null="up to a third of the units of a narrow ReLU network are dead from the start, and their number does not grow",
    threshold=f"{percent(DEAD_CRITICAL)} of a layer is dead; or {percent(DEAD_GROWING)}, including {percent(GREW)} of "
    f"the initially active units, on {AGAIN} measurements in a row",
    refuted_by="the same units are active on a larger batch",
    also=("sparsity",),
)
def dead_units(context: Context) -> Iterator[Finding]:
    """Units whose gates were shut on the whole batch, and units that are nearly so."""
    table, metric = context.table, theta_of(context.table)
    dead, dying, born = [], [], []
    known = any((v, m) == ("gates", metric) for v, _, m in table.arrays)
    if not known:
        for s in table.units("sparsity", "dead_units"):
            share = float(s.finite[-AGAIN:].min())
            if share >= DEAD_WATCH and not leaks(context, s.site):
                dead.append(_dated(hit(s, _gravity(s, share), share), s))
                born.append(_born(s, share))
    for s in table.units("gates", metric):
        if table.op(s.site).rstrip("_").lower() in STEPS:
            continue
        shares, course = table.array("gates", s.site, metric), table.get("sparsity", s.site, "dead_units")
        if shares is None or shares.size < 2 or flat_at_both_ends(table, s.site) or leaks(context, s.site):
            continue
        share, fading = float((shares <= 0).mean()), float(((shares > 0) & (shares <= DYING)).mean())
        if course is not None and len(course.finite) and course.end > 0:
            share = min(share, float(course.finite[-AGAIN:].min()))
        step = int(s.steps[-1])
        if share >= DEAD_WATCH:
            ground = s.evidence(metric="share of dead units", step=step, value=share)
            grave = _gravity(course, share)
            dead.append(_dated(Hit(s.site, grave, (ground,), share), course if course is not None else s))
            born.append(_born(course, share))
        if fading >= DYING_WATCH:
            ground = s.evidence(metric="share of rarely active units", step=step, value=fading)
            dying.append(Hit(s.site, "note", (ground,), fading))
    yield from together(
        dead,
        what=lambda where, worst: (
            f"Dead units in {where}: {percent(worst.size)} of the units{in_worst(where, worst)} pass no gradient on "
            f"the measured batch (healthy: below {percent(DEAD_GROWING)})."
        ),
        why="A unit that is off for every example gets no gradient, so it cannot recover by itself.",
        advice=(
            "No change is needed while the number of dead units stays constant. "
            if all(h.severity == "note" for h in dead)
            else "The units were dead at the first step: normalise the inputs, and initialise the weights with "
            "nn.init.kaiming_normal_. "
            if all(born)
            else f"{set_rate(table, 0.3)} and restart with warm-up. "
        )
        + "Activations such as nn.LeakyReLU, nn.GELU or nn.SiLU keep a gradient below zero.",
        remedy=Remedy("revive_units", None, tuple(h.site for h in dead)),
    )
    yield from together(
        dying,
        what=lambda where, worst: (
            f"Rarely active units in {where}: {percent(worst.size)} of the units{in_worst(where, worst)} are active on "
            f"at most {percent(DYING)} of the examples."
        ),
        why="Rarely active units learn from few examples, and they can die next.",
        advice="No change is needed while the number of rarely active units stays constant. "
        f"If more units become inactive, a lower learning rate helps. {set_rate(table, 0.3)}.",
    )


def _gravity(course: Series | None, share: float) -> Severity:
    begin = share if course is None or len(course.finite) < 4 else float(np.median(course.finite[:3]))
    grew = (share - begin) / (1 - begin) if begin < 1 else 0.0
    if share >= DEAD_CRITICAL:
        return "critical"
    return "warning" if share >= DEAD_GROWING and grew >= GREW else "note"


def _born(course: Series | None, share: float) -> bool:
    """Whether as many units were dead at the first measurement."""
    return course is not None and len(course.finite) > 0 and float(course.finite[0]) >= 0.8 * share


def _dated(found: Hit, course: Series) -> Hit:
    if course.metric != "dead_units":
        return found
    begin = float(np.median(course.finite[:3]))
    grown = GREW * (1 - begin)
    limit = max(DEAD_WATCH, min(begin + grown / 2, found.size - 1e-6)) if found.size - begin >= grown else DEAD_WATCH
    return crossed(found, course, limit - 1e-9)


@rule(
    "saturation",
    "Do hidden sigmoid and tanh units avoid saturation?",
    "gates",
    ("gates", "density@"),
    null="with inputs of variance 1, fewer than 3 % of tanh or sigmoid units are saturated",
    threshold=f"fewer than {percent(SATURATED)} of the gates of a hidden layer are open, now or at the start",
    source="Gaussian inputs; the number is a choice of this project",
    refuted_by="the layer is a gate that should stay open or closed",
)
def saturation(context: Context) -> Iterator[Finding]:
    """Hidden sigmoids and tanhs whose inputs lie where they are flat."""
    table, metric = context.table, theta_of(context.table)
    hits = []
    for s in table.units("gates", metric):
        if not flat_at_both_ends(table, s.site):
            continue
        level = min(s.end, float(np.median(s.finite[:3])))
        if level < SATURATED:
            severity: Severity = "critical" if s.end < 0.05 else "warning"
            found = Hit(s.site, severity, (s.evidence(change=len(s.finite) > 2),), 1 - level)
            hits.append(crossed(found, s, SATURATED, above=False))
    ops = sorted({table.op(h.site) for h in hits}) or [""]
    yield from together(
        hits,
        what=lambda where, worst: (
            f"Saturation in {where}: the slope of {names(ops)} is near zero for {percent(worst.size)} of the inputs"
            f"{in_worst(where, worst)} (healthy: below 3 %)."
        ),
        why="Saturated units give constant outputs and pass no gradient to earlier layers.",
        advice="Put nn.LayerNorm before this activation, or use smaller initial weights: "
        "nn.init.xavier_normal_(weight).",
        remedy=Remedy("rescale_inputs", None, tuple(h.site for h in hits)),
    )


@rule(
    "gate density falls",
    "Does the share of active units stay constant?",
    "gates",
    ("gates", "density@"),
    null="gate density changes by at most 0.06 when the variance of the inputs falls to a third",
    threshold=f"half of the gate density is lost, or fewer than {percent(SPARSE)} of the gates are open",
    source="gate-density §2.3",
    refuted_by="the mean of the inputs has not moved",
)
def density_falls(context: Context) -> Iterator[Finding]:
    """Layers whose gate density fell further than a shrinking variance explains, and layers with hardly a gate open."""
    shut, hits = [], []
    table = context.table
    for s in table.units("gates", theta_of(table)):
        if flat_at_both_ends(table, s.site):
            continue
        fall = s.start - s.end if len(s.finite) > 2 else 0.0
        if fall > FALL_WATCH:
            grave = s.end < max(SPARSE, FALL_WARNING * s.start)
            beyond = s.start - FALL_WATCH
            hits.append(hit(s, "warning" if grave else "note", fall, change=True, beyond=beyond, above=False))
        elif s.end < SPARSE:
            shut.append(hit(s, "warning", 1 - s.end, beyond=SPARSE, above=False))
    yield from together(
        hits,
        what=lambda where, worst: (
            f"The share of active units falls in {where}: from {worst.evidence[0].before:.2f} to "
            f"{worst.evidence[0].value:.2f}{in_worst(where, worst)}."
        ),
        why=f"If only the variance of the inputs shrinks, the share of active units falls by at most about "
        f"{FALL_WATCH:g}. If the share falls by more than this, the mean of the inputs has moved below zero.",
        advice="Put a norm layer directly before the activation. "
        f"A lower learning rate also helps. {set_rate(table, 0.3)}.",
    )
    yield from together(
        shut,
        what=lambda where, worst: (
            f"Few units are active in {where}: {percent(worst.evidence[0].value)} per example{in_worst(where, worst)} "
            f"(healthy: {percent(SPARSE)} or more)."
        ),
        why="When few units are active, each example trains only a small part of the layer.",
        advice=f"{set_rate(table, 0.3)} or add warm-up. A norm layer directly before the activation keeps more units "
        "active.",
        remedy=Remedy("revive_units", None, tuple(h.site for h in shut)),
    )


RULES = (dead_units, saturation, density_falls)
