"""Why a finding was given: its measurements, its rule, the threshold and where that comes from, and the rule's error
rate."""

from __future__ import annotations

import difflib

from netvitals.findings.diagnosis import RULES
from netvitals.findings.rules import Rule
from netvitals.runs import Finding


def rule_named(name: str) -> Rule:
    """The rule of that name.

    >>> rule_named("overfiting")
    Traceback (most recent call last):
    ...
    ValueError: there is no rule 'overfiting'; did you mean overfitting?
    """
    known = {r.name: r for r in RULES}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
    raise ValueError(f"there is no rule {name!r}; {hint}")


def threshold_of(name: str) -> str:
    """Beyond what a rule speaks and where that comes from, in a sentence; empty for a rule that is not registered."""
    known = next((r for r in RULES if r.name == name), None)
    if known is None or not known.threshold:
        return ""
    return f"It speaks beyond: {known.threshold} ({known.source})."


def explain(name: str, finding: Finding | None = None) -> str:
    """Everything that is known of a rule, and of one finding of it.

    >>> print(explain("gradients carried over").splitlines()[0])
    gradients carried over: Does every step begin with empty gradients?
    """
    rule = rule_named(name)
    lines = [f"{rule.name}: {rule.question}"]
    if finding is not None:
        lines += [f"  found: {finding.severity}: {finding.what}{finding.dated}"]
        lines += [f"  read: {e}" for e in finding.evidence[:8]]
    needs = str(rule)
    lines += [f"  needs: {needs}"]
    lines += [f"  in health: {rule.null}"] if rule.null else []
    lines += [f"  speaks beyond: {rule.threshold}"] if rule.threshold else []
    lines += [f"  source: {rule.source}"]
    lines += [f"  refuted by: {rule.refuted_by}"] if rule.refuted_by else []
    if finding is not None and finding.advice:
        lines.append(f"  advice: {finding.advice}")
    return "\n".join(lines)
