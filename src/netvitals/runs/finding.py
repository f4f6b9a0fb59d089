"""A finding: what was noticed, where, why it matters and what to do, with the readings it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Severity = Literal["info", "watch", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "watch", "info")  # the gravest first


@dataclass(frozen=True)
class Evidence:
    """The readings a finding rests on: one series, the step looked at, and the number found there."""

    vital: str
    site: str
    metric: str
    step: int
    value: float
    before: float | None = None  # the same series at the start of the window, where change is the point

    def __str__(self) -> str:
        name = f"{self.vital}/{self.metric}"
        change = f"{self.before:.4g} → {self.value:.4g}" if self.before is not None else f"{self.value:.4g}"
        return f"{name} at {self.site or 'the model'}: {change} (step {self.step})"


@dataclass(frozen=True)
class Finding:
    """One thing a person should know about a run.

    >>> print(Finding("warning", "fc1", "Half of the units are dead.", advice="Lower the learning rate."))
    WARNING  Half of the units are dead.
      advice: Lower the learning rate.
    """

    severity: Severity
    site: str  # the first site concerned; "" when it is the whole model
    what: str
    why: str = ""
    advice: str = ""
    evidence: tuple[Evidence, ...] = ()
    sites: tuple[str, ...] = ()  # every site concerned, when several layers share the trouble
    rule: str = ""  # name of the rule that spoke
    vital: str = ""  # the vital sign whose panel shows it

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise ValueError(f"severity must be one of {', '.join(SEVERITIES)}, got {self.severity!r}")
        if not self.sites and self.site:
            object.__setattr__(self, "sites", (self.site,))

    def __str__(self) -> str:
        lines = [f"{self.severity.upper()}  {self.what}"]
        lines += [f"  why: {self.why}"] if self.why else []
        lines += [f"  advice: {self.advice}"] if self.advice else []
        lines += [f"  seen: {'; '.join(map(str, self.evidence[:3]))}"] if self.evidence else []
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; :meth:`from_dict` reads them back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Finding:
        values = {key: record[key] for key in cls.__dataclass_fields__ if key in record}
        values["evidence"] = tuple(e if isinstance(e, Evidence) else Evidence(**e) for e in values.get("evidence", ()))
        values["sites"] = tuple(values.get("sites", ()))
        return cls(**values)
