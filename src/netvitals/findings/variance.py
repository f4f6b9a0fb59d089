"""Do the inputs of the activations still vary?"""

from __future__ import annotations

from collections.abc import Iterator

from netvitals.findings.rules import Context, called, hit, rule, together
from netvitals.runs import Finding, Remedy, Severity

# gate-density E8: under SGD with weight decay the norm scale of healthy ResNets shrinks by 73 to 81 % over training.
COLLAPSED = 0.27  # σ below this share of its start: as far as the paper's trained networks went
LOST = 0.12  # … and further than any of them
CONSTANT = 1e-3  # a σ so small leaves a constant, whatever it was at the start


@rule(
    "variance collapse",
    "Do pre-activations keep their variance?",
    "preactivations",
    ("preactivations", "sigma"),
    null="under SGD with decay the norm scale of healthy ResNets shrinks by 73 to 81 % over training, elsewhere σ "
    "grows",
    threshold=f"below {COLLAPSED:g} of its start (watch), below {LOST:g} (warning), below {CONSTANT:g} in itself "
    f"(critical)",
    source="gate-density E8",
    refuted_by="gates that carry on at the same density",
)
def collapse(context: Context) -> Iterator[Finding]:
    """Activations whose inputs hardly vary, and those whose σ fell far below its start."""
    still, hits = [], []
    for s in context.table.units("preactivations", "sigma"):
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
            f"The inputs of {where} hardly vary: σ is {worst.evidence[0].value:.2g} in {called(worst.site)}."
        ),
        why="A unit whose input is the same for every sample carries no information on, and what is above it cannot "
        "tell the samples apart.",
        advice="Start with larger weights (an initialisation matched to the activation) or put a norm before these "
        "activations; if σ shrank in training, decay the weights and norm scales less.",
        remedy=Remedy("rescale_inputs", None, tuple(h.site for h in still)),
    )
    yield from together(
        hits,
        what=lambda where, worst: (
            f"The variance of the inputs collapses in {where}: σ fell from "
            f"{worst.evidence[0].before:.3g} to {worst.evidence[0].value:.3g} in "
            f"{called(worst.site)}."
        ),
        why="With σ → 0 every unit is pinned to one side of its threshold: gates are open for all samples or for none, "
        "and the layer becomes linear or dead.",
        advice="Exempt norm scales and biases from weight decay, or use less of it; check that the learning rate is "
        "not so high that decay wins over the gradient.",
        remedy=Remedy("rescale_inputs", None, tuple(h.site for h in hits)),
    )


RULES = (collapse,)
