"""A finding: what was noticed, where, why it matters and what to do, with the measurements that support it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Severity = Literal["info", "note", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "note", "info")  # the most severe first
SHOWN = 3  # consequences of a finding that are printed


@dataclass(frozen=True)
class Evidence:
    """A measurement that supports a finding: one series, one step, and the value at this step.

    Attributes:
        vital: name of the vital sign, ``gates``.
        site: the place where it was measured.
        metric: name of the number, ``density@0.01``.
        step: the training step.
        value: the value at this step.
        before: the value at the start of the window, if the finding is about a change.

    >>> print(Evidence("gates", "3", "density@0.01", step=400, value=0.1, before=0.6))
    gates/density@0.01 of layer 3: 0.6 → 0.1 (step 400)
    """

    vital: str
    site: str
    metric: str
    step: int
    value: float
    before: float | None = None

    def __str__(self) -> str:
        name, digits = f"{self.vital}/{self.metric}", self.site.replace(".", "").isdigit()
        change = f"{self.before:.4g} → {self.value:.4g}" if self.before is not None else f"{self.value:.4g}"
        return f"{name} of {'layer ' * digits}{self.site or 'the model'}: {change} (step {self.step})"


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

    >>> print(Finding("warning", "fc1", "Half of the units are dead.", advice="Set lr=0.003 (now 0.01)."))
    WARNING  Half of the units are dead.
      fix: Set lr=0.003 (now 0.01).
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
            raise ValueError(f"severity= must be one of {', '.join(SEVERITIES)}, got {self.severity!r}")
        if not self.sites and self.site:
            object.__setattr__(self, "sites", (self.site,))

    def __str__(self) -> str:
        lines = [f"{self.severity.upper()}  {self.what}{self.dated}"]
        lines += [f"  why: {self.why}"] if self.why else []
        lines += [f"  fix: {self.advice}"] if self.advice else []
        lines += [f"  measured: {'; '.join(map(str, self.evidence[:3]))}"] if self.evidence else []
        return "\n".join([*lines, *(f"  {line}" for line in self.effects())])

    def brief(self) -> str:
        """Return problem and advice in short, for a finding that is shown below more severe ones."""
        return f"{self.severity.upper()}  {self.what}{self.dated}" + (f"\n  fix: {self.advice}" if self.advice else "")

    def effects(self) -> list[str]:
        """Return at most three critical findings or warnings caused by this one, and the names of its other
        consequences.

        >>> below = (Finding("warning", "", "Layer 1 is dead."), Finding("note", "", "A spike.", rule="spikes"))
        >>> Finding("critical", "", "The learning rate is too high.", consequences=below).effects()
        ['→ Layer 1 is dead.', '→ possibly related: spikes']
        """
        below = sorted(self.below(), key=lambda f: SEVERITIES.index(f.severity))
        shown = [f for f in below if f.severity in ("critical", "warning")][:SHOWN]
        rest = dict.fromkeys(f.rule for f in below if f.rule and f.rule not in {s.rule for s in shown})
        lines = [f"→ {f.what}{f.dated}" for f in shown]
        return lines + [f"→ possibly related: {', '.join(rest)}"] * bool(rest)

    @property
    def dated(self) -> str:
        """Since when and until when, in brackets; nothing for what holds from the first step on.

        >>> Finding("note", "", "A spike.", since=40, until=44).dated
        ' (steps 40 to 44)'
        """
        if self.since is None:
            return ""
        if self.until is not None and self.until > self.since:
            return f" (steps {self.since} to {self.until})"
        return f" (since step {self.since})" if self.since else ""

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
