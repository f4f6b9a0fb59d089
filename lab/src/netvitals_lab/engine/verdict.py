"""What became of a claim: eight verdicts, each with what it cannot do without."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal["holds", "reproduced", "fails", "erratum", "not-reproduced", "underspecified", "not-judged", "not-run"]
Value = float | str | None
Fact = float | int | str | Sequence[float] | Sequence[str] | None

LABELS: dict[Status, str] = {
    "holds": "holds",
    "reproduced": "reproduced at this scale",
    "fails": "fails",
    "erratum": "erratum",
    "not-reproduced": "not reproduced at this scale",
    "underspecified": "underspecified",
    "not-judged": "cannot be judged",
    "not-run": "not run",
}
MEANINGS: dict[Status, str] = {
    "holds": "as the paper says: in its own set-up, in all that its text admits, or for a stated reason in ours",
    "reproduced": "as the paper says in a set-up of ours, which does not decide it",
    "fails": "measured with enough power, in the paper's own terms or in every set-up that its text admits, and not so",
    "erratum": "the statement is wrong for a stated reason, and the corrected one was checked",
    "not-reproduced": "not seen at the size that was run here; the verdict says which effect would have been seen",
    "underspecified": "true in some of the set-ups that the paper's text admits and not in others",
    "not-judged": "what was measured cannot tell, and the verdict says why",
    "not-run": "there is no measurement yet",
}
STATUSES: tuple[Status, ...] = tuple(LABELS)
JUDGED: tuple[Status, ...] = STATUSES[:6]
FINAL: tuple[Status, ...] = ("holds", "fails", "erratum")  # about the paper, not about a set-up of ours


@dataclass(frozen=True)
class Verdict:
    """What was measured for a claim, and whether the claim stands.

    A verdict brings what it cannot do without: ``erratum`` the corrected statement, ``not-reproduced`` the smallest
    effect that the test would have seen, ``underspecified`` the range over the set-ups, ``not-judged`` and ``not-run``
    the reason.
    """

    status: Status
    measured: Value = None
    uncertainty: float | None = None
    note: str = ""
    seeds: int = 0
    scale: str = ""
    cost: float = 0.0  # seconds of computing behind it
    trials: int = 0  # finished trials behind it
    excluded: tuple[tuple[str, str], ...] = ()  # (trial, why)
    facts: Mapping[str, Fact] = field(default_factory=dict, hash=False)  # named numbers, worded where they are shown
    correction: str = ""  # of an erratum: what is right
    power: float | None = None  # smallest effect that would have been seen in four of five repetitions
    power_in: str = ""  # its unit, where that is not the one of ``measured``
    interval: tuple[float, float] | None = None  # 95 % of what was measured
    span: tuple[float, float] | None = None  # least and most over the set-ups that the paper admits
    setups: tuple[int, int] | None = None  # in how many of the set-ups that the paper admits it is as printed
    commit: str = ""  # of the code that was run, where it is known
    data: tuple[str, ...] = ()  # names of the data behind it, where its trials name any

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"a verdict is one of {', '.join(STATUSES)}, got {self.status!r}")
        for name in ("measured", "uncertainty", "power"):
            value = getattr(self, name)
            if isinstance(value, float) and math.isnan(value):
                raise ValueError(f"a verdict cannot rest on {name} = NaN")
        needs = {
            "erratum": (self.correction or self.note, "the corrected statement"),
            "not-reproduced": (self.power is not None, "power: the smallest effect that would have been seen"),
            "underspecified": (self.span is not None, "span: the range over the set-ups"),
            "not-judged": (self.note, "a note that says why"),
            "not-run": (self.note, "a note that says why"),
        }
        there, what = needs.get(self.status, (True, ""))
        if not there:
            raise ValueError(f"the verdict {self.status} needs {what}")

    @property
    def label(self) -> str:
        """The status in words."""
        return LABELS[self.status]

    @property
    def number(self) -> str:
        """The measured value with its uncertainty or interval, as text.

        >>> holds(0.5, interval=(0.4, 0.6)).number
        '0.5 [0.4, 0.6]'
        """
        if self.measured is None:
            return ""
        text = f"{self.measured:.6g}" if isinstance(self.measured, float) else str(self.measured)
        if self.interval is not None:
            return f"{text} [{self.interval[0]:.3g}, {self.interval[1]:.3g}]"
        return text + (f" ± {self.uncertainty:.2g}" if self.uncertainty is not None else "")

    @property
    def words(self) -> str:
        """The note, what the status brings, and the facts, as one text.

        >>> holds(0.5, note="share of zeros", facts={"before": 0.25, "by layer": [0.4, 0.6]}).words
        'share of zeros; before 0.25; by layer 0.4, 0.6'
        >>> underspecified((0.1, 0.9), note="IoU by kernel").words
        'IoU by kernel; from 0.1 to 0.9 over the set-ups'
        >>> fails(0.2, note="IoU", setups=(0, 24)).words
        'IoU; as printed in 0 of 24 set-ups'
        """
        brought = (
            f"right is: {self.correction}" if self.correction and self.correction != self.note else "",
            f"{_effect(self.power, self.power_in)} would have been seen" if self.power is not None else "",
            f"as printed in {self.setups[0]} of {self.setups[1]} set-ups" if self.setups else "",
            f"from {self.span[0]:.3g} to {self.span[1]:.3g} over the set-ups" if self.span else "",
        )
        facts = (f"{name} {worded(fact)}" for name, fact in self.facts.items())
        return "; ".join(filter(None, (self.note, *brought, *facts)))

    def __str__(self) -> str:
        parts = [self.label + (f": {self.number}" if self.number else "")]
        parts += [self.words] if self.words else []
        if self.trials:
            parts.append(
                f"{self.trials} trial{'s' * (self.trials != 1)}"
                + (f", {self.seeds} seed{'s' * (self.seeds != 1)}" if self.seeds else "")
                + f", {self.scale}"
                + (f", data {', '.join(self.data)}" if self.data else "")
            )
        parts += [f"{len(self.excluded)} excluded"] if self.excluded else []
        return "; ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Verdict:
        """A verdict as it was stored, also by an older netvitals."""
        values = {k: record[k] for k in cls.__dataclass_fields__ if k in record}
        values["excluded"] = tuple((str(t), str(w)) for t, w in values.get("excluded", ()))
        values["data"] = tuple(values.get("data", ()))
        for name in ("interval", "span"):
            if values.get(name) is not None:
                values[name] = (float(values[name][0]), float(values[name][1]))
        if values.get("setups") is not None:
            values["setups"] = (int(values["setups"][0]), int(values["setups"][1]))
        return cls(**values)


def _effect(power: float, unit: str) -> str:
    return f"an effect of {power:.2g}" + (f" {unit}" if unit else "")


def worded(fact: Fact) -> str:
    """A fact as text: numbers to three digits, several of them in a row.

    >>> worded(0.123456), worded([1, 2.0]), worded(None), worded("never")
    ('0.123', '1, 2', 'none', 'never')
    """
    if fact is None:
        return "none"
    if isinstance(fact, str):
        return fact
    return f"{fact:.3g}" if isinstance(fact, float | int) else ", ".join(worded(part) for part in fact)


def holds(measured: Value = None, uncertainty: float | None = None, note: str = "", **more: Any) -> Verdict:
    return Verdict("holds", measured, uncertainty, note, **more)


def fails(measured: Value = None, uncertainty: float | None = None, note: str = "", **more: Any) -> Verdict:
    return Verdict("fails", measured, uncertainty, note, **more)


def erratum(measured: Value = None, uncertainty: float | None = None, note: str = "", **more: Any) -> Verdict:
    """The statement is wrong; ``measured`` is of the corrected one, which ``correction`` (or the note) says."""
    return Verdict("erratum", measured, uncertainty, note, **more)


def not_reproduced(measured: Value, power: float, note: str = "", **more: Any) -> Verdict:
    """Not seen at this size; ``power`` is the smallest effect that would have been."""
    return Verdict("not-reproduced", measured, note=note, power=power, **more)


def underspecified(span: tuple[float, float], measured: Value = None, note: str = "", **more: Any) -> Verdict:
    """The answer depends on what the paper leaves open; ``span`` is its range over the set-ups."""
    return Verdict("underspecified", measured, note=note, span=(float(span[0]), float(span[1])), **more)


def not_judged(reason: str, **more: Any) -> Verdict:
    """What was measured cannot tell."""
    return Verdict("not-judged", note=reason, **more)


def not_run(reason: str) -> Verdict:
    return Verdict("not-run", note=reason)


def decide(ok: bool, measured: Value = None, uncertainty: float | None = None, note: str = "", **more: Any) -> Verdict:
    """``holds`` if ``ok``, else ``fails``."""
    return Verdict("holds" if ok else "fails", measured, uncertainty, note, **more)
