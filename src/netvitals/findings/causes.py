"""A diagnosis, not a list: findings that follow from one cause stand below it.

A rule may explain others (a learning rate that is too high makes the stream grow and gates shut). A finding is put
below a cause that was found as well, that can bring it about, and that did not begin after it. What the data are
follows from nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from netvitals.checks import CHECKS
from netvitals.runs import SEVERITIES, Finding

LATER = 0.25  # a cause may be noticed this share of the run after what it brings about

# what breaks first, before what follows from it; a cause explains everything that stands below it in this list, but for
# the exceptions of INDEPENDENT
ORDER: tuple[tuple[str, ...], ...] = (
    ("input not finite", "gradients carried over", "loss sign", "double softmax", "not in the optimizer"),
    ("cut off from the loss", "frozen", "eval mode", "same batch", "constant input"),
    (
        "loss reduction",
        "accumulation not scaled",
        "gradient overflow",
        "underflow",
        "clipping",
        "learning rate at zero",
    ),
    ("unnormalised input", "odd batches"),
    ("anisotropy",),
    ("identical units", "unbalanced layers"),
    ("initialisation too large", "initialisation too small"),
    ("exploding signal", "vanishing signal"),
    ("learning rate too high", "weights shrink"),
    ("dead experts",),
    ("learning rate too low", "edge of stability"),
    ("rank collapse", "variance collapse", "stream growth", "logit explosion"),
    ("attention collapse", "dead units", "saturation"),
    (
        "hot experts",
        "gate density falls",
        "negative drift",
        "sparsity cliff",
        "exploding gradients",
        "imbalance growth",
    ),
    ("vanishing gradients", "spikes", "update ratio"),
    ("at chance", "overfitting", "loss spike", "stream floor", "gate forecast", "drift direction"),
    ("plateau", "loss rises", "loss not finite"),
    ("divergence forecast",),
)
EXACT = tuple(CHECKS)
INDEPENDENT = frozenset({"overfitting", "same batch", "frozen"})  # explain nothing else
# what the data are; nothing that a network or a loop does brings it about, and its dates are those of the batches
GIVEN = frozenset({"input not finite", "constant input", "same batch", "unnormalised input", "odd batches"})
# what stops a network from learning where it is critical; else that it learns nothing comes first, and these follow
STOPPING = frozenset({"dead units", "variance collapse", "rank collapse"})
SHUT = frozenset({"saturation", "vanishing gradients"})  # and these in any case
NOTHING_LEARNED = 9.5


def rank(rule: str) -> float:
    """How far from the root of things a rule's finding is; those that are not listed are last.

    >>> rank("gradients carried over") < rank("loss rises") < rank("my own rule")
    True
    """
    if rule in EXACT:  # what holds or does not comes before what is merely likely
        return -1.0 + 0.01 * EXACT.index(rule)
    return next((i for i, group in enumerate(ORDER) if rule in group), len(ORDER))


def _ranks(findings: Sequence[Finding]) -> dict[str, float]:
    """The rank of every rule that spoke; see :data:`STOPPING`."""
    ranks = {f.rule: rank(f.rule) for f in findings}
    grave = {f.rule for f in findings if f.severity == "critical"}
    stopped = bool(grave & STOPPING or {f.rule for f in findings if f.severity == "warning"} & SHUT or grave & SHUT)
    if "at chance" in ranks and not stopped:
        ranks["at chance"] = NOTHING_LEARNED
    return ranks


def diagnosed(findings: Sequence[Finding], last: int) -> list[Finding]:
    """The findings as a forest: causes, the most severe first, each with its consequences below it."""
    alarming = [f for f in findings if f.severity in ("critical", "warning")]
    ranks = _ranks(findings)
    causes = sorted((f for f in alarming if f.rule not in INDEPENDENT), key=lambda f: (ranks[f.rule], _begin(f)))
    below: dict[int, list[Finding]] = {}
    taken: set[int] = set()
    for finding in findings:
        for cause in causes:
            if cause is not finding and id(cause) not in taken and _explains(cause, finding, last, ranks):
                below.setdefault(id(cause), []).append(finding)
                taken.add(id(finding))
                break
    roots = [_with(f, below.get(id(f), ())) for f in findings if id(f) not in taken]
    return _ordered(roots, last, ranks)


def _ordered(roots: Sequence[Finding], last: int, ranks: dict[str, float]) -> list[Finding]:
    """The most severe first; of those that are equally grave what is nearer to the root of things, unless it began too
    late
    to have brought about what was there from the first step on."""
    out: list[Finding] = []
    for f in sorted(roots, key=lambda f: (SEVERITIES.index(f.severity), ranks[f.rule])):
        at = len(out)
        while at and out[at - 1].severity == f.severity and f.since == 0 and _too_late(out[at - 1], f, last):
            at -= 1
        out.insert(at, f)
    return out


def _explains(cause: Finding, other: Finding, last: int, ranks: dict[str, float]) -> bool:
    if (
        other.severity == "info"
        or other.rule in GIVEN
        or ranks[other.rule] <= ranks[cause.rule]
        or (cause.rule in EXACT and other.rule in EXACT)
        or ranks[other.rule] == len(ORDER)
    ):
        return False
    return not _too_late(cause, other, last)


def _too_late(cause: Finding, other: Finding, last: int) -> bool:
    """Whether a cause began too late for the other to follow from it."""
    return _begin(cause) > _begin(other) + (0.0 if cause.rule in GIVEN else LATER * last)


def _begin(finding: Finding) -> int:
    return 0 if finding.since is None else finding.since


def _with(cause: Finding, below: Iterable[Finding]) -> Finding:
    """The cause with its consequences, and as grave as the most severe of them."""
    found = sorted(below, key=lambda f: (rank(f.rule), SEVERITIES.index(f.severity)))
    if not found:
        return cause
    grave = min((cause, *found), key=lambda f: SEVERITIES.index(f.severity)).severity
    return replace(cause, severity=grave, consequences=tuple(found))
