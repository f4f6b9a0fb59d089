"""Is the loss a number, is it falling, and if not, is it a plateau or an end?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from netvitals.findings.curves import Curve, Table
from netvitals.findings.rules import Context, called, rule
from netvitals.runs import Evidence, Finding

# Choices of this project; the papers give laws for escape times, not thresholds for a noisy loss curve.
READINGS = 20  # fewer readings of the loss than this say nothing about a plateau
FLAT_SHARE = 0.3  # the part of the run that must be flat
FLAT_FALL = 0.01  # flat: the loss fell by less than this share of itself over that part
HIGH = 0.5  # a plateau above this share of the first loss is an obstacle; below it, perhaps the end
BREAKS = (("preactivations", "mean"), ("spikes", "max_abs"), ("gradients", "grad_norm"))  # always finite in health
RISE = 1.5  # the loss ends this many times above its smoothed lowest


@rule("loss not finite", "Was the loss a finite number on every step?", "loss", ("loss", "loss"))
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
    )


@rule("plateau", "Is the loss stuck on a plateau?", "loss", ("loss", "loss"), least=READINGS)
def plateau(context: Context) -> Iterator[Finding]:
    """A loss that is flat far above zero, or that stood still for long before it fell."""
    loss = context.table.loss
    if loss is None or len(loss.finite) < READINGS or len(loss.finite) < len(loss.values):
        return
    tail = loss.values[-max(READINGS // 2, int(FLAT_SHARE * len(loss.values))) :]
    fall, noise = _fall(tail)
    ground = (loss.evidence(change=True),)
    flat_from = int(loss.steps[-len(tail)])
    level = float(np.median(tail))
    if abs(fall) <= max(FLAT_FALL * abs(level), 2 * noise) and level > HIGH * loss.start > 0:
        yield Finding(
            "warning",
            "",
            f"The loss has been flat at {level:.4g} since step {flat_from}, not far below where it "
            f"began ({loss.start:.4g}).",
            why="Near a saddle the gradient is small in every layer at once: with r layers at a small scale ε the "
            "escape takes a time of order log(1/ε) for r = 2 and ε^−(r−2) for r ≥ 3. A flat loss is not yet a "
            "finished one.",
            advice="Compare the gradient norms with the first steps: small and slowly growing means a saddle, so wait, "
            "or start the small layers at a larger scale or use fewer of them. No growth means dead units, a "
            "learning rate that is far too small, or labels that do not fit the data.",
            evidence=ground,
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
        )


@rule("loss rises", "Does the loss end near its lowest?", "loss", ("loss", "loss"), least=READINGS)
def rises(context: Context) -> Iterator[Finding]:
    """A loss that ends well above its lowest."""
    loss = context.table.loss
    if loss is None or len(loss.finite) < READINGS or len(loss.finite) < len(loss.values):
        return
    smooth = _smooth(loss.values)
    lowest = int(np.argmin(smooth))
    if smooth[lowest] > 0 and loss.end > RISE * smooth[lowest] and loss.end - smooth[lowest] > 4 * _noise(loss.values):
        step = int(loss.steps[lowest])
        yield Finding(
            "warning",
            "",
            f"The loss rose again: from {smooth[lowest]:.4g} near step {step} to {loss.end:.4g} at the end.",
            why="A training loss that climbs means steps that overshoot, or a change in the data.",
            advice="Look at the update ratio and the gradient norm around that step; lower the learning rate from "
            "there on or clip the gradient norm.",
            evidence=(replace(loss.evidence(step=int(loss.steps[-1])), before=float(smooth[lowest])),),
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


def _fall(values: np.ndarray) -> tuple[float, float]:
    """How far a straight line through the values falls from one end to the other, and its standard error."""
    x = np.linspace(-0.5, 0.5, len(values))
    slope = float((x * (values - values.mean())).sum() / (x * x).sum())
    residual = values - values.mean() - slope * x
    return -slope, float(np.sqrt((residual**2).sum() / max(1, len(x) - 2) / (x * x).sum()))


def _noise(values: np.ndarray) -> float:
    """Spread of one reading around its neighbours (differences carry the noise twice)."""
    return float(np.median(np.abs(np.diff(values)))) / (0.6745 * np.sqrt(2))


def _smooth(values: np.ndarray) -> np.ndarray:
    width = max(1, len(values) // 20)
    padded = np.concatenate([np.full(width // 2, values[0]), values, np.full(width - 1 - width // 2, values[-1])])
    return np.convolve(padded, np.ones(width) / width, mode="valid")


def _first_descent(loss: Curve) -> int | None:
    """Last step of an early plateau: a fifth of the run or more above 95 % of the first loss, then below half of it."""
    smooth = _smooth(loss.values)
    below = np.flatnonzero(smooth < 0.95 * smooth[0])
    if not len(below) or loss.start <= 0 or below[0] < 0.2 * len(smooth) or loss.end > HIGH * loss.start:
        return None
    return int(loss.steps[below[0]])


RULES = (not_finite, plateau, rises)
