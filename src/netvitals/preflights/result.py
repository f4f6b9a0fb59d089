"""What a preflight says: one check for each question, with what was measured and a line of code for the fix."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from netvitals._help import hint
from netvitals.capture import Result
from netvitals.checks import ANSWERS, Answer, Check

RATES = "learning-rate range"


@dataclass(frozen=True)
class PreflightCheck(Check):
    """One question of a preflight and its answer.

    Part of :class:`Preflight`.

    Attributes:
        measured: what was measured, in words and numbers.
        healthy: the range in which the check passes.
        cost: what it took.
        fix: a line of code, or what to change, where it failed.
    """

    measured: str = ""
    healthy: str = ""
    cost: str = ""
    fix: str = ""

    def __str__(self) -> str:
        words = self.measured or self.why
        return f"{self.question} {self.status}" + (f": {words}" if words else "")


@dataclass(frozen=True)
class RateRange:
    """Short trainings of copies at several learning rates, on the same batches.

    Part of :class:`Preflight`.

    Attributes:
        rates: of the first parameter group.
        losses: the mean loss of the last steps at each rate; NaN where it was not finite.
        start: the mean loss of the same batches without training.
        yours: the rate of the optimizer that was given.
        low: below it copies hardly learn; None where all do.
        high: from it on copies diverge; None where none does.
        steps: of each training.
    """

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    start: float
    yours: float
    low: float | None
    high: float | None
    steps: int


@dataclass(frozen=True, repr=False)
class Preflight(Result):
    """The result of a preflight: all checks that were made before training; made by :func:`netvitals.preflight`.

    Returned by :func:`netvitals.preflight`.

    Attributes:
        model: class name of the model.
        checks: every check, failures first.
        batches: how many batches were read.
        note: what could not be put back, such as batches taken from an iterator.
        seconds: how long it took.
        step_seconds: how long one training step takes.
        rates: the learning-rate range; None where it could not be measured.
        features: mean and standard deviation of the features or channels of the first input.
        skipped: what could not be measured → reason.
    """

    model: str
    checks: tuple[PreflightCheck, ...]
    batches: int
    note: str = ""
    seconds: float = 0.0
    step_seconds: float = 0.0
    rates: RateRange | None = None
    features: tuple[tuple[float, float], ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[PreflightCheck]:
        return iter(self.checks)

    def __getitem__(self, name: str) -> PreflightCheck:
        found = next((c for c in self.checks if c.name == name), None)
        if found is None:
            raise KeyError(f"there is no check {name!r}; there are {', '.join(c.name for c in self.checks)}")
        return found

    @property
    def failed(self) -> tuple[PreflightCheck, ...]:
        """The checks that failed, the most decisive first."""
        return tuple(c for c in self.checks if c.status == "failed")

    @property
    def counts(self) -> dict[Answer, int]:
        """How many checks have which status."""
        counted = Counter(c.status for c in self.checks)
        return {answer: counted[answer] for answer in ANSWERS}

    def raise_for_failures(self) -> Preflight:
        """Raise ``PreflightFailed`` if a check failed; else return the result itself."""
        if self.failed:
            raise PreflightFailed(self, hint("preflight-failed"))
        return self

    def to_html(self, path: str | os.PathLike[str]) -> os.PathLike[str]:
        """Write the result as one HTML page that opens offline, and return its path.

        Args:
            path: the HTML file; a folder gets ``preflight.html``.
        """
        from netvitals.preflights.page import page
        from netvitals.report import write_html

        return write_html(page(self), path, "preflight.html")

    def to_junit(self) -> str:
        """Return all checks as JUnit XML, with one test case per check."""
        from xml.sax.saxutils import quoteattr

        counts = self.counts
        skipped = counts["not applicable"] + counts["not enough data"]
        lines = [
            '<?xml version="1.0" encoding="utf-8"?>',
            f'<testsuite name="netvitals preflight" tests="{len(self.checks)}" failures="{counts["failed"]}" '
            f'skipped="{skipped}" time="{self.seconds:.2f}">',
        ]
        for check in self.checks:
            head = f"  <testcase classname={quoteattr(self.model)} name={quoteattr(check.name)}"
            if check.status == "failed":
                text = quoteattr(f"{check.measured} {check.fix}".strip())
                lines.append(f"{head}><failure message={text}/></testcase>")
            elif check.status == "passed":
                lines.append(f"{head}/>")
            else:
                lines.append(f"{head}><skipped message={quoteattr(f'{check.status}: {check.why}')}/></testcase>")
        return "\n".join([*lines, "</testsuite>", ""])

    def _repr_html_(self) -> str:
        from netvitals.preflights.page import fragment

        return fragment(self)

    def __repr__(self) -> str:
        return f"Preflight({self.model}, {', '.join(f'{n} {answer}' for answer, n in self.counts.items() if n)})"

    def __str__(self) -> str:
        tally = ", ".join(f"{n} {answer}" for answer, n in self.counts.items())
        lines = [
            f"Preflight of {self.model}: {tally}",
            f"  {self.batches} batches, {self.seconds:.1f} s" + (f"; {self.note}" if self.note else ""),
        ]
        for check in self.failed:
            lines.append(f"FAILED  {check.name}: {check.measured}")
            if check.healthy and not check.healthy.startswith("exact"):
                lines.append(f"        healthy: {check.healthy}")
            if check.why:
                lines.append(f"        why: {check.why}")
            if check.fix:
                lines.append(f"        fix: {check.fix}")
        for answer in ANSWERS[1:]:
            some = [c for c in self.checks if c.status == answer]
            if answer == "passed":
                lines += [f"passed  {c.name}: {c.measured}" for c in some if c.measured]
                some = [c for c in some if not c.measured]
            if some:
                lines.append(f"{answer}: {', '.join(c.name for c in some)}")
        return "\n".join(lines)


class PreflightFailed(AssertionError):
    """A check before training failed; ``result`` has all of them.

    Args:
        result: the checks.
        hint: where to read more.

    >>> failed = PreflightFailed(Preflight(model="Net", checks=(), batches=1), "")
    >>> failed.result.model
    'Net'
    """

    def __init__(self, result: Preflight, hint: str) -> None:
        super().__init__(f"{len(result.failed)} of {len(result.checks)} checks failed {hint}\n{result}")
        self.result = result
