"""Where did the loss turn: a spike, a rise, a held-out loss that leaves the training loss?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from netvitals.findings.loss import READINGS
from netvitals.findings.rules import Context, rule
from netvitals.findings.series import Measurements, Series
from netvitals.findings.statistics import line, noise, smoothed
from netvitals.findings.updates import set_rate
from netvitals.runs import Finding, Remedy

RISE = 1.5  # the loss ends this many times above its smoothed lowest
JUMP = 1.5  # a spike: this many times the median of the measurements before it
LOST = 0.05  # and this share of what the network knew by then, from guessing or from the start of the run
BEFORE = 15  # so many of them


@rule(
    "loss spike",
    "Is the loss free of sudden jumps?",
    "loss",
    ("loss", "loss"),
    least=2 * READINGS,
    null="each loss is within a few times its noise of the losses before",
    threshold=f"{JUMP:g} times the median of the {BEFORE} measurements before, 8 times the noise, and {LOST:.0%} of "
    "the way back to guessing, on two measurements or more",
    refuted_by="these steps had harder data",
)
def spike(context: Context) -> Iterator[Finding]:
    """A loss that jumped far above what it was and came back."""
    loss = context.table.loss
    if loss is None or len(loss.finite) < 2 * READINGS or len(loss.finite) < len(loss.values):
        return
    values = loss.values
    begun = _begun(context.table, loss)
    before = np.lib.stride_tricks.sliding_window_view(values, BEFORE)[: len(values) - BEFORE - 3]
    usuals = np.median(before, axis=1)
    spreads = np.median(np.abs(before - usuals[:, None]), axis=1) / 0.6745
    limits = np.maximum(JUMP * usuals, usuals + 8 * np.maximum(spreads, noise(before)))
    limits = np.maximum(limits, usuals + LOST * np.maximum(0.0, begun - usuals))
    following = np.minimum(values[BEFORE:-3], values[BEFORE + 1 : -2])
    for i in np.flatnonzero((usuals > 0) & (following > limits)) + BEFORE:
        usual, spread = float(usuals[i - BEFORE]), float(spreads[i - BEFORE])
        back = np.flatnonzero(values[i:] <= max(1.1 * usual, usual + 2 * spread))
        end = int(loss.steps[i + back[0]]) if len(back) else None
        top = i + int(np.argmax(values[i : i + (back[0] if len(back) else len(values))]))
        if end is None and i < len(values) // 2:
            continue  # it never came back: a loss that rises
        at = int(loss.steps[i])
        yield Finding(
            "warning",
            "",
            f"The loss jumped at step {at}, from {usual:.3g} to {values[top]:.3g}"
            + (f". The loss recovered by step {end}." if end is not None else ". The loss has not recovered yet."),
            why="A single batch or a single long step can undo the progress of many steps.",
            advice="Look at the batch of this step, and clip the gradient norm at a few times its median: "
            "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm).",
            evidence=(replace(loss.evidence(value=float(values[top]), step=int(loss.steps[top])), before=usual),),
            since=at,
            until=end if end is not None else int(loss.steps[-1]),
            remedy=Remedy("clip", 1.0),
        )
        return


def _begun(table: Measurements, loss: Series) -> float:
    """Where a run comes from: its first losses, or the cost of guessing where that is higher. At the end of training
    too little gradient is left to tell a cross-entropy by, but its labels are known."""
    guessing = [float(np.median(s.finite)) for s in table.at("outputs", "chance")]
    return max(float(np.median(loss.values[:BEFORE])), *guessing, 0.0)


@rule(
    "overfitting",
    "Does the held-out loss follow the training loss?",
    "loss",
    ("loss", "held"),
    least=10,
    optional=True,
    null="the held-out loss falls with the training loss, or stays level",
    threshold="the held-out loss has risen by 10 % or more since its lowest (t > 4), while the training loss falls",
    refuted_by="the held-out loss falls again",
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
    grown = float(np.median(held.values[-3:])) / max(float(smooth[low]), 1e-12 * float(np.abs(smooth).max()) or 1.0) - 1
    if (
        (rise.t > 4 or (rise.t > 1 and grown > 0.3))
        and grown > 0.1
        and (falls.t < -2 or float(np.median(ahead[-5:])) < 0.5 * float(held.values[-1]))
    ):
        step = int(held.steps[low])
        yield Finding(
            "warning",
            "",
            f"The network overfits: since step {step} the held-out loss rose from {smooth[low]:.3g} to {held.end:.3g}. "
            f"The training loss is {loss.end:.3g}.",
            why="From the step where the held-out loss began to rise, the network improved on training examples only.",
            advice=f"Use the checkpoint of step {step}. More data, augmentation, weight decay or dropout can lower the "
            "held-out loss further; longer training cannot.",
            evidence=(held.evidence(change=True), loss.evidence(change=True)),
            since=int(held.steps[low]),
            until=int(held.steps[-1]),
            remedy=Remedy("stop"),
        )


@rule(
    "loss rises",
    "Does the loss end near its lowest value?",
    "loss",
    ("loss", "loss"),
    least=READINGS,
    null="the loss ends near its lowest value",
    threshold=f"the loss ends {RISE:g} times above its smoothed minimum, 6 times its noise above it, and {LOST:.0%} of "
    "the way back to guessing",
    refuted_by="the data became harder",
)
def rises(context: Context) -> Iterator[Finding]:
    """A loss that ends well above its lowest."""
    loss = context.table.loss
    if loss is None or len(loss.finite) < READINGS or len(loss.finite) < len(loss.values):
        return
    smooth = smoothed(loss.values)
    lowest = int(np.argmin(smooth))
    low = float(smooth[lowest])
    least = max(6 * noise(loss.values), LOST * (_begun(context.table, loss) - low))
    if low > 0 and loss.end > RISE * low and loss.end - low > least:
        step = int(loss.steps[lowest])
        yield Finding(
            "warning",
            "",
            f"The training loss rises: from {smooth[lowest]:.4g} near step {step} to {loss.end:.4g} at the end.",
            why="A rising training loss means that updates are too large, or that the data have changed.",
            advice=f"{set_rate(context.table, 0.1)} from step {step} on, or clip the gradient norm.",
            evidence=(replace(loss.evidence(step=int(loss.steps[-1])), before=float(smooth[lowest])),),
            since=step,
            until=int(loss.steps[-1]),
            remedy=Remedy("rate", 0.1),
        )


RULES = (spike, overfitting, rises)
