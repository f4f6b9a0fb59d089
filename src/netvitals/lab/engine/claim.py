"""What a paper says, and what became of it here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from netvitals.lab.engine.study import Config, Row
from netvitals.report.plot import Plot

Status = Literal["holds", "fails", "erratum", "not-run"]
Measured = float | str | None
Fact = float | int | str | Sequence[float] | Sequence[str] | None
STATUSES: tuple[Status, ...] = ("holds", "fails", "erratum", "not-run")


@dataclass(frozen=True)
class Expected:
    """A number with its tolerance, or a direction in words.

    >>> print(Expected(-0.5543, tolerance=1e-3)); print(Expected(direction="rises"))
    -0.5543 ± 0.001
    rises
    """

    value: float | None = None
    tolerance: float | None = None
    direction: str = ""

    def __post_init__(self) -> None:
        if (self.value is None) == (not self.direction):
            raise ValueError("expected: give a number with a tolerance, or a direction in words")

    def __str__(self) -> str:
        if self.value is None:
            return self.direction
        return f"{self.value:.10g}" + (f" ± {self.tolerance:g}" if self.tolerance is not None else "")


@dataclass(frozen=True)
class Verdict:
    """What was measured for a claim, and whether the claim stands.

    ``holds``: as the paper says. ``fails``: not as the paper says. ``erratum``: the paper's statement is wrong and the
    corrected one was checked. ``not-run``: no answer, with the reason in ``note``.
    """

    status: Status
    measured: Measured = None
    uncertainty: float | None = None
    note: str = ""
    seeds: int = 0
    scale: str = ""
    cost: float = 0.0  # seconds of computing behind it
    trials: int = 0  # finished trials behind it
    excluded: tuple[tuple[str, str], ...] = ()  # (trial, why)
    facts: Mapping[str, Fact] = field(default_factory=dict, hash=False)  # named numbers, worded where they are shown

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"a verdict is one of {', '.join(STATUSES)}, got {self.status!r}")
        for name in ("measured", "uncertainty"):
            value = getattr(self, name)
            if isinstance(value, float) and math.isnan(value):
                raise ValueError(f"a verdict cannot rest on {name} = NaN")

    @property
    def number(self) -> str:
        """The measured value with its uncertainty, as text."""
        if self.measured is None:
            return ""
        text = f"{self.measured:.6g}" if isinstance(self.measured, float) else str(self.measured)
        return text + (f" ± {self.uncertainty:.2g}" if self.uncertainty is not None else "")

    @property
    def words(self) -> str:
        """The note and the facts as one text.

        >>> holds(0.5, note="share of zeros", facts={"before": 0.25, "by layer": [0.4, 0.6]}).words
        'share of zeros; before 0.25; by layer 0.4, 0.6'
        """
        return "; ".join(filter(None, (self.note, *(f"{name} {worded(fact)}" for name, fact in self.facts.items()))))

    def __str__(self) -> str:
        parts = [self.status + (f": {self.number}" if self.number else "")]
        parts += [self.words] if self.words else []
        if self.trials:
            parts.append(
                f"{self.trials} trial{'s' * (self.trials != 1)}"
                + (f", {self.seeds} seed{'s' * (self.seeds != 1)}" if self.seeds else "")
                + f", {self.scale}"
            )
        parts += [f"{len(self.excluded)} excluded"] if self.excluded else []
        return "; ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Verdict:
        values = {k: record[k] for k in cls.__dataclass_fields__ if k in record}
        values["excluded"] = tuple((str(t), str(w)) for t, w in values.get("excluded", ()))
        return cls(**values)


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


@dataclass(frozen=True)
class Claim:
    """One statement of a paper that a study decides.

    Args:
        id: ``paper/name``, e.g. ``gate-density/C4``.
        study: name of the study whose rows decide it.
        statement: what the paper says, in our words.
        section: where it says so.
        expected: the paper's number or direction.
        judge: rows → verdict. Each row holds the values of its trial's configuration too.
        uses: configuration → does the claim rest on this trial; by default on all trials of the study.
        plot: rows → a picture for the claims page.
        paper: whose statement it is; by default the part of the id before the slash.
    """

    id: str
    study: str
    statement: str
    expected: Expected
    judge: Callable[[Sequence[Row]], Verdict]
    section: str = ""
    uses: Callable[[Config], bool] | None = None
    plot: Callable[[Sequence[Row]], Plot] | None = None
    paper: str = ""

    def __post_init__(self) -> None:
        if "/" not in self.id:
            raise ValueError(f"a claim's id is paper/name, got {self.id!r}")
        if not self.paper:
            object.__setattr__(self, "paper", self.id.split("/")[0])

    def rests_on(self, config: Config) -> bool:
        return self.uses is None or self.uses(config)


def holds(measured: Measured = None, uncertainty: float | None = None, note: str = "", **more: Any) -> Verdict:
    return Verdict("holds", measured, uncertainty, note, **more)


def fails(measured: Measured = None, uncertainty: float | None = None, note: str = "", **more: Any) -> Verdict:
    return Verdict("fails", measured, uncertainty, note, **more)


def erratum(measured: Measured = None, uncertainty: float | None = None, note: str = "", **more: Any) -> Verdict:
    """The paper's statement is wrong; ``measured`` is the corrected one's result and ``note`` says what is right."""
    return Verdict("erratum", measured, uncertainty, note, **more)


def not_run(reason: str) -> Verdict:
    return Verdict("not-run", note=reason)


def decide(
    ok: bool, measured: Measured = None, uncertainty: float | None = None, note: str = "", **more: Any
) -> Verdict:
    """``holds`` if ``ok``, else ``fails``."""
    return Verdict("holds" if ok else "fails", measured, uncertainty, note, **more)


def within(
    measured: float, expected: Expected, uncertainty: float | None = None, note: str = "", **more: Any
) -> Verdict:
    """``holds`` if the number lies within the tolerance of the expected one.

    >>> print(within(0.5001, Expected(0.5, tolerance=1e-3)))
    holds: 0.5001
    """
    if expected.value is None or expected.tolerance is None:
        raise ValueError(f"within: the expectation {expected} has no number with a tolerance")
    gap = abs(measured - expected.value) if measured != expected.value else 0.0  # equal infinities agree
    return decide(gap <= expected.tolerance, float(measured), uncertainty, note, **more)
