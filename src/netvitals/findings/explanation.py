"""Why a finding was given: its readings, its rule, the threshold and where that comes from, and the rule's error
rate."""

from __future__ import annotations

import difflib

from netvitals.findings.diagnosis import RULES
from netvitals.findings.record import measured, of_rule
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


def error_rate(name: str) -> str:
    """How often a rule was right in the clinic, in a sentence; empty where it never spoke there."""
    tried = of_rule(name)
    if not tried:
        return ""
    parts = []
    if tried.get("spoke"):
        parts.append(f"it was right in {tried['right']} of the {tried['spoke']} sick runs in which it spoke first")
    else:
        parts.append("it stood below another finding wherever it spoke in a sick run")
    if tried.get("healthy"):
        parts.append(f"it alarmed in {tried['false']} of {tried['healthy']} healthy ones")
    return f"In our clinic {', and '.join(parts)}." if parts else ""


def explain(name: str, finding: Finding | None = None) -> str:
    """Everything that is known of a rule, and of one finding of it.

    >>> print(explain("gradients carried over").splitlines()[0])
    gradients carried over: Does every backward pass begin with empty gradients?
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
    lines.append(f"  clinic: {error_rate(name) or 'it gave no warning in any run, sick or healthy; no rate is known'}")
    for kind, tried in measured().get("advice", {}).get(name, {}).items():
        lines.append(f"  advice {kind!r}: mended {tried['mended']} of {tried['tried']} runs")
    if finding is not None and finding.advice:
        lines.append(f"  advice: {finding.advice}")
    return "\n".join(lines)
