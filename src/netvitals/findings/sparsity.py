"""How sparse are the activations, and how near is the cliff?"""

from __future__ import annotations

from collections.abc import Iterator

from netvitals.findings.rules import Context, called, hit, percent, rule, together
from netvitals.runs import Finding, Severity

# weight-drift E11 (quantile-norm ReLU on digits): accuracy .978 at 70 % sparsity, .899 at 84 %, .646 at 91 %.
CLIFF = 0.70
OVER = 0.84
DEEP = 0.91
NEAR = 0.60  # and rising by more than 5 points


@rule(
    "sparsity cliff",
    "Is activation sparsity below the cliff near 70 %?",
    "sparsity",
    ("sparsity", "hard"),
    null="half of the outputs of a centred ReLU are zero",
    threshold=f"{CLIFF:.0%} of exact zeros to watch, {OVER:.0%} for a warning, {DEEP:.0%} critical",
    source="weight-drift E11: accuracy .978 at 70 %, .899 at 84 %, .646 at 91 %, in one study; it moves when training "
    "goes on",
    refuted_by="a validation score that does not suffer",
)
def cliff(context: Context) -> Iterator[Finding]:
    """Layers with more exact zeros than accuracy stands, and layers on their way there."""
    hits, near = [], []
    for s in context.table.units("sparsity", "hard"):
        if s.end > CLIFF:
            severity: Severity = "critical" if s.end > DEEP else "warning" if s.end > OVER else "watch"
            hits.append(hit(s, severity, s.end, beyond=CLIFF))
        elif s.end > NEAR and len(s.finite) > 2 and s.end - s.start > 0.05:
            near.append(hit(s, "info", s.end, change=True))
    yield from together(
        hits,
        what=lambda where, worst: (
            f"Sparsity is past the cliff in {where}: {percent(worst.size)} of the activations of "
            f"{called(worst.site)} are exactly zero."
        ),
        why="In the reference study (one network, sparsity set by a norm, not trained on) accuracy was .978 at 70 %, "
        ".899 "
        "at 84 %, .646 at 91 %; networks that train on at that sparsity lose less, and top-k loses less too.",
        advice="Stop what drives it (negative drift, see the pre-activations), centre the inputs with a norm whose "
        "shift is decayed, or widen the layer. If the sparsity was chosen, check the validation score.",
    )
    yield from together(
        near,
        what=lambda where, worst: (
            f"Sparsity rises in {where} and reached {percent(worst.size)} in {called(worst.site)}."
        ),
        why="The cliff is near 70 %; below it sparsity costs next to nothing and saves compute.",
        advice="Nothing yet; watch it.",
    )


RULES = (cliff,)
