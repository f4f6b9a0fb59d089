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
from netvitals.findings.rules import Context, hit, in_worst, names, percent, rule, together
from netvitals.findings.series import Measurements, Series
from netvitals.findings.sparsity import danger_level
from netvitals.findings.trends import LEAST, SURE, trend, turned
from netvitals.findings.updates import set_rate
from netvitals.forecasts import Forecast
from netvitals.runs import Evidence, Finding

MEDIAN, BACK = 9, 1.5  # losses whose median is compared with the lowest before; how near it has to come again
LOST = 0.05  # share of the way back to guessing that is no danger
LOOKAHEAD = "A copy of model and optimizer, trained ahead with the planned learning rates, diverged."
CLIMBS = "The loss keeps rising from its lowest value, and the learning rate does not fall."
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
    return f"step {f.value:.0f}. The 80 % interval of this forecast is step {low:.0f} to step {high:.0f}"


@rule("divergence forecast", "Will the run stay stable?", "loss", ("loss", "loss"), least=8)
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
            f"The run is forecast to diverge near {_odds(f)}.",
            why=(LOOKAHEAD if tried else CLIMBS) + (f" Signs: {signs}." if signs else ""),
            advice=f"{set_rate(context.table, 0.3)} and go back to a checkpoint before step {f.made_at}. "
            "If single batches make the loss rise, also clip the gradient norm.",
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


@rule("plateau forecast", "When will the present plateau of the loss end?", "loss", ("loss", "loss"), least=8)
def plateau_end(context: Context) -> Iterator[Finding]:
    """The end of the plateau the loss is on."""
    for f in _open(context, "plateau/"):
        event = "leave its plateau" if f.quantity == "plateau/leaves" else "have fallen by half"
        why = f"At step {f.made_at} the loss was falling faster and faster, as is typical before the end of a plateau."
        if f.conditions.get("law") == "look-ahead":
            why = f"A copy of the model, trained ahead from step {f.made_at}, left the plateau at the forecast step."
        yield Finding(
            "info",
            "",
            f"The loss will {event} near {_odds(f)}.",
            why=why,
            advice="Wait until the forecast step. A higher learning rate shortens a plateau in proportion.",
            evidence=_ground(f, context.table.loss),
        )


@rule(
    "drift direction",
    "Will activation inputs keep drifting, and activations become sparser?",
    "drift",
    ("drift", "euler"),
    ("sparsity", "hard"),
)
def direction(context: Context) -> Iterator[Finding]:
    """Whether drift has turned round or is about to, and which layers move towards the sparsity that costs."""
    push = output_push(context.table)
    if push is not None:
        yield from _reversal(context.table, push)
    yield from _cliff(context, push)


def _reversal(table: Measurements, push: Series) -> Iterator[Finding]:
    """Told only where something has sunk: a push that turns round with nothing moved is how learning goes."""
    sunk = [s for s in table.at("preactivations", "preact_drift") if s.start - s.end > SUNK and len(s.finite) >= LEAST]
    if not sunk:
        return
    where = names([s.site for s in sunk])
    worst = max(sunk, key=lambda s: s.start - s.end)
    evidence: tuple[Evidence, ...] = (push.evidence(change=True), worst.evidence(change=True))
    law = (
        "The inner product of the network's output and the loss gradient at the output decides whether the activation "
        "inputs drift down or up. While this inner product is positive, gradient descent pushes the inputs of active "
        "units down."
    )
    at = turned(push)
    if at is not None:
        what = f"The activation inputs of {where} stopped drifting negative at step {at}."
        advice = "No change is needed."
    elif 0 < push.end < HALF * push.start and trend(push) < 0:
        what = (
            f"The negative drift of activation inputs in {where} slows down: the gradient behind it fell from "
            f"{push.start:.3g} to {push.end:.3g}."
        )
        advice = "No change is needed: the drift is going to stop."
    else:
        return
    sites = tuple(s.site for s in sunk)
    yield Finding("info", worst.site, what, why=law, advice=advice, evidence=evidence, sites=sites)


def _cliff(context: Context, push: Series | None) -> Iterator[Finding]:
    table = context.table
    hits, levels = [], {}
    for s in table.at("sparsity", "hard"):
        level, _ = danger_level(table.loss, s)
        levels[s.site] = level
        if level - NEAR < s.end < level and trend(s) > 0:
            hits.append(hit(s, "note", s.end - level, change=True))
    outlook = {
        0: "",
        1: " The gradient still pushes activation inputs down.",
        -1: " The gradient no longer pushes activation inputs down, so sparsity may stop rising.",
    }[0 if push is None else push_sign(push)]
    yield from together(
        hits,
        vital="sparsity",
        what=lambda where, worst: (
            f"Activations become sparser in {where}: {percent(worst.evidence[0].value)} of "
            f"them{in_worst(where, worst)} are zero, and accuracy falls beyond {percent(levels[worst.site])}."
        ),
        why="Runs lose accuracy when too few activations are different from zero." + outlook,
        advice="Put a norm layer directly before the activation, or widen the layer. "
        f"A lower learning rate also slows the growth of sparsity. {set_rate(context.table, 0.3)}.",
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
