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


@rule(
    "underflow",
    "Are small gradients kept?",
    "training",
    ("training", "zero_share"),
    least=2,
    null="two in a hundred entries of a gradient lie near a whole multiple of the smallest one, and few are exactly "
    "zero",
    threshold=f"{percent(MULTIPLES)} are whole multiples of the smallest, and {percent(ZEROS)} are exactly zero, in "
    f"{percent(TENSORS)} of the matrices",
    source="arithmetic: every number of float16 is a multiple of 6e-8",
    refuted_by="the same zeros in full precision",
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
            f"Gradients are lost to underflow in {where}: {percent(worst.size)} of the entries of {called(worst.site)} "
            "are exactly zero, and the others are multiples of one smallest number."
        ),
        why="float16 holds nothing below 6e-8. What is smaller becomes zero before the optimizer sees it.",
        advice="Multiply the loss before backward() and divide the gradients after it (torch.amp.GradScaler), or train "
        "in bfloat16.",
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
        f"All gradients are lost to underflow: they are exactly zero in {names([s.site for s in gone])}, though the "
        f"loss "
        f"has a gradient at the outputs, of {scale.end:.1e} of its natural size.",
        why="float16 holds nothing below 6e-8. What is smaller becomes zero before the optimizer sees it.",
        advice="Multiply the loss before backward() and divide the gradients after it (torch.amp.GradScaler), or train "
        "in bfloat16.",
        evidence=(gone[0].evidence(), scale.evidence()),
        sites=tuple(s.site for s in gone),
        since=int(gone[0].steps[0]),
        until=int(gone[0].steps[-1]),
        remedy=Remedy("loss_scale", 65536.0),
    )


@rule(
    "gradient overflow",
    "Are the gradients finite while the loss is?",
    "gradients",
    ("gradients", "grad_norm"),
    null="a finite loss has finite gradients, but for a square root or a division at zero",
    threshold=f"a gradient that is not finite on a step whose loss is, and neither had grown by {RUNAWAY:g} before",
    source="arithmetic",
    refuted_by="a finite gradient of the same batch in full precision",
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
        f"The gradient is not a finite number at step {step} though the loss is"
        + (f": the loss is scaled by {scaled:.3g}, and gradients leave the range of half precision" if huge else "")
        + (f"; first in {names(broken[:1])}." if broken else "."),
        why="float16 ends at 65504: a loss scale that lifts small gradients pushes large ones beyond it. One such step "
        "makes every weight it reaches NaN.",
        advice="Lower the loss scale, or let torch.amp.GradScaler choose it: it leaves such steps out and halves the "
        "scale. Without half precision look for a square root, a norm or a division at zero.",
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
