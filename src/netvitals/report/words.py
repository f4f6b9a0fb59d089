"""The page's first lines: what happened, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from netvitals.findings import Findings, Measurements, is_pooled
from netvitals.runs import Finding

COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def number(value: float) -> str:
    """A number a person reads: four significant digits, a true minus, no padding.

    >>> number(0.000012345), number(-3.14159), number(120000.0), number(float("nan"))
    ('1.23e−05', '−3.142', '1.2e+05', '–')
    """
    if value is None or np.isnan(value):
        return "–"
    if np.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    text = f"{value:.3g}" if size and (size >= 1e5 or size < 1e-3) else f"{value:.4g}"
    return text.replace("-", "−")


def plural(count: int, noun: str, many: str = "") -> str:
    """A count with its noun.

    >>> plural(1, "layer"), plural(3, "layer"), plural(24, "site")
    ('one layer', 'three layers', '24 sites')
    """
    sentence = COUNTS[count] if count < len(COUNTS) else f"{count:,}"
    return f"{sentence} {noun if count == 1 else many or noun + 's'}"


def sentences(table: Measurements, findings: Findings, *, kind: str, status: str) -> list[str]:
    """Summary: how it went, what was found, how much was measured."""
    return [s for s in (_course(table, kind, status), _verdict(findings), _scope(table)) if s]


def tally(findings: Sequence[Finding]) -> str:
    """How many findings there are of each severity.

    >>> tally([Finding("warning", "", "x"), Finding("info", "", "y"), Finding("warning", "", "z")])
    '2 warnings · 1 info'
    """
    parts = []
    for severity, many in (("critical", "critical"), ("warning", "warnings"), ("note", "notes"), ("info", "info")):
        count = sum(f.severity == severity for f in findings)
        if count:
            parts.append(f"{count} {severity if count == 1 else many}")
    return " · ".join(parts) or "none"


def loss_caption(table: Measurements) -> str:
    """From where to where the loss went, and its lowest."""
    loss, totals = table.loss, table.counted()
    if loss is None:
        return "no loss was recorded"
    if len(loss.finite) < 2 and totals.broken_losses:
        return f"not a number from step {loss.steps[~np.isfinite(loss.values)][0]:,}"
    if not len(loss.finite):
        return "no finite loss"
    first = totals.first_loss if np.isfinite(totals.first_loss) else float(loss.finite[0])
    return f"{first:.3g} → {loss.end:.3g}, lowest {totals.lowest_loss:.3g}"


def _course(table: Measurements, kind: str, status: str) -> str:
    loss, steps, totals = table.loss, table.steps, table.counted()
    if not steps:
        return "Nothing was recorded."
    if kind == "checkup":
        return "One checkpoint was measured" + (f"; its loss is {number(loss.last)}." if loss is not None else ".")
    how = {"finished": "The run finished", "running": "The run is still training"}.get(status, f"The run is {status}")
    head = f"{how} {'at' if status == 'running' else 'after'} step {steps[-1]:,}"
    if loss is None or not len(loss.finite):
        return head + "."
    if totals.broken_losses:
        return f"{head}; the loss was NaN or infinite on {plural(totals.broken_losses, 'step')}."
    first = totals.first_loss
    return f"{head}; the loss {'fell' if loss.end < first else 'rose'} from {first:.3g} to {loss.end:.3g}."


def _verdict(findings: Findings) -> str:
    grave = findings.alarming
    if not grave:
        return findings.headline
    rest = len(grave) - 1
    more = f" There {'is' if rest == 1 else 'are'} {plural(rest, 'more finding')} of severity critical or warning."
    return grave[0].what + (more if rest else "")


def _scope(table: Measurements) -> str:
    vitals = {s.vital for s in table.series.values()} - {"loss"}
    sites = {s.site for s in table.series.values() if not is_pooled(s.site)}
    observations = table.counted().measured_steps
    skipped = len(table.meta.get("skipped") or ())
    if not vitals:
        return ""
    text = f"{plural(len(vitals), 'vital sign').capitalize()} at {plural(len(sites), 'site')}"
    text += f", on {plural(observations, 'measured step')}" if observations > 1 else ""
    return text + (f"; {plural(skipped, 'place')} could not be measured." if skipped else ".")


def facts(meta: Mapping[str, Any]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Metadata as short facts and as long blocks of text."""
    import json

    short: list[tuple[str, str]] = []
    long: list[tuple[str, str]] = []
    for key, value in meta.items():
        if key in ("sites", "skipped", "heartbeat"):
            continue
        if (
            isinstance(value, dict | list)
            and value
            and all(not isinstance(v, dict | list) for v in (value.values() if isinstance(value, dict) else value))
            and len(value) <= 12
        ):
            text = (
                ", ".join(f"{k} = {v}" for k, v in value.items())
                if isinstance(value, dict)
                else ", ".join(map(str, value))
            )
        elif isinstance(value, dict | list):
            text = json.dumps(value, indent=2)
        else:
            text = str(value)
        (long if "\n" in text or len(text) > 160 else short).append((key, text))
    return short, long
