"""Do the inputs of the activations still vary?"""

from __future__ import annotations

from collections.abc import Iterator

from netvitals.findings.rules import Context, called, hit, rule, together
from netvitals.runs import Finding

# gate-density E8: under SGD with weight decay the norm scale of healthy ResNets shrinks by 73 to 81 % over training.
COLLAPSED = 0.27  # σ below this share of its start: as far as the paper's trained networks went
BEYOND = 0.19 / 4  # … and four times further than any of them
CONSTANT = 1e-3  # a σ so small leaves a constant, whatever it was at the start


@rule("variance collapse", "Do pre-activations keep their variance?", "preactivations", ("preactivations", "sigma"))
def collapse(context: Context) -> Iterator[Finding]:
    """Activations whose inputs hardly vary, and those whose σ fell far below its start."""
    still, hits = [], []
    for s in context.table.units("preactivations", "sigma"):
        ratio = s.end / s.start if s.start else float("nan")
        if s.end < CONSTANT:
            still.append(hit(s, "critical", -s.end))
        elif len(s.finite) > 2 and ratio < COLLAPSED:
            hits.append(hit(s, "warning" if ratio < BEYOND else "watch", 1 - ratio, change=True))
    yield from together(
        still,
        what=lambda where, worst: (
            f"The inputs of {where} hardly vary: σ is {worst.evidence[0].value:.2g} in {called(worst.site)}."
        ),
        why="A unit whose input is the same for every sample carries no information on, and what is above it cannot "
        "tell the samples apart.",
        advice="Start with larger weights (an initialisation matched to the activation) or put a norm before these "
        "activations; if σ shrank in training, decay the weights and norm scales less.",
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
    )


RULES = (collapse,)
