"""Scores of the benchmark: which causes were named, and which scripts were accused without one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from netvitals_lab.bugs.case import Case
from netvitals_lab.bugs.causes import CAUSES_OF
from netvitals_lab.bugs.runner import Outcome

ALARMS = ("critical", "warning")


def names_cause(case: Case, rule: str) -> bool:
    """Whether a finding of ``rule`` is one of the accepted answers."""
    return bool(set(CAUSES_OF.get(rule, ())) & set(case.causes))


def judged(case: Case, outcome: Outcome) -> dict[str, bool]:
    """Of one run: is the cause named, is it the first alarm, is there any alarm?"""
    alarms = [f for f in outcome.findings if f["severity"] in ALARMS]
    rules = [rule for f in alarms for rule in (f["rule"], *f["below"])]
    return {
        "named": any(names_cause(case, rule) for rule in rules),
        "first": bool(alarms) and names_cause(case, alarms[0]["rule"]),
        "alarm": bool(alarms),
    }


def table(cases: Iterable[Case], outcomes: Iterable[Outcome]) -> dict[str, tuple[int, int]]:
    """By script, where more than half of its seeds say so: count and total of each row of the published table."""
    known = {case.name: case for case in cases}
    votes: dict[tuple[str, str], list[dict[str, bool]]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.case in known and not outcome.error:
            votes[outcome.case, outcome.variant].append(judged(known[outcome.case], outcome))
    counts: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for (name, variant), runs in votes.items():
        most = {key: 2 * sum(run[key] for run in runs) > len(runs) for key in runs[0]}
        if variant == "bug":
            if not known[name].observable:
                continue
            for row, key in (("cause named", "named"), ("cause first", "first"), ("any alarm", "alarm")):
                totals[row] += 1
                counts[row] += most[key]
            totals["cause first, where it alarms"] += most["alarm"]
            counts["cause first, where it alarms"] += most["first"]
        else:
            row = "fixed scripts quiet" if variant == "fixed" else "healthy scripts quiet"
            totals[row] += 1
            counts[row] += not most["alarm"]
    return {row: (counts[row], totals[row]) for row in totals}
