"""What holds the steps back, or the weights down: a clip that never lets go, a decay that outruns, the edge of
stability."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from netvitals.findings.rules import Context, hit, percent, rule, together
from netvitals.findings.series import Measurements, Series
from netvitals.findings.statistics import line
from netvitals.findings.updates import (
    PATH,
    READINGS,
    SAME,
    UNLEARNED,
    always_clipped,
    cost_of_guessing,
    rate,
    typical_ratio,
)
from netvitals.runs import Finding, Remedy

SHRUNK = 0.6  # of a weight's norm at the start
DECAYED = 5e-3  # rate times decay: the share of every weight that one step takes away; recipes in use have 1e-6 to 1e-4
LOOKS = 2  # at the sharpness in a row beyond the edge
SWINGS, SWING, SWINGING = 20, 0.01, 0.2  # steps in a row, a rise that counts, share of them


@rule(
    "clipping",
    "Does clipping let go of ordinary gradients?",
    "gradients",
    ("gradients", "grad_norm"),
    least=READINGS,
    null="the norm of gradients varies from batch to batch by several percent; a clip touches the largest of them",
    threshold=f"the norm is the same within {SAME:g} on nearly every measurement",
    source="arithmetic: a clipped gradient has the norm it was clipped at",
    refuted_by="a norm that differs from step to step before it is clipped by less than that",
    also=("loss",),
)
def clipping(context: Context) -> Iterator[Finding]:
    """A gradient norm that is the same on every step, because it is always clipped."""
    table = context.table
    found = always_clipped(table)
    ratio, cost = typical_ratio(table), cost_of_guessing(table)
    if found is None or ratio is None:
        return
    whole, level = found
    path = float(np.trapezoid(np.nan_to_num(ratio.values), ratio.steps))
    loss = table.loss
    if not table.optimizers:
        return
    slow = path < 5 * PATH or (loss is not None and cost is not None and loss.end > UNLEARNED * cost)
    if table.adaptive or not slow:
        severity = "info"
    else:
        severity = "warning"
    yield Finding(
        severity,  # type: ignore[arg-type]
        "",
        f"Every gradient is clipped: its norm is {level:.3g} on every step.",
        why="The clip sets the length of every step, and the size of the gradient nothing."
        + (" Adam divides it out again." if table.adaptive else " The weights hardly move."),
        advice="Clip at a few times the median of the norms that are not clipped, or raise the learning rate by as "
        "much "
        "as the clip takes away.",
        evidence=(whole.evidence(value=level), ratio.evidence()),
        since=int(whole.steps[0]),
        until=int(whole.steps[-1]),
        remedy=Remedy("clip", max(1.0, 100 * level)),
    )


@rule(
    "weights shrink",
    "Does decay leave the weights their size?",
    "gradients",
    ("gradients", "weight_norm"),
    least=READINGS,
    null="under a decay that fits, the norm of a weight matrix or a norm's gain changes by a few percent in hundreds "
    "of "
    "steps, and gradients hold against it",
    threshold=f"half of the matrices, or of the gains of norms, below {SHRUNK:g} of their norm at the start and surely "
    "falling, with a decay above 0",
    refuted_by="weights that shrink as fast without decay",
    also=("drift", "preactivations"),
)
def shrink(context: Context) -> Iterator[Finding]:
    """Weights or gains that decay takes away faster than gradients can hold them."""
    table = context.table
    decay = max(
        (float(o.get("weight_decay", 0) or 0) for o in table.meta.get("optimizer") or () if isinstance(o, dict)),
        default=0.0,
    )
    if decay <= 0:
        return
    share = decay * (rate(table) if rate(table) == rate(table) else 0.0)
    if share > DECAYED:
        norm = table.get("gradients", "model", "weight_norm")
        yield Finding(
            "warning",
            "",
            f"Decay is too strong: each step takes {percent(share)} of every weight away.",
            why=f"With a rate of {rate(table):g} and a decay of {decay:g} a weight halves in {0.69 / share:.0f} steps "
            f"unless "
            "its gradient puts it back: only what the last steps taught is ever there.",
            advice="Decay less (0.01 to 0.1 for AdamW, 1e-4 for SGD), and exempt the gains of norms and the biases "
            "from it.",
            evidence=(norm.evidence(change=True),) if norm is not None else (),
            since=0,
            until=table.steps[-1],
            remedy=Remedy("decay", 0.01 / decay),
        )
        return
    gains = {
        f"{s.get('module')}.weight" for s in table.meta.get("sites", ()) if s.get("kind") == "norm" and s.get("module")
    }
    for kind, chosen in (("weights", table.is_matrix), ("gains of norms", lambda site: site in gains)):
        curves = [s for s in table.at("gradients", "weight_norm") if chosen(s.site) and "[" not in s.site]
        hits = []
        for s in curves:
            if len(s.finite) < READINGS or not s.start > 0:
                continue
            ratio = s.end / s.start
            fall = line(s.steps, np.log(np.maximum(s.values, 1e-30)))
            if ratio < SHRUNK and fall.t < -4:
                hits.append(hit(s, "warning", 1 - ratio, change=True, beyond=0.9 * s.start, above=False))
        if len(hits) >= max(1, 0.5 * len(curves)):
            yield from together(
                hits,
                what=lambda where, worst, kind=kind: (  # type: ignore[misc]
                    f"Decay shrinks the {kind}: {where}; {worst.site} is down to "
                    f"{percent(1 - worst.size)} of its norm at the start."
                ),
                why=f"The optimizer takes lr × {decay:g} of every weight away on each step, more than gradients put "
                f"back: "
                "the signal fades layer by layer.",
                advice="Decay less (0.01 to 0.1 for AdamW), and exempt the gains of norms and the biases from it.",
                remedy=Remedy("decay", 0.01 / decay),
            )
            return


@rule(
    "edge of stability",
    "Does the loss fall without swinging?",
    "loss",
    ("loss", "loss"),
    least=30,
    null="differences of the loss from step to step are as often up as down in any order; from fresh batches their "
    "first "
    "autocorrelation is −0.5, from one fixed batch it is positive",
    threshold=f"on one fixed batch, a rise of {percent(SWING)} or more on {percent(SWINGING)} of {SWINGS} steps in a "
    f"row; or, where curvature is watched, a sharpness beyond the optimizer's edge on {LOOKS} looks",
    source="descent turns on every step where rate times curvature passes 2",
    refuted_by="the same swing at half of the rate",
    also=("inputs", "curvature"),
)
def edge(context: Context) -> Iterator[Finding]:
    """A loss that swings from step to step though the batch is the same, or a sharpness beyond 2/lr: the learning rate
    times the largest curvature is near two.
    """
    table, sharp = context.table, _sharpness(context.table)
    swing = _swing(table)
    looked = (
        ""
        if sharp is None
        else (
            f" The Hessian's largest eigenvalue, measured on the probe batch, is {sharp.end:.2g} times the largest at "
            "which this optimizer is stable."
        )
    )
    why = (
        "Along the steepest direction a step overshoots by as much as it corrects: the learning rate times the "
        "largest curvature is about 2. Progress goes on in flatter directions, but a little more ends it."
    )
    advice = "Lower the learning rate to a third, or keep it and watch: at the edge it can go on for long."
    if swing is not None:
        assert table.loss is not None
        at, size, rose, seen = swing
        yield Finding(
            "warning",
            "",
            f"The loss swings though the batch is the same: of {SWINGS} steps around step {at} it rose on "
            f"{round(rose * SWINGS)}, by {percent(size)} of itself. Training is at the edge of stability.{looked}",
            why=why,
            advice=advice,
            evidence=(table.loss.evidence(change=True), *(() if sharp is None else (sharp.evidence(),))),
            since=seen[0],
            until=seen[1],
            remedy=Remedy("rate", 0.3),
        )
    elif sharp is not None and len(sharp.finite) >= LOOKS and float(np.median(sharp.finite[-LOOKS:])) >= 1:
        beyond = sharp.steps[np.isfinite(sharp.values) & (sharp.values >= 1)]
        yield Finding(
            "note",
            "",
            f"Training is at the edge of stability.{looked}",
            why=why,
            advice=advice,
            evidence=(sharp.evidence(change=True),),
            since=int(beyond[0]),
        )


def _sharpness(table: Measurements) -> Series | None:
    """The sharpness over the edge of the optimizer in use, where it was measured; adaptive optimizers have none."""
    found = table.at("curvature", "sharpness_edge", pooled=True)
    return found[0] if found else None


def _swing(table: Measurements) -> tuple[int, float, float, tuple[int, int]] | None:
    """The step of the worst swing, its size, how often the loss rose, and from when to when it did."""
    loss, marks = table.loss, table.at("inputs", "mark")
    if loss is None or len(loss.finite) < 30 or len(loss.finite) < len(loss.values) or np.ptp(np.diff(loss.steps)):
        return None
    if table.meta.get("probe") or not marks or not all(np.ptp(s.finite) == 0 for s in marks if len(s.finite)):
        return None  # the batches differ: what swings may be the data
    rises = np.diff(loss.values) / np.maximum(loss.values[:-1], 1e-12 * np.abs(loss.values).max() or 1.0)
    window = np.lib.stride_tricks.sliding_window_view(rises, SWINGS)
    up = (window > SWING).mean(1)
    worst = int(np.argmax(up))
    if up[worst] < SWINGING:
        return None
    seen = np.flatnonzero(up >= SWINGING)
    until = int(loss.steps[min(seen[-1] + SWINGS, len(loss.steps) - 1)])
    size = float(np.median(np.abs(window[worst])))
    return int(loss.steps[worst]), size, float(up[worst]), (int(loss.steps[seen[0]]), until)


RULES = (clipping, shrink, edge)
