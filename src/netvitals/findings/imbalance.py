"""Do neighbouring layers stay balanced?"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from netvitals.findings.rules import Context, Hit, called, hit, percent, rule, together
from netvitals.runs import Finding, Severity

# saddle-escape §1, §2.3: gradient flow conserves ‖W_{l+1}‖² − ‖W_l‖² − ‖b_l‖² across a homogeneous activation and moves
# it slowly elsewhere. How far is too far is a choice of this project, on the share (difference over sum): a shift of
# 0.3 turns layers of equal energy into 65 against 35; at 0.9 one layer holds 95 % of what the two have.
SHIFT = 0.3
ALONE = 0.9


@rule(
    "imbalance growth",
    "Do neighbouring layers keep weights of similar scale?",
    "imbalance",
    ("imbalance", "relative"),
    least=3,
    null="gradient flow conserves the difference of squared norms across homogeneous activations such as ReLU",
    threshold=f"the relative imbalance grows by {SHIFT:g}; a warning if it ends above {ALONE:g}",
    source="saddle-escape §1, §2.3; the numbers are choices",
    refuted_by="a tenth of the learning rate shows the same change",
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
        what=lambda where, worst: f"Neighbouring layers become unbalanced at {where}: {_heavier(worst)}",
        why=_law(context),
        advice="Use the same weight decay for both layers, or a lower learning rate for the layer with the larger "
        "weights. Early in training no change is needed: imbalance can shorten a plateau.",
    )


def _law(context: Context) -> str:
    """What the law of conservation says of this network: nothing where its activations are not homogeneous."""
    bent = [site for site, f in context.activations.items() if not _is_homogeneous(f)]
    if context.activations and not bent:
        return (
            "Gradient flow conserves the difference of the squared norms of neighbouring layers with ReLU-like "
            "activations. Long steps, uneven weight decay or an adaptive optimizer change this difference."
        )
    where = f" The activation at {called(bent[0])} is of another kind." if bent else ""
    return (
        "Long steps, uneven weight decay and adaptive optimizers change the balance of neighbouring layers. "
        f"Gradient flow conserves this balance only with ReLU-like activations, for which f(2z) = 2 f(z).{where}"
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
    return (
        f"{called(grown)} now has {percent((1 + abs(share)) / 2)} of the combined squared norm of {called(small)} and "
        f"{called(grown)}."
    )


RULES = (growth,)
