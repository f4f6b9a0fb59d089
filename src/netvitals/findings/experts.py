"""Do all experts of a mixture get their share?"""

from __future__ import annotations

from collections.abc import Iterator

from netvitals.findings.rules import Context, Hit, called, rule, together
from netvitals.runs import Finding, Severity

# Null: n choices that fall on E experts with equal chance. An expert gets none of them with probability (1 − 1/E)^n,
# below one in a million from n = 14 E on; the readings count thousands. The largest of E shares is near
# 1 + √(2 E ln E / n), 1.1 with 64 experts and 65,536 choices. Both thresholds are choices of this project on top of it.
HOT = 4.0  # times an equal share
FEW = 0.5  # effective experts over all of them
LEAST = 3  # readings in a row without a token, so that one odd batch is no finding


@rule("dead experts", "Does every expert get tokens?", "experts", ("experts", "dead"), optional=True)
def dead(context: Context) -> Iterator[Finding]:
    """Mixtures of which some experts get no token on reading after reading."""
    hits = []
    for s in context.table.at("experts", "dead"):
        lasting = float(s.finite[-LEAST:].min()) if len(s.finite) >= LEAST else 0.0
        share = context.table.array("experts", s.site, "share")
        if lasting > 0 and share is not None:
            severity: Severity = "critical" if lasting >= len(share) / 2 else "warning"
            hits.append(Hit(s.site, severity, (s.evidence(value=lasting, change=True),), lasting / len(share)))
    yield from together(
        hits,
        what=lambda where, worst: (
            f"Dead experts in {where}: {worst.evidence[0].value:.0f} of {called(worst.site)} got no token on the last "
            f"{LEAST} readings."
        ),
        why="With equal chances an expert without a token is rarer than one in a million. It gets no gradient, so the "
        "router never learns to use it; its parameters are paid for in vain.",
        advice="Add a loss or a bias that balances the load, put noise on the router's scores early in training, or "
        "start the dead experts from copies of busy ones.",
    )


@rule("hot experts", "Is the load of the experts balanced?", "experts", ("experts", "hot"), optional=True)
def hot(context: Context) -> Iterator[Finding]:
    """Mixtures in which a few experts get most tokens."""
    hits = []
    for s in context.table.at("experts", "hot"):
        effective, share = (
            context.table.get("experts", s.site, "effective"),
            context.table.array("experts", s.site, "share"),
        )
        if effective is None or share is None:
            continue
        few = effective.end / len(share)
        if s.end > HOT or few < FEW:
            grounds = (s.evidence(change=len(s.finite) > 2), effective.evidence(change=len(s.finite) > 2))
            hits.append(Hit(s.site, "warning" if few < FEW else "watch", grounds, s.end))
    yield from together(
        hits,
        what=lambda where, worst: (
            f"Hot experts in {where}: one of {called(worst.site)} gets {worst.size:.1f} times an equal share, and the "
            f"load is that of {worst.evidence[1].value:.1f} experts."
        ),
        why="Tokens wait for the busiest expert or are dropped there, and the others learn little: the mixture has the "
        "cost of all its experts and the capacity of a few.",
        advice="Raise the weight of the balancing loss, use a bias on the router's scores that follows the load, or "
        "lower the learning rate of the router.",
    )


RULES = (dead, hot)
