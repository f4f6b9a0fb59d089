r"""What is forecast of this run, as findings; and which way drift and sparsity move.

Forecasts that were stored with the run (:mod:`netvitals.forecasts`) are told while their target step is ahead:
divergence and the end of a plateau. Of drift and sparsity only the direction is told, without a date: drift turns
round when $\langle o, \nabla_o\ell\rangle$ crosses zero (Euler's identity); sparsity meets the level at which this
run began to lose, or, where it has shown none, the 70 % beyond which short runs lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from netvitals.findings.drift import output_push
from netvitals.findings.rules import Context, hit, names, percent, rule, together
from netvitals.findings.series import Measurements, Series
from netvitals.findings.sparsity import danger_level
from netvitals.findings.trends import LEAST, SURE, trend, turned
from netvitals.forecasts import Forecast
from netvitals.runs import Evidence, Finding

MEDIAN, BACK = 9, 1.5  # losses whose median is compared with the lowest before; how near it has to come again
LOST = 0.05  # share of the way back to guessing that is no danger
LOOKAHEAD = "A copy of model and optimizer was trained ahead at the learning rates that are planned."
CLIMBS = "A loss that climbs from its lowest while the learning rate does not fall rarely comes back."
SUNK = 0.05  # standard deviations that pre-activations must have sunk for drift to be worth a word
NEAR, HALF = 0.1, 0.5  # distance of sparsity from its level, and share of the push that is left, that are worth a word


def _open(context: Context, prefix: str) -> list[Forecast]:
    """The latest forecast of each event whose target step is ahead; a refused one takes back those before it, and a
    loss that is not finite all of them: nothing is left to happen to such a run."""
    steps, loss = context.table.steps, context.table.loss
    if loss is not None and not np.isfinite(loss.last):
        return []
    latest: dict[str, Forecast] = {}
    for record in context.table.meta.get("forecasts") or ():
        if str(record.get("quantity", "")).startswith(prefix):
            f = Forecast.from_dict(record)
            latest[f.quantity] = f
    return [f for f in latest.values() if f.known and steps and f.for_step >= steps[-1]]


def _ground(f: Forecast, series: Series | None) -> tuple[Evidence, ...]:
    return () if series is None else (series.evidence(change=True),)


def _odds(f: Forecast) -> str:
    low, high = f.interval80
    return f"step {f.value:.0f}, between {low:.0f} and {high:.0f} with odds of four to one"


@rule("divergence forecast", "Will this run diverge?", "loss", ("loss", "loss"), least=8)
def danger(context: Context) -> Iterator[Finding]:
    """A run that is about to diverge."""
    for f in _open(context, "loss/lost"):
        tried = f.method == "look-ahead"
        if not tried and _came_back(context.table, f.made_at):  # a look-ahead takes its calls back itself
            continue
        signs = "; ".join(f"{name}: {text}" for name, text in f.conditions.items())
        yield Finding(
            "critical",
            "",
            f"{'A copy diverged' if tried else 'The loss is running away'}: the run will diverge near {_odds(f)} "
            f"(called at step {f.made_at}).",
            why=f"{LOOKAHEAD if tried else CLIMBS} {signs}.",
            advice="Lower the learning rate now, by a factor of three or more, or go back to a checkpoint before the "
            "climb; clip the gradient norm if single batches set it off.",
            evidence=_ground(f, context.table.loss),
            since=f.made_at,
        )


def _came_back(table: Measurements, since: int) -> bool:
    """Whether the loss (the median of nine) is again where it was before danger was called, or never went back a
    twentieth of the way to guessing: the loss of a converged run is small, and moves by factors."""
    loss = table.loss
    if loss is None or (loss.steps <= since).sum() < MEDIAN:
        return False
    before = np.lib.stride_tricks.sliding_window_view(loss.values[loss.steps <= since], MEDIAN)
    low, now = float(np.median(before, axis=1).min()), float(np.median(loss.values[-MEDIAN:]))
    guessing = [float(np.median(s.finite)) for s in table.at("outputs", "chance")]
    begun = max(float(np.median(loss.values[:MEDIAN])), *guessing, 0.0)
    back = now < BACK * low and (loss.steps > since).sum() >= MEDIAN
    return back or now - low < LOST * (begun - low)


@rule("plateau forecast", "When does this plateau end?", "loss", ("loss", "loss"), least=8)
def plateau_end(context: Context) -> Iterator[Finding]:
    """The end of the plateau the loss is on."""
    for f in _open(context, "plateau/"):
        event = "leave this plateau" if f.quantity == "plateau/leaves" else "have fallen by half"
        why = f"Its slope grows as it does on the way out of a saddle (measured on a fixed batch, at step {f.made_at})."
        if f.conditions.get("law") == "look-ahead":
            why = f"A copy that was carried on out of the saddle left it then (looked ahead, at step {f.made_at})."
        yield Finding(
            "info",
            "",
            f"The loss will {event} near {_odds(f)}.",
            why=why,
            advice="Wait for it. If it is too long, a larger learning rate shortens it in proportion.",
            evidence=_ground(f, context.table.loss),
        )


@rule("drift direction", "Where are drift and sparsity heading?", "drift", ("drift", "euler"), ("sparsity", "hard"))
def direction(context: Context) -> Iterator[Finding]:
    """Whether drift has turned round or is about to, and which layers move towards the sparsity that costs."""
    push = output_push(context.table)
    if push is not None:
        yield from _reversal(context.table, push)
    yield from _cliff(context.table, push)


def _reversal(table: Measurements, push: Series) -> Iterator[Finding]:
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
    if at is not None:
        what = (
            f"Drift turned round at step {at}: ⟨o, ∇ℓ⟩ has been negative since. Inputs "
            f"of {where} had sunk by {worst.start - worst.end:.2f} standard deviations in {worst.site}."
        )
        advice = "Nothing: what drifted so far stays, and the pressure is off."
    elif 0 < push.end < HALF * push.start and trend(push) < 0:
        what = (
            f"Drift in {where} slows down: ⟨o, ∇ℓ⟩ fell from {push.start:+.3g} to {push.end:+.3g} and still falls; "
            "below zero drift turns round."
        )
        advice = "Nothing: wait for it. If it should end now, lower the learning rate until then."
    else:
        return
    sites = tuple(s.site for s in sunk)
    yield Finding("info", worst.site, what, why=law, advice=advice, evidence=evidence, sites=sites)


def _cliff(table: Measurements, push: Series | None) -> Iterator[Finding]:
    hits, levels = [], {}
    for s in table.at("sparsity", "hard"):
        level, _ = danger_level(table.loss, s)
        levels[s.site] = level
        if level - NEAR < s.end < level and trend(s) > 0:
            hits.append(hit(s, "note", s.end - level, change=True))
    outlook = {
        0: "",
        1: " ⟨o, ∇ℓ⟩ is still positive, so what drives it goes on.",
        -1: " But ⟨o, ∇ℓ⟩ has turned negative: it may stop before that.",
    }[0 if push is None else push_sign(push)]
    yield from together(
        hits,
        vital="sparsity",
        what=lambda where, worst: (
            f"Sparsity of {where} rises towards {percent(levels[worst.site])}, beyond which accuracy is lost: "
            f"{worst.site} is at {percent(worst.evidence[0].value)}."
        ),
        why="Where this run has not lost at another level, the one of short runs counts: beyond 70 % zeros they lose "
        "accuracy, much with quantile norms and less with top-k; MLPs that train on win most of it back." + outlook,
        advice="Lower the learning rate, hold the row means of the weights (drift.suppression.project_gradients), put "
        "a norm before the activation, or widen the layer. If sparsity is wanted, top-k keeps more accuracy.",
    )


def push_sign(push: Series) -> int:
    """+1 or −1 where the mean of the last third of the measurements differs from zero by two standard errors, else 0.

    >>> push_sign(Series("drift", "o", "euler", np.arange(9), np.array([1.0] * 6 + [0.001, -0.002, 0.003])))
    0
    """
    recent = push.finite[-max(3, len(push.finite) // 3) :]
    if not len(recent):
        return 0
    error = float(recent.std(ddof=1)) / math.sqrt(len(recent)) if len(recent) > 2 else 0.0
    mean = float(recent.mean())
    return 0 if abs(mean) <= SURE * error else 1 if mean > 0 else -1 if mean < 0 else 0


RULES = (danger, plateau_end, direction)
