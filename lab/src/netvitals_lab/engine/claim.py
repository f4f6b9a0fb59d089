"""What a paper says: the statement, its effect and tolerance, and what a verdict on it rests on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from netvitals._plot import Plot
from netvitals_lab.engine.study import Config, Row
from netvitals_lab.engine.verdict import Value, Verdict, erratum, fails, holds

PAIRS = 5  # paired seeds that a comparison needs
Whose = Literal["paper", "correction", "ours"]
WHOSE: dict[Whose, str] = {
    "paper": "the paper says so, at the place that is named",
    "correction": "the corrected form of what the paper says there",
    "ours": "the paper does not say so",
}


@dataclass(frozen=True)
class Expected:
    """A number with its tolerance, or a direction in words, with its test where a number alone decides.

    >>> print(Expected(-0.5543, tolerance=1e-3)); print(Expected(direction="rises"))
    -0.5543 ± 0.001
    rises
    """

    value: float | None = None
    tolerance: float | None = None
    direction: str = ""
    test: Callable[[float], bool] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if (self.value is None) == (not self.direction):
            raise ValueError("expected: give a number with a tolerance, or a direction in words")

    def __str__(self) -> str:
        if self.value is None:
            return self.direction
        return f"{self.value:.10g}" + (f" ± {self.tolerance:g}" if self.tolerance is not None else "")

    def admits(self, measured: Value) -> bool:
        """Whether a number is as expected.

        >>> Expected(0.5, tolerance=0.01).admits(0.52), at_most(0.1).admits(0.1)
        (False, True)
        """
        if isinstance(measured, str) or measured is None or (self.test is None and self.tolerance is None):
            raise ValueError(f"“{self}” does not decide on {measured!r}: say ok= with what was measured")
        if self.test is not None:
            return self.test(measured)
        return measured == self.value or abs(measured - (self.value or 0.0)) <= (self.tolerance or 0.0)


def at_most(limit: float, words: str = "") -> Expected:
    return Expected(direction=words or f"at most {limit:g}", test=lambda v: v <= limit)


def below(limit: float, words: str = "") -> Expected:
    return Expected(direction=words or f"below {limit:g}", test=lambda v: v < limit)


def at_least(limit: float, words: str = "") -> Expected:
    return Expected(direction=words or f"at least {limit:g}", test=lambda v: v >= limit)


def above(limit: float, words: str = "") -> Expected:
    return Expected(direction=words or f"above {limit:g}", test=lambda v: v > limit)


def between(low: float, high: float, words: str = "") -> Expected:
    return Expected(direction=words or f"between {low:g} and {high:g}", test=lambda v: low <= v <= high)


@dataclass(frozen=True)
class Measured:
    """What a claim's function returns: a number and what is said beside it.

    The claim's expectation decides on the number. Where more than the number decides, ``ok`` does; a statement that is
    wrong as printed is an erratum where ``right`` says that the corrected one was checked.
    """

    value: Value = None
    note: str = ""
    stderr: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)
    ok: bool | None = None
    right: bool = False
    otherwise: str = ""  # the note where neither the printed statement nor the corrected one stands
    seeds: int = 0
    interval: tuple[float, float] | None = None

    def verdict(self, expected: Expected) -> Verdict:
        """
        >>> print(Measured(0.2, "gap").verdict(at_most(0.1)))
        fails: 0.2; gap
        >>> print(Measured(0.2, "right is 2λ", ok=False, right=True).verdict(at_most(0.1)))
        erratum: 0.2; right is 2λ
        """
        more: dict[str, Any] = {"facts": dict(self.facts), "seeds": self.seeds, "interval": self.interval}
        if expected.admits(self.value) if self.ok is None else self.ok:
            return holds(self.value, self.stderr, self.note, **more)
        if self.right:
            return erratum(self.value, self.stderr, self.note, **more)
        return fails(self.value, self.stderr, self.otherwise or self.note, **more)


@dataclass(frozen=True)
class Claim:
    """One statement that a study decides.

    ``whose`` it is, its ``place`` in the paper, why a set-up of ours ``decides`` it, and, of a headline claim, the
    set-up in a few words: for the papers' own folders these four stand in ``statements.csv``. ``single`` judges one
    set-up or one level of a factor, where ``judge`` asks all of them.
    """

    id: str
    study: str
    statement: str
    expected: Expected
    judge: Callable[[Sequence[Row]], Verdict]
    uses: Callable[[Config], bool] | None = None
    plot: Callable[[Sequence[Row]], Plot] | None = None
    paper: str = ""
    whose: Whose = "ours"
    place: str = ""
    decides: str = ""
    headline: str = ""
    effect: str = ""
    seeds: int = 0
    choices: tuple[str, ...] = ()
    question: str = ""
    correction: str = ""
    single: Callable[[Sequence[Row]], Verdict] | None = None

    def __post_init__(self) -> None:
        if "/" not in self.id:
            raise ValueError(f"a claim's id is paper/name, got {self.id!r}")
        if not self.paper:
            object.__setattr__(self, "paper", self.id.split("/")[0])
        if self.whose not in WHOSE:
            raise ValueError(f"claim {self.id}: whose is one of {', '.join(WHOSE)}, got {self.whose!r}")
        if self.whose != "ours" and not self.place:
            raise ValueError(
                f"claim {self.id}: what is the paper's, or corrects it, names its section, table or equation"
            )

    def rests_on(self, config: Config) -> bool:
        return self.uses is None or self.uses(config)

    @property
    def command(self) -> str:
        """What makes its verdict again."""
        return f"netvitals reproduce --claim {self.id}"
