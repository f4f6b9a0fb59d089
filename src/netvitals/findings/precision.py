"""Do gradients survive the precision they are held in?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from netvitals.findings.rules import Context, Hit, called, names, percent, rule, together
from netvitals.findings.series import Measurements, Series
from netvitals.findings.statistics import last_stretch
from netvitals.runs import Finding, Remedy

MULTIPLES = 0.5  # share of entries that are whole multiples of the smallest; 0.02 by chance
ZEROS = 0.2  # share of exact zeros
TENSORS = 0.4  # of the matrices
RUNAWAY = 1e3  # times the first measurements
UNDERFLOW = "float16 rounds values below 6e-8 to zero, so small gradients never reach the optimizer."
SCALER = (
    "Scale the loss with torch.amp.GradScaler: scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update(). "
    "Training in bfloat16 needs no scaler."
)


@rule(
    "underflow",
    "Are small gradients kept instead of rounded to zero?",
    "training",
    ("training", "zero_share"),
    least=2,
    null="few gradient entries are exactly zero, and about 2 % are whole multiples of the smallest entry",
    threshold=f"{percent(MULTIPLES)} of the entries are whole multiples of the smallest, and {percent(ZEROS)} are "
    f"exactly zero, in {percent(TENSORS)} of the matrices",
    source="arithmetic: every float16 number is a multiple of 6e-8",
    refuted_by="the same entries are zero in float32",
    also=("gradients",),
)
def underflow(context: Context) -> Iterator[Finding]:
    """Gradients that are whole numbers of one smallest step, and zero below it."""
    table = context.table
    yield from _all_lost(table)
    hits, seen, gone = [], 0, 0
    for zero in table.at("training", "zero_share"):
        part = table.get("training", zero.site, "multiples")
        if part is None or len(part.values) != len(zero.values):
            continue
        seen += 1
        gone += bool((zero.values > 0.999).mean() > 0.5)
        with np.errstate(invalid="ignore"):
            bad = (part.values > MULTIPLES) & (zero.values > ZEROS)
        stretch = last_stretch(zero.steps, bad)
        if stretch is not None and bad.mean() > 0.5:
            ground = (zero.evidence(), part.evidence())
            lost = float(np.nanmean(zero.values))
            hits.append(Hit(zero.site, "warning", ground, lost, stretch.since, stretch.until))
    if not hits or len(hits) + gone < max(2, TENSORS * seen):
        return
    yield from together(
        hits,
        what=lambda where, worst: (
            f"Small gradients are rounded to zero in {where}: {percent(worst.size)} of the gradient of "
            f"{called(worst.site)} is exactly zero."
        ),
        why=UNDERFLOW,
        advice=SCALER,
        remedy=Remedy("loss_scale", 65536.0),
    )


def _all_lost(table: Measurements) -> Iterator[Finding]:
    """Every gradient is exactly zero though the loss has one at the outputs and units are alive."""
    zeros = table.at("training", "zero_share")
    scale = next(iter(table.at("outputs", "scale")), None)
    gone = [s for s in zeros if s.end == 1.0 and (s.values == 1.0).mean() > 0.8]
    if not gone or len(gone) < 0.8 * len(zeros) or scale is None or not np.isfinite(scale.end) or scale.end == 0:
        return
    if any(s.end >= 0.9 for s in table.units("sparsity", "dead_units")):
        return  # a layer is dead: nothing gets past it
    yield Finding(
        "critical",
        gone[0].site,
        f"All gradients are rounded to zero in {names([s.site for s in gone])}, although the gradient at the output is "
        "not zero.",
        why=UNDERFLOW,
        advice=SCALER,
        evidence=(gone[0].evidence(), scale.evidence()),
        sites=tuple(s.site for s in gone),
        since=int(gone[0].steps[0]),
        until=int(gone[0].steps[-1]),
        remedy=Remedy("loss_scale", 65536.0),
    )


@rule(
    "gradient overflow",
    "Are the gradients finite when the loss is finite?",
    "gradients",
    ("gradients", "grad_norm"),
    null="a finite loss has finite gradients, except for a square root or a division at zero",
    threshold=f"an infinite or NaN gradient with a finite loss, and neither had grown by {RUNAWAY:g} before",
    source="arithmetic",
    refuted_by="the same batch has a finite gradient in float32",
    also=("training",),
)
def overflow(context: Context) -> Iterator[Finding]:
    """Gradients that are infinite or NaN while the loss is finite."""
    table = context.table
    whole, loss = table.get("gradients", "model", "grad_norm"), table.loss
    if whole is None or loss is None or np.isfinite(whole.values).all():
        return
    step = int(whole.steps[~np.isfinite(whole.values)][0])
    here = loss.values[loss.steps == step]
    data = [s for s in table.at("inputs", "max_abs", finite=False) if not np.isfinite(s.values).all()]
    if not len(here) or not np.isfinite(here[0]) or data:
        return
    if _ran_away(whole, step) or _ran_away(loss, step + 1):
        return  # whatever grows without bound ends beyond every range
    broken = [
        s.site
        for s in table.at("gradients", "grad_norm", finite=False)
        if (at := s.steps == step).any() and not np.isfinite(s.values[at][0])
    ]
    scale = next(iter(table.at("outputs", "scale")), None)
    scaled = float(scale.values[0]) if scale is not None and np.isfinite(scale.values[0]) else 1.0
    huge = scaled > 256 and np.log2(scaled) % 1 < 1e-3
    yield Finding(
        "critical",
        broken[0] if broken else "",
        f"The gradient{f' of {called(broken[0])}' if broken else ''} is infinite or NaN at step {step}, although the "
        "loss is finite." + (f" The loss is scaled by {scaled:.3g}." if huge else ""),
        why="float16 cannot hold values above 65504, so a large loss scale makes gradients infinite. "
        "One step with an infinite gradient makes the weights NaN.",
        advice="Use torch.amp.GradScaler: it skips such steps and lowers the loss scale. "
        "In float32, look for a square root, norm or division that receives zero.",
        evidence=(whole.evidence(value=float("inf"), step=step),),
        sites=tuple(broken),
        since=step,
        until=int(whole.steps[-1]),
        remedy=Remedy("loss_scale", 1.0),
    )


def _ran_away(curve: Series, until: int) -> bool:
    """Whether the last finite reading before a step is far above the first ones."""
    before = np.abs(curve.finite[curve.steps[np.isfinite(curve.values)] < until])
    return len(before) > 3 and float(before[-1]) > RUNAWAY * float(np.median(before[:3]))


RULES = (underflow, overflow)
