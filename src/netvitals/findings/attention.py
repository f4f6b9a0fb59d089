"""Language models: do attention heads look around within bounds, and do all experts get their share?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from netvitals.findings.rules import Context, Hit, called, crossed, hit, percent, rule, together
from netvitals.runs import Finding, Remedy, Severity

# Null of the scores: queries and keys with independent entries of unit size give scores of standard deviation 1, whose
# largest among n is near √(2 ln n): 6 among a hundred million. A score of 100 is no accident, and in bfloat16 the next
# one is half away; at 1000 it is 8 away, and the softmax picks one key whatever was learned.
HIGH, BROKEN = 100.0, 1000.0
SUDDEN, GREW = 40.0, 8.0  # smaller, but far above its own past
# Null of the entropy: the same scores leave 1 − 1/(2 ln n) of that of equal weights, 0.88 with 64 keys. A head with
# 99 % of its weight on one of 64 keys has 0.023.
COLLAPSED = 0.05
MANY = 0.5  # share of a block's heads; one or two sharp heads are ordinary
SINK = 0.3  # heads that rest on the first token are ordinary in trained language models, and are left out

# Null of the load: n choices that fall on E experts with equal chance. An expert gets none of them with probability
# (1 − 1/E)^n, below one in a million from n = 14 E on; the measurements count thousands. The largest of E shares is
# near
# 1 + √(2 E ln E / n), 1.1 with 64 experts and 65,536 choices. Both thresholds are choices of this project on top of it.
HOT = 4.0  # times an equal share
FEW = 0.5  # effective experts over all of them
LEAST = 3  # measurements in a row without a token, so that one odd batch is no finding


@rule(
    "logit explosion",
    "Do attention scores stay in bounds?",
    "attention",
    ("attention", "max_logit"),
    optional=True,
    null="independent queries and keys of unit size give scores of standard deviation 1, below 6 among a hundred "
    "million",
    threshold=f"a score above {HIGH:g}, or above {SUDDEN:g} and {GREW:g} times what it was",
    source="extreme values of a Gaussian; bfloat16 tells scores of 100 apart by 0.5",
    refuted_by="scores that a cap in the model bounds",
)
def explosion(context: Context) -> Iterator[Finding]:
    """Scores so large that low precision cannot tell the keys apart."""
    hits = []
    for s in context.table.at("attention", "max_logit"):
        usual = float(np.median(s.finite[: max(1, len(s.finite) // 4)]))
        if s.end > HIGH or (s.end > SUDDEN and s.end > GREW * usual):
            severity: Severity = "critical" if s.end > BROKEN else "warning"
            limit = HIGH if s.end > HIGH else SUDDEN
            hits.append(hit(s, severity, s.end, beyond=min(limit, max(SUDDEN, GREW * usual))))
    yield from together(
        hits,
        what=lambda where, worst: (
            f"Attention scores explode in {where}: the largest is {worst.size:.0f} in {called(worst.site)}."
        ),
        why="Scores of unit queries and keys stay below about 6. At 100 bfloat16 has steps of 0.5 between scores, the "
        "softmax turns into a choice of one key, and the loss often diverges soon after.",
        advice="Normalise queries and keys (QK norm), clip the scores (a soft-cap, or rescale the two projections), or "
        "lower the learning rate and the decay of the query and key weights.",
        remedy=Remedy("rescale_queries", None, tuple(h.site for h in hits)),
    )


@rule(
    "attention collapse",
    "Do attention heads look at more than one key?",
    "attention",
    ("attention", "entropy"),
    optional=True,
    null="scores of unit size leave a head 0.9 of the entropy of equal weights; single sharp heads are ordinary",
    threshold=f"half of a block's heads below {COLLAPSED:g}, heads that rest on the first token aside",
    source="a head with 99 % on one of 64 keys has 0.023",
    refuted_by="heads that look at one key because the task asks for it (a copy, a look-up)",
)
def collapse(context: Context) -> Iterator[Finding]:
    """Blocks of which most heads put all their weight on a single key that is not the first."""
    table, hits = context.table, []
    for s in table.at("attention", "entropy"):
        entropy, first = (table.array("attention", s.site, metric) for metric in ("entropy", "first_token"))
        if entropy is None or first is None:
            continue
        share = float(((entropy < COLLAPSED) & ~(first > SINK)).mean())
        if share >= MANY:
            ground = s.evidence(
                metric=f"share of heads with entropy < {COLLAPSED:g}", value=share, step=int(s.steps[-1])
            )
            found = Hit(s.site, "warning", (ground, s.evidence(change=len(s.finite) > 2)), share)
            hits.append(crossed(found, s, 0.3, above=False))
    yield from together(
        hits,
        what=lambda where, worst: (
            f"Attention collapses in {where}: {percent(worst.size)} of the heads of {called(worst.site)} look at "
            "one key."
        ),
        why=f"Their entropy is below {COLLAPSED:g} of that of equal weights, where scores at the start leave 0.9; a "
        "head that has settled on one key gets no gradient for its queries and keys. Heads that rest on the first "
        "token, as those of trained language models do, are not counted.",
        advice="Look at the largest scores of the same blocks: normalise queries and keys, lengthen the warm-up or "
        "lower the learning rate of these projections.",
        remedy=Remedy("rescale_queries", None, tuple(h.site for h in hits)),
    )


@rule(
    "dead experts",
    "Does every expert get tokens?",
    "experts",
    ("experts", "unused"),
    optional=True,
    null="an expert with a twentieth of an equal share gets one of 60 E choices, with 95 %",
    threshold=f"an expert without a token over 60 E choices, on {LEAST} measurements in a row",
    refuted_by="tokens for it on other batches",
)
def dead(context: Context) -> Iterator[Finding]:
    """Mixtures of which some experts get no token on reading after reading."""
    hits = []
    for s in context.table.at("experts", "unused"):
        lasting = float(s.finite[-LEAST:].min()) if len(s.finite) >= LEAST else 0.0
        share = context.table.array("experts", s.site, "share")
        if lasting > 0 and share is not None:
            severity: Severity = "critical" if lasting >= len(share) / 2 else "warning"
            found = Hit(s.site, severity, (s.evidence(value=lasting, change=True),), lasting / len(share))
            hits.append(crossed(found, s, 0.5))
    yield from together(
        hits,
        what=lambda where, worst: (
            f"Dead experts in {where}: {worst.evidence[0].value:.0f} of {called(worst.site)} got no token for so long "
            "that even one with a twentieth of its share would have."
        ),
        why="An expert without a token gets no gradient, so the router never learns to use it; its parameters are paid "
        "for in vain.",
        advice="Add a loss or a bias that balances the load, put noise on the router's scores early in training, or "
        "start the dead experts from copies of busy ones.",
        remedy=Remedy("balance_experts", 0.05, tuple(h.site for h in hits)),
    )


@rule(
    "hot experts",
    "Is the load of the experts balanced?",
    "experts",
    ("experts", "hot"),
    optional=True,
    null="the largest of E shares is near 1 + √(2 E ln E / n) times an equal one",
    threshold=f"{HOT:g} times an equal share, or the load of fewer than {FEW:g} of the experts",
    refuted_by="data of one kind, for which these experts are right",
)
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
            hits.append(Hit(s.site, "warning" if few < FEW else "note", grounds, s.end))
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


RULES = (explosion, collapse, dead, hot)
