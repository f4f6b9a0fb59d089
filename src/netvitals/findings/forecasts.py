r"""Where are drift and sparsity heading? A line through the recent past, carried on until it meets what matters.

Drift turns round when $\langle o, \nabla_o\ell\rangle$ crosses zero (Euler's identity); sparsity meets the cliff near
70 %. Both are extrapolated from the last third of the readings, with the spread of the slope, and never further than
the run has already gone: a forecast that needs more than that is not made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from netvitals.findings.curves import Curve, Table
from netvitals.findings.drift import output_push
from netvitals.findings.rules import Context, hit, names, percent, rule, together
from netvitals.findings.sparsity import CLIFF
from netvitals.runs import Evidence, Finding

LEAST = 6  # readings that a trend rests on
RECENT = 1 / 3  # of the readings
SURE = 2.0  # standard errors that a slope must differ from zero by
SUNK = 0.05  # standard deviations that pre-activations must have sunk for drift to be worth a word


@dataclass(frozen=True)
class LineCrossing:
    """When a series is expected to meet a level; ``low`` and ``high`` from the spread of its slope."""

    step: float
    low: float
    high: float  # infinite if the slope could as well be too flat
    slope: float  # per step
    stderr: float

    def __str__(self) -> str:
        late = f"{self.high:.0f}" if math.isfinite(self.high) else "much later"
        return f"near step {self.step:.0f} (between {self.low:.0f} and {late})"


def crossing(series: Curve, level: float) -> LineCrossing | None:
    r"""$t^* = t_{now} + (\ell - \bar y)/b$ with the slope $b$ of the last third; None if it moves the other way, or not
    surely, or would take longer than the run has lasted.

    >>> rising = Curve("sparsity", "a", "hard", np.arange(12), 0.5 + 0.01 * np.arange(12))
    >>> print(crossing(rising, 0.7))
    near step 20 (between 20 and 20)
    """
    steps, values = series.steps[np.isfinite(series.values)].astype(float), series.finite
    if len(values) < LEAST:
        return None
    size = max(LEAST, math.ceil(RECENT * len(values)))
    t, y = steps[-size:], values[-size:]
    centre = t.mean()
    spread = float(((t - centre) ** 2).sum())
    if spread == 0:
        return None
    slope = float(((t - centre) * (y - y.mean())).sum() / spread)
    rest = y - y.mean() - slope * (t - centre)
    stderr = math.sqrt(float((rest**2).sum()) / max(1, size - 2) / spread)
    now = float(y.mean() + slope * (t[-1] - centre))
    gap = level - now
    if slope == 0 or gap * slope <= 0 or abs(slope) <= SURE * stderr:
        return None
    wait = gap / slope
    if wait > t[-1] - steps[0]:
        return None
    fast, slow = abs(slope) + SURE * stderr, abs(slope) - SURE * stderr
    return LineCrossing(
        step=float(t[-1] + wait),
        low=float(t[-1] + abs(gap) / fast),
        high=float(t[-1] + abs(gap) / slow) if slow > 0 else math.inf,
        slope=slope,
        stderr=stderr,
    )


def turned(series: Curve) -> int | None:
    """The step at which a series that began positive went below zero for good; None if it did not."""
    below = series.values < 0
    if len(series.values) < LEAST or not series.start > 0 or not below[-1]:
        return None
    last = int(np.flatnonzero(~below)[-1])
    return int(series.steps[last + 1])


@rule("drift forecast", "Where are drift and sparsity heading?", "drift", ("drift", "euler"), ("sparsity", "hard"))
def forecast(context: Context) -> Iterator[Finding]:
    """When drift turns round and when sparsity meets the cliff, where the recent trend carries that far."""
    table = context.table
    push = output_push(table)
    if push is not None:
        yield from _reversal(table, push)
    yield from _cliff(table, push)


def _reversal(table: Table, push: Curve) -> Iterator[Finding]:
    """Told only where something has sunk: a push that turns round with nothing moved is how learning goes."""
    sunk = [s for s in table.at("preactivations", "preact_drift") if s.start - s.end > SUNK and len(s.finite) >= LEAST]
    if not sunk:
        return
    where = names([s.site for s in sunk])
    worst = max(sunk, key=lambda s: s.start - s.end)
    evidence: tuple[Evidence, ...] = (push.evidence(change=True), worst.evidence(change=True))
    law = (
        "The sum of p ∂ℓ/∂p over the units of a layer is ⟨o, ∇ℓ⟩ at the output: while it is positive, descent "
        "pushes active inputs down, and once it is negative it pushes them up."
    )
    at = turned(push)
    soon = crossing(push, 0.0)
    if at is not None:
        what = (
            f"Drift turned round at step {at}: ⟨o, ∇ℓ⟩ has been negative since. Inputs "
            f"of {where} had sunk by {worst.start - worst.end:.2f} standard deviations in {worst.site}."
        )
        advice = "Nothing: what drifted so far stays, and the pressure is off."
    elif soon is not None:
        what = f"Drift in {where} is expected to turn round {soon}: ⟨o, ∇ℓ⟩ is {push.end:+.3g} and falls."
        advice = "Nothing: wait for it. If it should end now, lower the learning rate until then."
    else:
        return
    sites = tuple(s.site for s in sunk)
    yield Finding("info", worst.site, what, why=law, advice=advice, evidence=evidence, sites=sites)


def _cliff(table: Table, push: Curve | None) -> Iterator[Finding]:
    hits, when = [], {}
    for s in table.at("sparsity", "hard"):
        soon = crossing(s, CLIFF) if s.end < CLIFF else None
        if soon is not None:
            when[s.site] = soon
            hits.append(hit(s, "watch", -soon.step, change=True))
    outlook = (
        ""
        if push is None
        else (
            " ⟨o, ∇ℓ⟩ is still positive, so what drives it goes on."
            if push.end > 0
            else " But ⟨o, ∇ℓ⟩ has turned negative: it may stop before that."
        )
    )
    yield from together(
        hits,
        vital="sparsity",
        what=lambda where, worst: (
            f"Sparsity of {where} will reach the cliff at {percent(CLIFF)} if it goes on like "
            f"this: {worst.site}, now {percent(worst.evidence[0].value)}, {when[worst.site]}."
        ),
        why="Beyond about 70 % zeros accuracy falls steeply where a norm or a drift sets the sparsity, and more gently "
        "where the largest activations are kept (top-k)." + outlook,
        advice="Lower the learning rate, keep the rows of the weights centred (drift.suppression.centre_weights), put "
        "a norm before the activation, or widen the layer. If sparsity is wanted, top-k keeps more accuracy.",
    )


RULES = (forecast,)
