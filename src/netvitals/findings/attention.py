"""Do attention heads look around, and do their scores stay in bounds?"""

from __future__ import annotations

from collections.abc import Iterator

from netvitals.findings.rules import Context, Hit, called, hit, percent, rule, together
from netvitals.runs import Finding, Severity

# Null of the scores: queries and keys with independent entries of unit size give scores of standard deviation 1, whose
# largest among n is near √(2 ln n): 6 among a hundred million. A score of 100 is no accident, and in bfloat16 the next
# one is half away; at 1000 it is 8 away, and the softmax picks one key whatever was learned.
HIGH, BROKEN = 100.0, 1000.0
# Null of the entropy: the same scores leave 1 − 1/(2 ln n) of that of equal weights, 0.88 with 64 keys. A head with
# 99 % of its weight on one of 64 keys has 0.023.
COLLAPSED = 0.05
MANY = 0.5  # share of a block's heads; one or two sharp heads are ordinary
SINK = 0.3  # heads that rest on the first token are ordinary in trained language models, and are left out


@rule("logit explosion", "Do attention scores stay in bounds?", "attention", ("attention", "max_logit"), optional=True)
def explosion(context: Context) -> Iterator[Finding]:
    """Scores so large that low precision cannot tell the keys apart."""
    hits = []
    for s in context.table.at("attention", "max_logit"):
        if s.end > HIGH:
            severity: Severity = "critical" if s.end > BROKEN else "warning"
            hits.append(hit(s, severity, s.end))
    yield from together(
        hits,
        what=lambda where, worst: (
            f"Attention scores explode in {where}: the largest is {worst.size:.0f} in {called(worst.site)}."
        ),
        why="Scores of unit queries and keys stay below about 6. At 100 bfloat16 has steps of 0.5 between scores, the "
        "softmax turns into a choice of one key, and the loss often diverges soon after.",
        advice="Normalise queries and keys (QK norm), clip the scores (a soft-cap, or rescale the two projections), or "
        "lower the learning rate and the decay of the query and key weights.",
    )


@rule(
    "attention collapse",
    "Do attention heads look at more than one key?",
    "attention",
    ("attention", "entropy"),
    optional=True,
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
            hits.append(Hit(s.site, "warning", (ground, s.evidence(change=len(s.finite) > 2)), share))
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
    )


RULES = (explosion, collapse)
