"""Is the loss what it should be: its sign, its reduction, one softmax and not two?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from netvitals.findings.rules import Context, rule
from netvitals.findings.series import Measurements, Series
from netvitals.runs import Finding, Remedy

FITS = 0.05  # share of the gradient that may be left unexplained where it is called a cross-entropy
DOUBLE = 0.02
SUMMED = 4.0  # times the gradient of a mean
LEAST = 2  # measurements that say so


def _cross_entropy(table: Measurements) -> tuple[Series, np.ndarray] | None:
    """The scale of the loss's gradient, and on which measurements it is that of a cross-entropy of logits."""
    scale = next(iter(table.at("outputs", "scale")), None)
    if scale is None:
        return None
    misfit = table.get("outputs", scale.site, "misfit")
    if misfit is None or len(misfit.values) != len(scale.values):
        return None
    with np.errstate(invalid="ignore"):
        return scale, (misfit.values < FITS) & np.isfinite(scale.values)


@rule(
    "loss reduction",
    "Is the loss a mean over the batch?",
    "outputs",
    ("outputs", "scale"),
    optional=True,
    null="the gradient of a mean cross-entropy is (p − y)/n with n the rows that count",
    threshold=f"{SUMMED:g} times that or more, equal to the rows or to the examples",
    source="an identity of cross-entropy; loss scaling for half precision is a power of two and left out",
    refuted_by="a sum that is wanted, with a learning rate that was chosen for it",
)
def reduction(context: Context) -> Iterator[Finding]:
    """A cross-entropy that is summed: the learning rate is as many times too high as there are rows."""
    table = context.table
    found = _cross_entropy(table)
    if found is None:
        return
    scale, known = found
    rows = table.get("outputs", scale.site, "rows")
    if rows is None or not known.any():
        return
    size = float(np.median(scale.values[known]))
    count = float(np.median(rows.values[known]))
    if not (size >= SUMMED and abs(size / count - 1) < 0.02):
        return
    at = int(np.flatnonzero(known)[0])
    mild = table.adaptive
    yield Finding(
        "note" if mild else "critical",
        "",
        f"The loss is summed over the batch, not averaged: its gradient is {size:.0f} times that of a mean.",
        why="The step grows with the batch: a learning rate that was chosen for a mean is as many times too high."
        + (" Adam divides it out again, but for clipping and epsilon." if mild else ""),
        advice='Use reduction="mean", or divide the learning rate by the batch size.',
        evidence=(scale.evidence(value=size), rows.evidence(value=count)),
        since=int(scale.steps[at]),
        until=int(scale.steps[-1]),
        remedy=Remedy("mean_loss"),
    )


@rule(
    "accumulation not scaled",
    "Are accumulated losses divided by their number?",
    "outputs",
    ("outputs", "scale"),
    optional=True,
    null="with k micro-batches a step each loss is divided by k: s = 1/k",
    threshold="s = 1 within 2 % where k is 2 or more",
    source="an identity of cross-entropy",
    refuted_by="a learning rate that was chosen for the sum",
    also=("training",),
)
def accumulation(context: Context) -> Iterator[Finding]:
    """Several micro-batches a step, each with its whole loss."""
    table = context.table
    found, passes = _cross_entropy(table), table.get("training", "model", "passes")
    if found is None or passes is None:
        return
    scale, known = found
    times = float(np.median(passes.finite)) if len(passes.finite) else 0.0
    if times < 2 or not known.any() or abs(float(np.median(scale.values[known])) - 1) > 0.02:
        return
    at = int(np.flatnonzero(known)[0])
    yield Finding(
        "note" if table.adaptive else "warning",
        "",
        f"{times:.0f} micro-batches make one step, and their losses are added: the gradient is {times:.0f} times that "
        "of their mean.",
        why="The learning rate is that many times higher than with one batch of the same size."
        + (" Adam divides it out again, but for clipping and epsilon." if table.adaptive else ""),
        advice=f"Divide each loss by {times:.0f} before backward(), or the learning rate by as much.",
        evidence=(passes.evidence(), scale.evidence()),
        since=int(scale.steps[at]),
        until=int(scale.steps[-1]),
        remedy=Remedy("scale_accumulation", 1 / times),
    )


RULES = (reduction, accumulation)
