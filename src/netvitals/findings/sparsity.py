"""How sparse are the activations, and does this run still learn at that level?

A level of sparsity is not dangerous as such. Of the study ``weight-drift-cliff`` with quantile norms directly before
ReLU: an MLP on digits loses 56 % of its accuracy at 94 % zeros after a short run and 1 % (at 80 %) when it trains ten
times longer, an MLP on photographs 60 % and then 6 %; a small convolutional network still loses 45 % at 89 %. Over all,
the break is at 73 % [62, 85]. So where a run shows its own level, that one counts; the constant is for runs that show
none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from netvitals.findings.rules import Context, hit, in_worst, percent, rule, together
from netvitals.findings.series import Series
from netvitals.runs import Finding, Severity

CLIFF = 0.70  # short runs lose beyond it
OVER = 0.84
DEEP = 0.91
NEAR = 0.60  # and rising by more than 5 points
WIDTH = 10  # losses that are averaged to see it rise
RISES = 0.03  # of sparsity, while the loss rose
STANDS = 0.1  # of what the loss had gained, gained once more since the layer passed the constant


@rule(
    "sparsity cliff",
    "Is activation sparsity below the level that costs accuracy?",
    "sparsity",
    ("sparsity", "hard"),
    null="half of the outputs of a ReLU with centred inputs are zero",
    threshold=f"the level at which the loss of this run began to rise; otherwise {CLIFF:.0%} exact zeros for a note, "
    f"{OVER:.0%} for a warning, {DEEP:.0%} for critical",
    source="weight-drift-cliff: accuracy breaks at 66 % zeros in short runs, and at 73 % [62, 85] in ten times longer "
    "runs",
    refuted_by="the validation score does not suffer",
)
def cliff(context: Context) -> Iterator[Finding]:
    """Layers with more exact zeros than this run can take, or than short runs could, and layers on their way there."""
    loss = context.table.loss
    hits, near, fine = [], [], []
    own = False
    for s in context.table.units("sparsity", "hard"):
        level, shown = danger_level(loss, s)
        if s.end > level:
            severity: Severity = "critical" if s.end > DEEP else "warning" if s.end > OVER or shown else "note"
            hits.append(hit(s, severity, s.end, beyond=level))
            own |= shown
        elif s.end > CLIFF and level == math.inf:
            fine.append(hit(s, "info", s.end, change=True))
        elif s.end > NEAR and len(s.finite) > 2 and s.end - s.start > 0.05:
            near.append(hit(s, "info", s.end, change=True))
    short = (
        "Short training runs lose accuracy when more than about 70 % of the activations are zero. "
        "Longer training restores most of the accuracy in MLPs, but not in convolutional networks."
    )
    yield from together(
        hits,
        what=lambda where, worst: (
            f"Activations are too sparse in {where}: {percent(worst.size)} of them{in_worst(where, worst)} are exactly "
            "zero (healthy: about 50 %)."
        ),
        why="The loss of this run began to rise while these layers became sparser." if own else short,
        advice="Put a norm layer directly before the activation, or widen the layer. If the sparsity is intended, "
        "check the validation score.",
    )
    yield from together(
        fine,
        what=lambda where, worst: (
            f"Activations are sparse in {where}, although the loss still falls: {percent(worst.size)} of "
            f"them{in_worst(where, worst)} are exactly zero."
        ),
        why=short,
        advice="No change is needed while the validation score follows the training loss.",
    )
    yield from together(
        near,
        what=lambda where, worst: (
            f"Activations become sparser in {where}: {percent(worst.size)} of them{in_worst(where, worst)} are exactly "
            "zero."
        ),
        why="Short training runs lose accuracy when more than about 70 % of the activations are zero.",
        advice="No change is needed yet.",
    )


def danger_level(loss: Series | None, sparsity: Series) -> tuple[float, bool]:
    """The sparsity that is too much for this run, and whether the run itself has shown it.

    >>> t = np.arange(200)
    >>> falling = Series("training", "model", "loss", t, np.exp(-t / 100))
    >>> danger_level(falling, Series("sparsity", "act", "hard", t, np.linspace(0.5, 0.9, 200)))
    (inf, False)
    >>> danger_level(None, Series("sparsity", "act", "hard", t, np.linspace(0.5, 0.9, 200)))
    (0.7, False)
    """
    if loss is None:
        return CLIFF, False
    own = costly_level(loss, sparsity)
    if own > NEAR:  # below it a loss that rises has another cause: half of the outputs of a centred ReLU are zero
        return own, True
    passed = sparsity.steps[np.nan_to_num(sparsity.values, nan=0.0) > CLIFF]
    if not len(passed) or len(loss.finite) < 5 * WIDTH or len(loss.finite) < len(loss.values):
        return CLIFF, False
    smooth = np.convolve(loss.values, np.ones(WIDTH) / WIDTH, "valid")
    then = float(np.interp(passed[0], loss.steps[WIDTH - 1 :], smooth))
    gained = smooth[0] - then
    return (math.inf if gained > 0 and then - smooth[-1] > STANDS * gained else CLIFF), False


def costly_level(loss: Series, sparsity: Series) -> float:
    """The sparsity at which this very run began to lose: that of the step from which the loss rose by a tenth and more
    of what it had gained, while sparsity rose by three points and more; NaN where it never did.
    """
    if len(loss.finite) < 5 * WIDTH or len(loss.finite) < len(loss.values):
        return math.nan
    smooth = np.convolve(loss.values, np.ones(WIDTH) / WIDTH, "valid")
    steps = loss.steps[WIDTH - 1 :]
    noise = float(np.median(np.abs(np.diff(loss.values)))) / 0.954 * math.sqrt(2 / WIDTH)
    lowest, at = smooth[0], 0
    for i, value in enumerate(smooth):
        if value < lowest:
            lowest, at = value, i
        if value - lowest > max(0.1 * (smooth[0] - lowest), 4 * noise) > 0:
            then, now = np.interp([steps[at], steps[i]], sparsity.steps, sparsity.values)
            if now - then > RISES:
                return float(then)
    return math.nan


RULES = (cliff,)
