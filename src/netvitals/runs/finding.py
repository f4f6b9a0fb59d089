"""A finding: what was noticed, where, why it matters and what to do, with the measurements that support it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Severity = Literal["info", "note", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "note", "info")  # the most severe first


@dataclass(frozen=True)
class Evidence:
    """A measurement that supports a finding: one series, one step, and the value at this step.

    Attributes:
        vital: name of the vital sign, ``gates``.
        site: where it was measured.
        metric: name of the number, ``density@0.01``.
        step: the training step.
        value: the value at this step.
        before: the value at the start of the window, if the finding is about a change.

    >>> print(Evidence("gates", "fc1", "density@0.01", step=400, value=0.1, before=0.6).value)
    0.1
    """

    vital: str
    site: str
    metric: str
    step: int
    value: float
    before: float | None = None

    def __str__(self) -> str:
        name = f"{self.vital}/{self.metric}"
        change = f"{self.before:.4g} → {self.value:.4g}" if self.before is not None else f"{self.value:.4g}"
        return f"{name} at {self.site or 'the model'}: {change} (step {self.step})"


@dataclass(frozen=True)
class Remedy:
    """Something that a program can do about a finding.

    Args:
        kind: what to do, a word of :data:`netvitals.findings.REMEDIES`.
        amount: how much of it: a factor of the learning rate, a norm to clip at, steps of warm-up.
        places: the sites or tensors it is done to; empty for the whole model.

    >>> print(Remedy("rate", 0.1))
    rate × 0.1
    """

    kind: str
    amount: float | None = None
    places: tuple[str, ...] = ()

    def __str__(self) -> str:
        amount = "" if self.amount is None else f" × {self.amount:g}" if self.kind == "rate" else f" {self.amount:g}"
        return self.kind + amount + (f" at {', '.join(self.places[:4])}" if self.places else "")


@dataclass(frozen=True)
class Finding:
    """One problem or remark about a run, with its evidence, reason and advice.

    Findings that are caused by this one are listed in its ``consequences``.

    Attributes:
        severity: ``critical``, ``warning``, ``note`` or ``info``.
        site: the first affected site; "" for the whole model.
        what: the problem, in one sentence with the measured number.
        why: why it matters.
        advice: what to do.
        evidence: the measurements that support it.
        sites: all affected sites.
        rule: name of the rule that made the finding.
        vital: the vital sign in whose panel it is shown.
        since: the first step with the problem.
        until: the last step with the problem.
        null: what would be measured in a healthy network.
        refuted_by: a measurement that would refute it.
        remedy: machine-readable fix; None if there is none.
        consequences: findings that are caused by this one.

    >>> print(Finding("warning", "fc1", "Half of the units are dead.", advice="Lower the learning rate."))
    WARNING  Half of the units are dead.
      advice: Lower the learning rate.
    """

    severity: Severity
    site: str
    what: str
    why: str = ""
    advice: str = ""
    evidence: tuple[Evidence, ...] = ()
    sites: tuple[str, ...] = ()
    rule: str = ""
    vital: str = ""
    since: int | None = None
    until: int | None = None
    null: str = ""
    refuted_by: str = ""
    remedy: Remedy | None = None
    consequences: tuple[Finding, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise ValueError(f"severity must be one of {', '.join(SEVERITIES)}, got {self.severity!r}")
        if not self.sites and self.site:
            object.__setattr__(self, "sites", (self.site,))

    def __str__(self) -> str:
        lines = [f"{self.severity.upper()}  {self.what}{self.dated}"]
        lines += [f"  why: {self.why}"] if self.why else []
        lines += [f"  advice: {self.advice}"] if self.advice else []
        lines += [f"  seen: {'; '.join(map(str, self.evidence[:3]))}"] if self.evidence else []
        lines += [f"  → {c.what}{c.dated}" for c in self.below()]
        return "\n".join(lines)

    @property
    def dated(self) -> str:
        """Since when and until when, in brackets.

        >>> Finding("note", "", "A spike.", since=40, until=44).dated
        ' (steps 40 to 44)'
        """
        parts = []
        if self.since is not None:
            over = self.until is not None and self.until > self.since
            parts.append(f"steps {self.since} to {self.until}" if over else f"since step {self.since}")
        return f" ({', '.join(parts)})" if parts else ""

    def below(self) -> Iterator[Finding]:
        """All direct and indirect consequences of this finding."""
        for consequence in self.consequences:
            yield consequence
            yield from consequence.below()

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain values for JSON; :meth:`from_dict` converts them back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Finding:
        """A finding read back from :meth:`to_dict`.

        Args:
            record: plain values; keys that are unknown are ignored.
        """
        values = {key: record[key] for key in cls.__dataclass_fields__ if key in record}
        values["evidence"] = tuple(e if isinstance(e, Evidence) else Evidence(**e) for e in values.get("evidence", ()))
        values["sites"] = tuple(values.get("sites", ()))
        remedy = values.get("remedy")
        if isinstance(remedy, Mapping):
            values["remedy"] = Remedy(remedy["kind"], remedy.get("amount"), tuple(remedy.get("places", ())))
        values["consequences"] = tuple(
            c if isinstance(c, Finding) else cls.from_dict(c) for c in values.get("consequences", ())
        )
        return cls(**values)
