"""What holds the steps back, or the weights down: a clip that never lets go, a decay that outruns, the edge of
stability."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from netvitals.findings.rules import Context, called, hit, percent, rule, short, together
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
    set_rate,
    typical_ratio,
)
from netvitals.runs import Finding, Remedy

SHRUNK = 0.6  # of a weight's norm at the start
LEFT = 0.95  # of a weight after as many steps under the decay that is advised
DECAY_SHARE = 1e-4  # of a weight that each step may take away
DECAYED = 5e-3  # rate times decay: the share of every weight that one step takes away; recipes in use have 1e-6 to 1e-4
LOOKS = 2  # at the sharpness in a row beyond the edge
EXEMPT = "Exempt biases and norm layers: put them in a parameter group with weight_decay=0."
SWINGS, SWING, SWINGING = 20, 0.01, 0.2  # steps in a row, a rise that counts, share of them


@rule(
    "clipping",
    "Does clipping leave ordinary gradients unchanged?",
    "gradients",
    ("gradients", "grad_norm"),
    least=READINGS,
    null="the gradient norm varies by several percent from batch to batch, and only the largest gradients are clipped",
    threshold=f"the norm is equal within {SAME:g} on nearly every measurement",
    source="arithmetic: a clipped gradient has exactly the norm of the limit",
    refuted_by="the norms before clipping are just as equal",
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
        f"Clipping changes every gradient: the norm after clipping is {level:.3g} on every step.",
        why="With constant clipping, the limit, and not the gradient, decides the length of every step."
        + (" Adam is not affected, because it divides by the gradient's size." if table.adaptive else ""),
        advice=f"Raise max_norm (now {level:.3g}) to a few times the median gradient norm: "
        "torch.nn.utils.clip_grad_norm_ returns the norm before clipping.",
        evidence=(whole.evidence(value=level), ratio.evidence()),
        since=int(whole.steps[0]),
        until=int(whole.steps[-1]),
        remedy=Remedy("clip", max(1.0, 100 * level)),
    )


def weight_decay(table: Measurements) -> float:
    """The largest weight decay of the optimizers of a ``table``."""
    given = [o for o in table.meta.get("optimizer") or () if isinstance(o, dict)]
    return max((float(o.get("weight_decay", 0) or 0) for o in given), default=0.0)


@rule(
    "weights shrink",
    "Do the weights keep their size under weight decay?",
    "gradients",
    ("gradients", "weight_norm"),
    least=READINGS,
    null="in hundreds of steps the norm of a weight matrix, or of the gain of a norm layer, changes by a few percent",
    threshold=f"half of the matrices, or of the gains of norm layers, below {SHRUNK:g} of their initial norm and "
    "falling, with a weight decay above 0",
    refuted_by="the weights shrink as fast without weight decay",
    also=("drift", "preactivations"),
)
def shrink(context: Context) -> Iterator[Finding]:
    """Weights or gains that decay takes away faster than gradients can hold them."""
    table = context.table
    decay = weight_decay(table)
    if decay <= 0:
        return
    share = decay * (rate(table) if rate(table) == rate(table) else 0.0)
    if share > DECAYED:
        norm = table.get("gradients", "model", "weight_norm")
        yield Finding(
            "warning",
            "",
            f"Weight decay is too strong: each step shrinks every weight by {percent(share)} (healthy: about 0.01 %).",
            why=f"Without a gradient a weight halves in {0.69 / share:.0f} steps, so the network forgets all but the "
            "latest steps.",
            advice=f"Set weight_decay={short(decay * DECAY_SHARE / share)} (now {decay:g}). {EXEMPT}",
            evidence=(norm.evidence(change=True),) if norm is not None else (),
            since=0,
            until=table.steps[-1],
            remedy=Remedy("decay", DECAY_SHARE / share),
        )
        return
    gains = {
        f"{s.get('module')}.weight" for s in table.meta.get("sites", ()) if s.get("kind") == "norm" and s.get("module")
    }
    for chosen in (table.is_matrix, gains.__contains__):
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
            # decay alone shrinks a weight by exp(−lr · decay · steps): as much less of it as leaves 95 %
            less = math.log(LEFT) / math.log(max(1 - max(h.size for h in hits), 1e-12))
            yield from together(
                hits,
                what=lambda where, worst: (
                    f"Weight decay shrinks {where}. {called(worst.site)} has {percent(1 - worst.size)} of "
                    "its initial norm left (healthy: about 100 %)."
                ),
                why="Weight decay removes more than the gradients add, so the signal fades from layer to layer.",
                advice=f"Set weight_decay={short(decay * less)} (now {decay:g}). {EXEMPT}",
                remedy=Remedy("decay", less),
            )
            return


@rule(
    "edge of stability",
    "Does the loss fall without oscillating?",
    "loss",
    ("loss", "loss"),
    least=30,
    null="on one fixed batch the loss falls steadily",
    threshold=f"on one fixed batch, a rise of {percent(SWING)} or more on {percent(SWINGING)} of {SWINGS} consecutive "
    f"steps; or a measured sharpness above the optimizer's limit on {LOOKS} measurements",
    source="gradient descent oscillates where the learning rate times the curvature exceeds 2",
    refuted_by="the same oscillation at half the learning rate",
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
        else (f" The largest Hessian eigenvalue is {sharp.end:.2g} times the stability limit of the optimizer.")
    )
    why = (
        "At the edge of stability the learning rate times the largest curvature is about 2. "
        "Steps overshoot along the steepest direction, and a slightly higher learning rate makes training diverge."
    )
    factor = 0.3 if sharp is None else min(0.3, 0.7 / max(sharp.end, 1e-12))
    advice = f"{set_rate(table, factor)}. Training can also stay at the edge for long without diverging."
    if swing is not None:
        assert table.loss is not None
        step, rose, seen = swing
        yield Finding(
            "warning",
            "",
            f"The loss oscillates on a fixed batch: near step {step} it rose on {percent(rose)} of the steps. "
            f"Training is at the edge of stability.{looked}",
            why=why,
            advice=advice,
            evidence=(table.loss.evidence(change=True), *(() if sharp is None else (sharp.evidence(),))),
            since=seen[0],
            until=seen[1],
            remedy=Remedy("rate", factor),
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


def _swing(table: Measurements) -> tuple[int, float, tuple[int, int]] | None:
    """The step of the worst swing, how often the loss rose, and from when to when it did."""
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
    return int(loss.steps[worst]), float(up[worst]), (int(loss.steps[seen[0]]), until)


RULES = (clipping, shrink, edge)
