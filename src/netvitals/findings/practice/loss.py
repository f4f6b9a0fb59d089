"""Is the loss a number, is it falling, and if not, is it a plateau or an end?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from netvitals.findings.curves import Curve, Table
from netvitals.findings.practice.steps import cost_of_guessing, typical_ratio
from netvitals.findings.rules import Context, called, percent, rule
from netvitals.findings.statistics import confidence, line, noise, smoothed
from netvitals.runs import Evidence, Finding, Remedy

READINGS = 20  # fewer readings of the loss than this say nothing about a plateau
FLAT_SHARE = 0.3  # the part of the run that must be flat
FLAT_FALL = 0.01  # flat: the loss fell by less than this share of itself over that part
HIGH = 0.5  # a loss that ends above this share of the first never left
GUESSING = 0.93  # of the cost of guessing: what is below was learned
LEARNED = 0.05  # share of the first loss that a plateau may have fallen before, where the cost of guessing is not known
BREAKS = (("inputs", "max_abs"), ("preactivations", "mean"), ("spikes", "max_abs"), ("gradients", "grad_norm"))
RISE = 1.5  # the loss ends this many times above its smoothed lowest
JUMP = 1.5  # a spike: this many times the median of the readings before it
BEFORE = 15  # so many of them
TRAVELLED = 0.3  # length of all steps over the weights: who went that far and still guesses has nothing to learn from


@rule(
    "loss not finite",
    "Was the loss a finite number on every step?",
    "loss",
    ("loss", "loss"),
    null="a loss is finite",
    threshold="one loss that is NaN or infinite",
    source="arithmetic",
    refuted_by="a loss that is finite when the step is repeated",
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
        f"The loss is not a finite number from step {first} on."
        + (
            f" The first number to break was {origin.metric} of {called(origin.site)} at step {origin.step}."
            if origin
            else ""
        ),
        why="A loss of NaN or infinity gives gradients without meaning: every parameter it reached is lost.",
        advice="Go back to the last good checkpoint; lower the learning rate or lengthen the warm-up, clip the "
        "gradient norm, and look for a logarithm or a division that can meet zero.",
        evidence=(loss.evidence(step=first, value=float("nan")), *([origin] if origin else [])),
        since=first,
        until=int(loss.steps[-1]),
        confidence=0.99,
        remedy=Remedy("restart_rate", 0.1),
    )


@rule(
    "plateau",
    "Is the loss stuck on a plateau?",
    "loss",
    ("loss", "loss"),
    least=READINGS,
    null="a loss that has learned nothing yet falls; one that is flat is below the cost of guessing",
    threshold=f"flat within its noise over the last {percent(FLAT_SHARE)} of the run, at the cost of guessing, or "
    f"(where "
    f"that is not known) within {percent(LEARNED)} of where it began",
    source="the cost of guessing is the entropy of the labels seen",
    refuted_by="a loss that falls, or a floor that the noise of the labels explains",
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
        yield Finding(
            "warning" if cost is not None else "watch",
            "",
            f"The loss has been flat at {level:.4g} since step {_flat_since(loss, level)}, "
            + (f"which is what guessing costs ({cost:.3g})." if cost is not None else f"where it began ({begin:.4g})."),
            why="Near a saddle the gradient is small in every layer at once: with r layers at a small scale ε the "
            "escape takes a time of order log(1/ε) for r = 2 and ε^−(r−2) for r ≥ 3. A flat loss is not yet a "
            "finished one.",
            advice="Compare the gradient norms with the first steps: small and slowly growing means a saddle, so start "
            "the layers at a larger scale, or wait. No growth means dead units, a learning rate that is far too small, "
            "or labels that do not fit the data.",
            evidence=ground,
            since=_flat_since(loss, level),
            until=int(loss.steps[-1]),
            confidence=0.8 if cost is not None else 0.6,
            remedy=Remedy("reinitialise", 1.0),
        )
        return
    stay = _first_descent(loss)
    if stay is not None:
        yield Finding(
            "info",
            "",
            f"The loss stood still until about step {stay} and fell afterwards.",
            why="This is what leaving a saddle looks like: slow growth of a small signal, then a quick drop.",
            advice="If that wait is too long, start with larger weights in the layers that are small: fewer layers at "
            "a small scale shorten it by a power of the scale.",
            evidence=ground,
            since=int(loss.steps[0]),
            until=stay,
        )


def _stays(loss: Curve) -> bool:
    """Whether enough was seen and the loss does not surely fall: over all readings, or over the last half of them."""
    if len(loss.values) < 2 * READINGS:
        return False
    good = np.isfinite(loss.values)
    steps, values = loss.steps[good], loss.values[good]
    for part in (slice(None), slice(len(values) // 2, None)):
        trend = line(steps[part], values[part])
        if trend.t < -4 and -trend.change > 0.01 * float(np.median(values)):
            return False
    return True


def _never_fell(loss: Curve, begin: float, level: float) -> bool:
    """Without a trend over the whole run, and no lower than it began."""
    whole = line(loss.steps, loss.values)
    return begin > 0 and abs(level - begin) < LEARNED * begin and whole.t > -2 and noise(loss.values) < 0.2 * begin


def _flat_since(loss: Curve, level: float) -> int:
    """The first step from which the smoothed loss stays near the level of the end."""
    near = np.abs(smoothed(loss.values) - level) <= max(0.02 * abs(level), 3 * noise(loss.values))
    last = np.flatnonzero(~near)
    return int(loss.steps[last[-1] + 1]) if len(last) and last[-1] + 1 < len(near) else int(loss.steps[0])


@rule(
    "at chance",
    "Is anything learned at all?",
    "outputs",
    ("outputs", "chance"),
    least=5,
    optional=True,
    null="after as many steps a network is below the cost of guessing",
    threshold=f"the last third of the run above {percent(GUESSING)} of the cost of guessing, though all steps "
    f"together are "
    f"{percent(TRAVELLED)} of the weights or more",
    source="the cost of guessing is the entropy of the labels seen",
    refuted_by="a larger network that learns the same labels",
    also=("loss", "gradients"),
)
def at_chance(context: Context) -> Iterator[Finding]:
    """A network that moves and learns nothing: labels that do not go with the inputs, or a signal that does not
    pass."""
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
    yield Finding(
        "warning",
        "",
        f"Nothing is learned: the loss is {level:.3g}, and guessing costs {cost:.3g}"
        + (f"; {percent(accuracy.end)} are right." if accuracy is not None else "."),
        why=f"The weights have gone {percent(path)} of their own length, so that it is not for want of steps. Labels "
        f"that do "
        "not belong to their inputs look like this, and so does a network that does not let the signal through.",
        advice="Look at pairs of input and label by hand: shuffled apart, joined by the wrong index, sorted by one "
        "and not "
        "by the other? Then try to learn a single batch by heart: a network that cannot is broken itself.",
        evidence=(loss.evidence(change=True), ratio.evidence()),
        since=int(loss.steps[0]),
        until=int(loss.steps[-1]),
        confidence=confidence(tail, GUESSING * cost),
        remedy=Remedy("repair_data"),
    )


@rule(
    "loss spike",
    "Did the loss jump and come back?",
    "loss",
    ("loss", "loss"),
    least=2 * READINGS,
    null="a reading of the loss stays within a few times its noise of those before it",
    threshold=f"{JUMP:g} times the median of the {BEFORE} readings before and 8 times the noise, on three readings or "
    f"more",
    refuted_by="data of another kind on these steps, for which the loss is higher",
)
def spike(context: Context) -> Iterator[Finding]:
    """A loss that jumped far above what it was and came back."""
    loss = context.table.loss
    if loss is None or len(loss.finite) < 2 * READINGS or len(loss.finite) < len(loss.values):
        return
    values = loss.values
    for i in range(BEFORE, len(values) - 3):
        before = values[i - BEFORE : i]
        usual, spread = float(np.median(before)), float(np.median(np.abs(before - np.median(before)))) / 0.6745
        limit = max(JUMP * usual, usual + 8 * max(spread, noise(before)))
        if usual > 0 and (values[i : i + 2] > limit).all():
            back = np.flatnonzero(values[i:] <= max(1.1 * usual, usual + 2 * spread))
            end = int(loss.steps[i + back[0]]) if len(back) else None
            top = i + int(np.argmax(values[i : i + (back[0] if len(back) else len(values))]))
            if end is None and i < len(values) // 2:
                continue  # it never came back: a loss that rises
            yield Finding(
                "warning",
                "",
                f"The loss jumped at step {int(loss.steps[i])}, from {usual:.3g} to {values[top]:.3g}"
                + (f", and was back at step {end}." if end is not None else ", and is not back yet."),
                why="A step that is far too long, an odd batch or a broken update moves the weights to where they "
                "never "
                "were; a run may recover, and it loses what it did since.",
                advice="Look at the batch and the gradient norm of that step; clip the gradient norm at a few times "
                "its "
                "median so that one step cannot do this.",
                evidence=(replace(loss.evidence(value=float(values[top]), step=int(loss.steps[top])), before=usual),),
                since=int(loss.steps[i]),
                until=end if end is not None else int(loss.steps[-1]),
                confidence=confidence(values[i : i + 3], limit),
                remedy=Remedy("clip", 1.0),
            )
            return


@rule(
    "overfitting",
    "Does the loss on held-out data follow that of training?",
    "loss",
    ("loss", "held"),
    least=10,
    optional=True,
    null="held-out loss falls with the training loss, or stays",
    threshold="held-out loss surely rising (t > 4) since its lowest, by a tenth of it or more, while the training "
    "loss falls",
    refuted_by="a held-out loss that falls again",
    also=("loss",),
)
def overfitting(context: Context) -> Iterator[Finding]:
    """Held-out loss that rises while training loss falls. Held-out data are the probe of the watch."""
    table = context.table
    held, loss = table.get("loss", "model", "held"), table.loss
    if held is None or loss is None or len(held.finite) < 10 or len(held.finite) < len(held.values):
        return
    smooth = smoothed(held.values, 10)
    low = int(np.argmin(smooth))
    after = slice(low, None)
    if len(held.values) - low < 6:
        return
    rise = line(held.steps[after], held.values[after])
    ahead = loss.values[loss.steps >= held.steps[low]]
    falls = line(loss.steps[loss.steps >= held.steps[low]], ahead)
    grown = float(np.median(held.values[-3:])) / max(float(smooth[low]), 1e-12) - 1
    if (
        (rise.t > 4 or (rise.t > 1 and grown > 0.3))
        and grown > 0.1
        and (falls.t < -2 or float(np.median(ahead[-5:])) < 0.5 * float(held.values[-1]))
    ):
        yield Finding(
            "warning",
            "",
            f"The network overfits: the held-out loss has risen from {smooth[low]:.3g} at step {int(held.steps[low])} "
            f"to "
            f"{held.end:.3g}, while the training loss is {loss.end:.3g}.",
            why="What is learned since then holds for the training examples only.",
            advice=f"Keep the checkpoint of step {int(held.steps[low])}. More data, augmentation, weight decay or "
            f"dropout "
            "move that point; a longer run does not.",
            evidence=(held.evidence(change=True), loss.evidence(change=True)),
            since=int(held.steps[low]),
            until=int(held.steps[-1]),
            confidence=min(0.99, 0.5 + rise.t / 20),
            remedy=Remedy("stop"),
        )


@rule(
    "loss rises",
    "Does the loss end near its lowest?",
    "loss",
    ("loss", "loss"),
    least=READINGS,
    null="a loss ends near its lowest",
    threshold=f"{RISE:g} times its smoothed lowest and 6 times its noise above it",
    refuted_by="data that became harder",
)
def rises(context: Context) -> Iterator[Finding]:
    """A loss that ends well above its lowest."""
    loss = context.table.loss
    if loss is None or len(loss.finite) < READINGS or len(loss.finite) < len(loss.values):
        return
    smooth = smoothed(loss.values)
    lowest = int(np.argmin(smooth))
    if smooth[lowest] > 0 and loss.end > RISE * smooth[lowest] and loss.end - smooth[lowest] > 6 * noise(loss.values):
        step = int(loss.steps[lowest])
        yield Finding(
            "warning",
            "",
            f"The loss rose again: from {smooth[lowest]:.4g} near step {step} to {loss.end:.4g} at the end.",
            why="A training loss that climbs means steps that overshoot, or a change in the data.",
            advice="Look at the update ratio and the gradient norm around that step; lower the learning rate from "
            "there on or clip the gradient norm.",
            evidence=(replace(loss.evidence(step=int(loss.steps[-1])), before=float(smooth[lowest])),),
            since=step,
            until=int(loss.steps[-1]),
            confidence=confidence(loss.finite[-5:], RISE * float(smooth[lowest])),
            remedy=Remedy("rate", 0.1),
        )


def _origin(table: Table, until: int) -> Evidence | None:
    """The earliest reading that was not finite, up to that step; the first in depth where several
    broke on one step."""
    earliest: Evidence | None = None
    for vital, metric in BREAKS:  # what the forward pass shows first, then what the backward pass does
        for s in table.at(vital, metric, finite=False):
            broken = np.flatnonzero(~np.isfinite(s.values))
            if len(broken) and s.steps[broken[0]] <= (until if earliest is None else earliest.step - 1):
                earliest = s.evidence(value=float(s.values[broken[0]]), step=int(s.steps[broken[0]]))
    return earliest


def _first_descent(loss: Curve) -> int | None:
    """Last step of an early plateau: a fifth of the run or more above 95 % of the first loss, then below half of it."""
    smooth = smoothed(loss.values)
    below = np.flatnonzero(smooth < 0.95 * smooth[0])
    if not len(below) or loss.start <= 0 or below[0] < 0.2 * len(smooth) or loss.end > HIGH * loss.start:
        return None
    return int(loss.steps[below[0]])


RULES = (not_finite, plateau, at_chance, spike, overfitting, rises)
