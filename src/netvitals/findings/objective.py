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
    "Is the cross-entropy averaged over the batch?",
    "outputs",
    ("outputs", "scale"),
    optional=True,
    null="the gradient of an averaged cross-entropy over n rows is (p − y)/n",
    threshold=f"the gradient is {SUMMED:g} times larger or more, by exactly the number of rows",
    source="exact for a cross-entropy; loss scales of mixed precision are powers of two and are left out",
    refuted_by="the learning rate was chosen for a summed loss",
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
        f"The loss is summed over the batch instead of averaged, so the gradient is {size:.0f} times larger.",
        why="The length of each step grows with the batch size, as if the learning rate were higher."
        + (
            " With Adam the step length hardly changes, because Adam divides by the size of the gradient. Only "
            "clipping and epsilon act differently."
            if mild
            else ""
        ),
        advice=f"Use reduction='mean', or divide the learning rate by {size:.0f}.",
        evidence=(scale.evidence(value=size), rows.evidence(value=count)),
        since=int(scale.steps[at]),
        until=int(scale.steps[-1]),
        remedy=Remedy("mean_loss"),
    )


@rule(
    "accumulation not scaled",
    "Is the loss divided by the number of accumulation steps?",
    "outputs",
    ("outputs", "scale"),
    optional=True,
    null="with k micro-batches per step, each loss is divided by k",
    threshold="the gradient of each micro-batch has its full size (within 2 %), with 2 or more micro-batches per step",
    source="exact for a cross-entropy",
    refuted_by="the learning rate was chosen for the sum",
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
        f"Gradients of {times:.0f} micro-batches are added without dividing the loss by {times:.0f}.",
        why="The accumulated gradient is larger than that of one big batch, as if the learning rate were higher."
        + (
            " Adam divides by the size of the gradient, so only clipping and epsilon are affected."
            if table.adaptive
            else ""
        ),
        advice=f"Call (loss / {times:.0f}).backward(), or divide the learning rate by {times:.0f}.",
        evidence=(passes.evidence(), scale.evidence()),
        since=int(scale.steps[at]),
        until=int(scale.steps[-1]),
        remedy=Remedy("scale_accumulation", 1 / times),
    )


RULES = (reduction, accumulation)
