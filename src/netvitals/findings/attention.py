"""Language models: do attention heads look around within bounds, and do all experts get their share?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from netvitals.findings.rules import Context, Hit, crossed, hit, in_worst, percent, rule, together
from netvitals.findings.updates import set_rate
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
    "Do attention scores stay small?",
    "attention",
    ("attention", "max_logit"),
    optional=True,
    null="scores of initial queries and keys stay below about 6",
    threshold=f"a score above {HIGH:g}, or above {SUDDEN:g} and {GREW:g} times its earlier value",
    source="extreme values of a Gaussian; bfloat16 has steps of 0.5 near 100",
    refuted_by="the model caps its scores",
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
            f"Attention scores explode in {where}: the largest score{in_worst(where, worst)} is {worst.size:.0f} "
            "(healthy: below about 6)."
        ),
        why="With scores near 100 each query attends to a single key. The loss often diverges soon after the scores "
        "have grown.",
        advice="Normalise queries and keys (QK norm), or cap the scores: scores = 50 * torch.tanh(scores / 50). "
        f"A lower learning rate also helps. {set_rate(context.table, 0.3)}.",
        remedy=Remedy("rescale_queries", None, tuple(h.site for h in hits)),
    )


@rule(
    "attention collapse",
    "Do attention heads attend to more than one key?",
    "attention",
    ("attention", "entropy"),
    optional=True,
    null="the attention entropy of an untrained head is 0.9 of the maximum; a few sharp heads are common",
    threshold=f"half of a block's heads have an entropy below {COLLAPSED:g} of the maximum; heads that attend to the "
    "first token are not counted",
    source="a head with 99 % of its weight on one of 64 keys has 0.023",
    refuted_by="the task needs heads that attend to one key (copying, look-up)",
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
            f"Attention collapses in {where}: {percent(worst.size)} of the heads{in_worst(where, worst)} attend to a "
            "single key (healthy: few heads)."
        ),
        why="A head that always attends to one key gets almost no gradient for its queries and keys.",
        advice="Normalise queries and keys (QK norm) or lengthen the warm-up. "
        f"A lower learning rate also helps. {set_rate(context.table, 0.3)}.",
        remedy=Remedy("rescale_queries", None, tuple(h.site for h in hits)),
    )


@rule(
    "dead experts",
    "Does every expert receive tokens?",
    "experts",
    ("experts", "unused"),
    optional=True,
    null="every expert receives tokens",
    threshold=f"an expert without a token over 60 choices per expert, on {LEAST} measurements in a row",
    refuted_by="the expert receives tokens on other batches",
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
            f"Dead experts in {where}: {worst.evidence[0].value:.0f} of the experts{in_worst(where, worst)} receive no "
            "tokens."
        ),
        why="An expert without tokens gets no gradient, so the router never learns to use it.",
        advice="Add a load-balancing loss (weight 0.05), or add noise to the router's scores early in training.",
        remedy=Remedy("balance_experts", 0.05, tuple(h.site for h in hits)),
    )


@rule(
    "hot experts",
    "Do all experts receive similar numbers of tokens?",
    "experts",
    ("experts", "hot"),
    optional=True,
    null="the busiest expert receives about 1.1 times an equal share",
    threshold=f"{HOT:g} times an equal share, or an effective number of experts below {percent(FEW)} of all",
    refuted_by="all data are of one kind, and these experts suit it",
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
            f"Experts are used unevenly in {where}: the busiest expert{in_worst(where, worst)} gets {worst.size:.1f} "
            "times an equal share (healthy: about 1)."
        ),
        why="Tokens wait for the busiest expert or are dropped, while the other experts learn little.",
        advice="Raise the weight of the load-balancing loss, or lower the learning rate of the router.",
    )


RULES = (explosion, collapse, dead, hot)
