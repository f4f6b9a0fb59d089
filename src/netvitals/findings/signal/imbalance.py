"""Do neighbouring layers stay balanced?"""

from __future__ import annotations

from collections.abc import Iterator

from netvitals.findings.rules import Context, Hit, hit, rule, together
from netvitals.runs import Finding, Severity

# saddle-escape §1, §2.3: gradient flow conserves ‖W_{l+1}‖² − ‖W_l‖² − ‖b_l‖² across a homogeneous activation and moves
# it slowly elsewhere. How far is too far is a choice of this project, on the share (difference over sum): a shift of
# 0.3 turns layers of equal energy into 65 against 35; at 0.9 one layer holds 95 % of what the two have.
SHIFT = 0.3
ALONE = 0.9


@rule(
    "imbalance growth",
    "Do neighbouring layers stay balanced?",
    "imbalance",
    ("imbalance", "relative"),
    least=3,
    null="gradient flow conserves the difference of squared weights across a homogeneous activation and moves it "
    "slowly "
    "elsewhere",
    threshold=f"a shift of {SHIFT:g} in the share, with a share above {ALONE:g} for a warning",
    source="saddle-escape §1, §2.3; the numbers are choices",
    refuted_by="the same shift at a tenth of the learning rate",
)
def growth(context: Context) -> Iterator[Finding]:
    """Neighbouring layers of which one takes over the squared weight that they share.

    Args:
        context: the curves of the run, its activations and what was found so far.

    Returns:
        Findings; none where the readings do not show it.
    """
    hits = []
    for s in context.table.at("imbalance", "relative"):
        shift = abs(s.end) - abs(s.start)
        if len(s.finite) > 2 and shift > SHIFT:
            severity: Severity = "warning" if abs(s.end) > ALONE else "watch"
            hits.append(hit(s, severity, shift, change=True))
    yield from together(
        hits,
        what=lambda where, worst: f"Neighbouring layers grow apart at {where}: {_heavier(worst)}",
        why="Gradient flow conserves the imbalance ‖Wₗ₊₁‖² − ‖Wₗ‖² across ReLU and linear layers and moves it "
        "slowly elsewhere. A large shift comes from what is not gradient flow: long steps, decay that differs by "
        "layer, or an optimizer that rescales updates.",
        advice="Look at the update ratio of the two layers; the same weight decay for both, or a smaller learning rate "
        "for the growing one, holds them together. Unbalanced layers also shorten the way out of a saddle, so "
        "early in training this can be welcome.",
    )


def _heavier(hit: Hit) -> str:
    first, _, second = hit.site.partition("→")
    share = hit.evidence[0].value
    grown, small = (second, first) if share > 0 else (first, second)
    return f"{grown} now holds {(1 + abs(share)) / 2:.0%} of the squared weight that it shares with {small}."


RULES = (growth,)
