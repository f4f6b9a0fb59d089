"""Do neighbouring layers stay balanced?"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

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
    """Neighbouring layers of which one takes over the squared weight that they share."""
    hits = []
    for s in context.table.at("imbalance", "relative"):
        shift = abs(s.end) - abs(s.start)
        if len(s.finite) > 2 and shift > SHIFT:
            severity: Severity = "warning" if abs(s.end) > ALONE else "note"
            hits.append(hit(s, severity, shift, change=True))
    yield from together(
        hits,
        what=lambda where, worst: f"Neighbouring layers grow apart at {where}: {_heavier(worst)}",
        why=_law(context),
        advice="Look at the update ratio of the two layers; the same weight decay for both, or a smaller learning rate "
        "for the growing one, holds them together. Unbalanced layers also shorten the way out of a saddle, so "
        "early in training this can be welcome.",
    )


def _law(context: Context) -> str:
    """What the law of conservation says of this network: nothing where its activations are not homogeneous."""
    bent = [site for site, f in context.activations.items() if not _is_homogeneous(f)]
    if context.activations and not bent:
        return (
            "Every activation here is homogeneous, so gradient flow conserves the imbalance ‖Wₗ₊₁‖² − ‖Wₗ‖²: the shift "
            "comes from what is not gradient flow, long steps, decay that differs by layer, or an optimizer that "
            "rescales updates."
        )
    where = f" (f(2z) is not 2 f(z) at {bent[0]})" if bent else ""
    return (
        "‖Wₗ₊₁‖² − ‖Wₗ‖² is what was measured. The law that gradient flow conserves it is not used here: it holds "
        f"across homogeneous activations, and those of this network are not known to be{where}. Long steps, decay that "
        "differs by layer and optimizers that rescale updates move it too."
    )


def _is_homogeneous(f: Callable[[Tensor], Tensor]) -> bool:
    """f(2z) = 2 f(z) on a grid."""
    z = torch.linspace(-3, 3, 25, dtype=torch.float64)
    with torch.no_grad():
        return bool((f(2 * z) - 2 * f(z)).abs().max() <= 1e-6 * f(2 * z).abs().max())


def _heavier(hit: Hit) -> str:
    first, _, second = hit.site.partition("→")
    share = hit.evidence[0].value
    grown, small = (second, first) if share > 0 else (first, second)
    return f"{grown} now holds {(1 + abs(share)) / 2:.0%} of the squared weight that it shares with {small}."


RULES = (growth,)
