"""Is the loss a number, is it falling, and if not, is it a plateau or an end?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from netvitals.findings.rules import Context, called, percent, rule
from netvitals.findings.series import Measurements, Series
from netvitals.findings.statistics import line, noise, smoothed
from netvitals.findings.updates import cost_of_guessing, set_rate, typical_ratio
from netvitals.runs import Evidence, Finding, Remedy

READINGS = 20  # fewer measurements of the loss than this say nothing about a plateau
FLAT_SHARE = 0.3  # the part of the run that must be flat
FLAT_FALL = 0.01  # flat: the loss fell by less than this share of itself over that part
HIGH = 0.5  # a loss that ends above this share of the first never left
GUESSING = 0.93  # of the cost of guessing: what is below was learned
LEARNED = 0.05  # share of the first loss that a plateau may have fallen before, where the cost of guessing is not known
BREAKS = (("inputs", "max_abs"), ("preactivations", "mean"), ("spikes", "max_abs"), ("gradients", "grad_norm"))
TRAVELLED = 0.3  # length of all steps over the weights: who went that far and still guesses has nothing to learn from


@rule(
    "loss not finite",
    "Is the loss finite on every step?",
    "loss",
    ("loss", "loss"),
    null="a loss is finite",
    threshold="one loss that is NaN or infinite",
    source="arithmetic",
    refuted_by="the loss is finite when the step is repeated",
)
def not_finite(context: Context) -> Iterator[Finding]:
    """A loss that is NaN or infinite, and the first number of the model that broke."""
    loss = context.table.loss
    if loss is None or len(loss.finite) == len(loss.values):
        return
    first = int(loss.steps[~np.isfinite(loss.values)][0])
    origin = _origin(context.table, first)
    yield Finding(
        "critical",
        origin.site if origin else "",
        f"The loss is NaN or infinite from step {first} on."
        + (
            f" The first number to become NaN or infinite was {origin.metric} of {called(origin.site)}, at step "
            f"{origin.step}."
            if origin
            else ""
        ),
        why="A NaN loss makes every gradient NaN, and the next step makes every weight NaN.",
        advice=f"{set_rate(context.table, 0.1)} and restart from the last good checkpoint. If the loss becomes NaN "
        "again, look for a logarithm, square root or division that receives zero.",
        evidence=(loss.evidence(step=first, value=float("nan")), *([origin] if origin else [])),
        since=first,
        until=int(loss.steps[-1]),
        remedy=Remedy("restart_rate", 0.1),
    )


@rule(
    "plateau",
    "Is the loss stuck on a plateau?",
    "loss",
    ("loss", "loss"),
    least=READINGS,
    null="the loss falls, or it is flat below the loss of guessing",
    threshold=f"flat within its noise over the last {percent(FLAT_SHARE)} of the run, at the loss of guessing or (if "
    f"that is unknown) within {percent(LEARNED)} of the first loss",
    source="the loss of guessing is the entropy of the measured labels",
    refuted_by="the loss falls later, or label noise explains the level",
    also=("outputs",),
)
def plateau(context: Context) -> Iterator[Finding]:
    """A loss that is flat where guessing is, or that stood still for long before it fell."""
    table, loss = context.table, context.table.loss
    if loss is None or len(loss.finite) < READINGS or len(loss.finite) < len(loss.values):
        return
    size = max(READINGS // 2, int(FLAT_SHARE * len(loss.values)))
    tail = loss.values[-size:]
    trend = line(loss.steps[-size:], tail)
    ground = (loss.evidence(change=True),)
    level, cost = float(np.median(tail)), cost_of_guessing(table)
    span = float(np.ptp(loss.steps[-size:]))
    flat = abs(trend.change) <= max(FLAT_FALL * abs(level), 2 * trend.stderr * span)
    begin = float(np.median(loss.values[: max(3, len(loss.values) // 20)]))
    # what guessing costs is what there is to learn from; without it only a loss that never moved is a plateau
    stuck = level > GUESSING * cost and level < 1.5 * cost if cost is not None else _never_fell(loss, begin, level)
    if flat and stuck and level > HIGH * begin > 0 and (cost is None or _stays(loss)):
        since = _flat_since(loss, level)
        yield Finding(
            "warning" if cost is not None else "note",
            "",
            f"The loss has been flat at {level:.4g} since step {since}. "
            + (
                f"Guessing without looking at the input gives a loss of {cost:.3g}."
                if cost is not None
                else f"The first loss was {begin:.4g}."
            ),
            why="A loss that stays at the level of guessing means that the outputs do not yet depend on the inputs. "
            "Near a saddle point, a plateau can also end by itself.",
            advice="Plot the gradient norm. If the gradient norm grows slowly, wait, or initialise the layers with "
            "larger weights. "
            "If the gradient norm does not grow, check for dead units, a low learning rate, and wrong labels.",
            evidence=ground,
            since=since,
            until=int(loss.steps[-1]),
            remedy=Remedy("reinitialise", 1.0),
        )
        return
    stay = _first_descent(loss)
    if stay is not None:
        yield Finding(
            "info",
            "",
            f"The loss was flat until about step {stay} and fell afterwards.",
            why="A flat loss followed by a quick drop is typical of leaving a saddle point.",
            advice="To shorten the plateau, use larger initial weights in the layers whose weights are smallest.",
            evidence=ground,
            since=int(loss.steps[0]),
            until=stay,
        )


def _stays(loss: Series) -> bool:
    """Whether enough was seen and the loss does not surely fall: over all measurements, or over the last half of
    them."""
    if len(loss.values) < 2 * READINGS:
        return False
    good = np.isfinite(loss.values)
    steps, values = loss.steps[good], loss.values[good]
    for part in (slice(None), slice(len(values) // 2, None)):
        trend = line(steps[part], values[part])
        if trend.t < -4 and -trend.change > 0.01 * float(np.median(values)):
            return False
    return True


def _never_fell(loss: Series, begin: float, level: float) -> bool:
    """Without a trend over the whole run, and no lower than it began."""
    whole = line(loss.steps, loss.values)
    return begin > 0 and abs(level - begin) < LEARNED * begin and whole.t > -2 and noise(loss.values) < 0.2 * begin


def _flat_since(loss: Series, level: float) -> int:
    """The first step from which the smoothed loss stays near the level of the end."""
    near = np.abs(smoothed(loss.values) - level) <= max(0.02 * abs(level), 3 * noise(loss.values))
    last = np.flatnonzero(~near)
    return int(loss.steps[last[-1] + 1]) if len(last) and last[-1] + 1 < len(near) else int(loss.steps[0])


@rule(
    "at chance",
    "Does the network do better than guessing?",
    "outputs",
    ("outputs", "chance"),
    least=5,
    optional=True,
    null="after as many steps the loss is below the loss of guessing",
    threshold=f"in the last third of the run the loss is above {percent(GUESSING)} of the loss of guessing and the "
    f"accuracy is that of guessing, although the lengths of all updates add up to {percent(TRAVELLED)} of the "
    "norm of the weights or more",
    source="the loss of guessing is the entropy of the measured labels; Fano's inequality bounds the accuracy",
    refuted_by="a larger network learns the same labels",
    also=("loss", "gradients"),
)
def at_chance(context: Context) -> Iterator[Finding]:
    """A network that moves and learns nothing: labels that do not go with the inputs, or a signal that does not
    pass.
    """
    table, loss, cost, ratio = (
        context.table,
        context.table.loss,
        cost_of_guessing(context.table),
        typical_ratio(context.table),
    )
    if loss is None or cost is None or ratio is None or len(loss.finite) < 2 * READINGS:
        return
    tail = loss.finite[-len(loss.finite) // 3 :]
    level = float(np.median(tail))
    path = float(np.trapezoid(np.nan_to_num(ratio.values), ratio.steps))
    if level < GUESSING * cost or level > 3 * cost or path < TRAVELLED or not _stays(loss):
        return
    accuracy = next(iter(table.at("outputs", "accuracy")), None)
    if accuracy is not None and float(np.median(accuracy.finite[-len(accuracy.finite) // 3 :])) > _right(table, cost):
        return
    yield Finding(
        "warning",
        "",
        f"The network has learned nothing: its loss is {level:.3g}, and guessing without looking at the input gives "
        f"{cost:.3g}." + (f" The accuracy is {percent(accuracy.end)}." if accuracy is not None else ""),
        why=f"The lengths of all updates add up to {percent(path)} of the norm of the weights, so the learning rate is "
        "not the problem. Either the labels do not belong to the inputs, or the inputs do not reach the output.",
        advice="Print some inputs with their labels and check that they belong together. Then train on one batch: "
        "if the loss does not reach zero, the bug is in the model or the loop.",
        evidence=(loss.evidence(change=True), ratio.evidence()),
        since=int(loss.steps[0]),
        until=int(loss.steps[-1]),
        remedy=Remedy("repair_data"),
    )


def _right(table: Measurements, cost: float) -> float:
    r"""How often the best guess can be right, with a twentieth to spare: the largest $p$ with
    $h(p) + (1 - p)\ln(k - 1) \ge H$ for labels of entropy $H$ in $k$ classes (Fano)."""
    classes = next(iter(table.at("outputs", "classes")), None)
    if classes is None or classes.end < 3:
        return 1.0
    p = np.linspace(1 / classes.end, 1 - 1e-9, 2000)
    most = -p * np.log(p) - (1 - p) * np.log1p(-p) + (1 - p) * np.log(classes.end - 1)
    return float(p[np.flatnonzero(most >= cost)[-1]] if (most >= cost).any() else p[0]) + 0.05


def _origin(table: Measurements, until: int) -> Evidence | None:
    """The earliest reading that was not finite, up to that step; the first in depth where several
    broke on one step."""
    earliest: Evidence | None = None
    for vital, metric in BREAKS:  # what the forward pass shows first, then what the backward pass does
        for s in table.at(vital, metric, finite=False):
            broken = np.flatnonzero(~np.isfinite(s.values))
            if len(broken) and s.steps[broken[0]] <= (until if earliest is None else earliest.step - 1):
                earliest = s.evidence(value=float(s.values[broken[0]]), step=int(s.steps[broken[0]]))
    return earliest


def _first_descent(loss: Series) -> int | None:
    """Last step of an early plateau: a fifth of the run or more above 95 % of the first loss, then below half of it."""
    smooth = smoothed(loss.values)
    below = np.flatnonzero(smooth < 0.95 * smooth[0])
    if not len(below) or loss.start <= 0 or below[0] < 0.2 * len(smooth) or loss.end > HIGH * loss.start:
        return None
    return int(loss.steps[below[0]])


@rule("plateau ahead", "When will the loss leave its first plateau?", "plateau", ("plateau", "escape"), optional=True)
def plateau_ahead(context: Context) -> Iterator[Finding]:
    """The plateau that a network begins with, as one look at it tells; runs have the forecasts that they stored."""
    table = context.table
    found = {name: table.get("plateau", "model", name) for name in ("escape", "low", "high", "small_layers")}
    if table.meta.get("kind") != "checkup" or any(curve is None for curve in found.values()):
        return
    step, low, high, layers = (curve.last for curve in found.values() if curve is not None)
    yield Finding(
        "info",
        "",
        f"The loss is on a plateau that should end near step {step:.0f}. "
        f"The 80 % interval for the end of the plateau is step {low:.0f} to step {high:.0f}.",
        why=f"The output is a product of {layers:.0f} layers with small weights. Small weights grow slowly at first "
        f"and then quickly.",
        advice="Wait until the forecast step. To shorten the plateau, raise the learning rate or use larger initial "
        "weights.",
        evidence=(found["escape"].evidence(),) if found["escape"] is not None else (),
    )


RULES = (not_finite, plateau, at_chance, plateau_ahead)
