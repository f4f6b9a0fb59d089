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
    """When a rule reports something and where its threshold comes from; empty for a rule that is not registered."""
    known = next((r for r in RULES if r.name == name), None)
    if known is None or not known.threshold:
        return ""
    return f"Reported if: {known.threshold} (source: {known.source})."


def explain(name: str, finding: Finding | None = None) -> str:
    """What a rule checks, when it reports something, and the details of one of its findings.

    >>> print(explain("gradients carried over").splitlines()[0])
    gradients carried over: Are gradients cleared before each step?
    """
    rule = rule_named(name)
    lines = [f"{rule.name}: {rule.question}"]
    if finding is not None:
        lines += [f"  finding: {finding.severity}: {finding.what}{finding.dated}"]
        lines += [f"  measured: {e}" for e in finding.evidence[:8]]
    needs = str(rule)
    lines += [f"  needs: {needs}"]
    lines += [f"  healthy: {rule.null}"] if rule.null else []
    lines += [f"  reported if: {rule.threshold}"] if rule.threshold else []
    lines += [f"  source: {rule.source}"]
    lines += [f"  not a problem if: {rule.refuted_by}"] if rule.refuted_by else []
    if finding is not None and finding.advice:
        lines.append(f"  fix: {finding.advice}")
    return "\n".join(lines)
