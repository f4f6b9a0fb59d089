"""Do the weights keep their directions?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from netvitals.findings.rules import Context, called, hit, percent, rule, together
from netvitals.findings.updates import set_rate
from netvitals.runs import Finding, Remedy

LOST = 0.35  # of the effective rank at the start
FEW = 0.3  # of the smaller side


@rule(
    "rank collapse",
    "Do the weight matrices keep their rank?",
    "rank",
    ("rank", "entropy"),
    least=2,
    null="over a run the effective rank of a weight matrix falls by about 10 %, in attention by up to 50 %",
    threshold=f"an effective rank below {LOST:g} of its initial value and below {FEW:g} of the smaller side",
    refuted_by="the task needs no higher rank",
)
def collapse(context: Context) -> Iterator[Finding]:
    """Weight matrices that have lost most of the directions they began with."""
    table, hits = context.table, []
    for s in table.at("rank", "entropy"):
        shape = table.shape(s.site)
        if len(shape) < 2 or len(s.finite) < 2 or not s.values[0] > 0:
            continue
        side = min(shape[0], int(np.prod(shape[1:])))
        if side >= 8 and s.end < LOST * s.values[0] and s.end < FEW * side:
            hits.append(
                hit(s, "warning", 1 - s.end / s.values[0], change=True, beyond=0.7 * float(s.values[0]), above=False)
            )
    yield from together(
        hits,
        what=lambda where, worst: (
            f"Weight matrices lose rank in {where}: the effective rank of {called(worst.site)} fell by "
            f"{percent(worst.size)}, to {worst.evidence[0].value:.1f}."
        ),
        why="A matrix of low rank passes only a few directions of its input, so information is lost.",
        advice=f"{set_rate(table, 0.3)} or lower the weight decay of this layer, then reinitialise the layer.",
        remedy=Remedy("reinitialise", 1.0, tuple(h.site for h in hits)),
    )


RULES = (collapse,)
