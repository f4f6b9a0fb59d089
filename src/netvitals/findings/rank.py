"""Do the weights keep their directions?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from netvitals.findings.rules import Context, called, hit, percent, rule, together
from netvitals.runs import Finding, Remedy

LOST = 0.35  # of the effective rank at the start
FEW = 0.3  # of the smaller side


@rule(
    "rank collapse",
    "Do weights keep their directions?",
    "rank",
    ("rank", "entropy"),
    least=2,
    null="over a run the effective rank of a weight matrix falls by a tenth, in attention by up to a half",
    threshold=f"below {LOST:g} of that at the start and {FEW:g} of the smaller side",
    refuted_by="a task that needs no more directions than are left",
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
            f"Rank collapses in {where}: {called(worst.site)} has lost {percent(worst.size)} of its directions and "
            f"uses "
            f"{worst.evidence[0].value:.1f}."
        ),
        why="What lies in the lost directions does not pass this layer any more, whatever comes before or after it.",
        advice="Look at what shrinks them: a decay that outruns the gradient, a learning rate that follows one "
        "direction "
        "only. Draw the layer anew if the rest of the network is good.",
        remedy=Remedy("reinitialise", 1.0, tuple(h.site for h in hits)),
    )


RULES = (collapse,)
