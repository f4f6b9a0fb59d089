"""Do the inputs of the activations still vary?"""

from __future__ import annotations

from collections.abc import Iterator

from netvitals.findings.rules import Context, hit, in_worst, rule, together
from netvitals.findings.step_size import EXEMPT, weight_decay
from netvitals.findings.updates import set_rate
from netvitals.runs import Finding, Remedy, Severity

# gate-density E8: under SGD with weight decay the norm scale of healthy ResNets shrinks by 73 to 81 % over training.
COLLAPSED = 0.27  # σ below this share of its start: as far as the paper's trained networks went
LOST = 0.12  # … and further than any of them
CONSTANT = 1e-3  # a σ so small leaves a constant, whatever it was at the start


@rule(
    "variance collapse",
    "Do the inputs of the activations still vary?",
    "preactivations",
    ("preactivations", "sigma"),
    null="the standard deviation grows; in ResNets trained by SGD with weight decay it falls by 73 to 81 %",
    threshold=f"below {COLLAPSED:g} of its initial value (note), below {LOST:g} of it (warning), or below {CONSTANT:g} "
    "(critical)",
    source="gate-density E8",
    refuted_by="the share of active units stays constant",
)
def collapse(context: Context) -> Iterator[Finding]:
    """Activations whose inputs hardly vary, and those whose σ fell far below its start."""
    table, still, hits = context.table, [], []
    for s in table.units("preactivations", "sigma"):
        ratio = s.end / s.start if s.start else float("nan")
        if s.end < CONSTANT and not (s.start < CONSTANT and s.end >= LOST * s.start):
            still.append(hit(s, "critical", -s.end, beyond=CONSTANT, above=False))
        elif s.end < CONSTANT:  # drawn so: rules about the beginning speak of it
            still.append(hit(s, "note", -s.end, beyond=CONSTANT, above=False))
        elif len(s.finite) > 2 and ratio < COLLAPSED:
            severity: Severity = "warning" if ratio < LOST else "note"
            hits.append(hit(s, severity, 1 - ratio, change=True, beyond=COLLAPSED * s.start, above=False))
    yield from together(
        still,
        what=lambda where, worst: (
            f"The activation inputs of {where} hardly vary: their standard deviation{in_worst(where, worst)} is "
            f"{worst.evidence[0].value:.2g} (healthy: about 1)."
        ),
        why="Units with the same input for every example carry no information about the example.",
        advice=f"{set_rate(table, 0.3)} and restart with warm-up. A norm layer before these activations also helps."
        if any((h.evidence[0].before or 0.0) > CONSTANT for h in still)
        else "Put a norm layer before these activations, or use larger initial weights: "
        "nn.init.kaiming_normal_(weight).",
        remedy=Remedy("rescale_inputs", None, tuple(h.site for h in still)),
    )
    yield from together(
        hits,
        what=lambda where, worst: (
            f"The activation inputs of {where} vary less and less: their standard deviation{in_worst(where, worst)} "
            f"fell from {worst.evidence[0].before:.3g} to {worst.evidence[0].value:.3g}."
        ),
        why="A unit whose input hardly varies is always on or always off. The layer becomes linear or dead.",
        advice=EXEMPT
        if weight_decay(table) > 0
        else f"Put a norm layer before these activations. A lower learning rate also helps. {set_rate(table, 0.3)}.",
        remedy=Remedy("rescale_inputs", None, tuple(h.site for h in hits)),
    )


RULES = (collapse,)
