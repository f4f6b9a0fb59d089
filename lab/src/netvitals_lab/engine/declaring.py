"""One way to declare a claim: a function whose docstring is what the paper says, and whose body is what was measured.

    claim = Claims("saddle-escape", study=NAME)

    @claim("C13", at_most(0.1), uses={"check": "expansion"})
    def remainder_order(rows):
        "The remainder is of order min(L+q−2, 2L−1)"
        return Measured(max(column(rows, "order gap")), "largest gap of the order for tanh")

The decorator says which claim it is, what is expected, and which trials it rests on. The function returns a number with
what is said beside it, on which the expectation decides, or a verdict where the answer is neither yes nor no.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from netvitals_lab.engine.claim import Claim, Expected, Measured
from netvitals_lab.engine.judges.factors import Judge, by_factor
from netvitals_lab.engine.judges.rows import matches
from netvitals_lab.engine.judges.setups import Setup, over_setups
from netvitals_lab.engine.study import Config, Row
from netvitals_lab.engine.verdict import Verdict, not_run

Measurement = Callable[[Sequence[Row]], float | Measured | Verdict]


class Claims:
    """The claims of a study, in the order in which they are declared; what they share is said once.

    >>> claim = Claims("toy", "coins")
    >>> @claim("C1", Expected(0.5, tolerance=0.01))
    ... def fair(rows):
    ...     '''The coin is fair
    ...
    ...     What stands below the statement is ours.'''
    ...     return sum(row["heads"] for row in rows) / len(rows)
    >>> fair.id, fair.statement, str(fair.judge([{"heads": 0.503}]))
    ('toy/C1', 'The coin is fair', 'holds: 0.503')
    """

    def __init__(self, paper: str, study: str, **common: Any) -> None:
        self.paper, self.common = paper, {"study": study, **common}
        self.declared: list[Claim] = []

    def __iter__(self) -> Iterator[Claim]:
        return iter(self.declared)

    def __call__(self, number: str, expected: Expected | str, **options: Any) -> Callable[[Measurement], Claim]:
        """Declares the claim ``paper/number``.

        Args:
            number: its name in the paper.
            expected: a number with its tolerance, a limit (``at_most(0.1)``), or words; with words alone the function
                says ``ok``.
            **options: fields of :class:`Claim`, and
                ``uses``: what a configuration holds on which it rests, or a function that says so;
                ``statement``: where the docstring cannot be it;
                ``factor``: a name in the rows, at each level of which it is asked;
                ``setups``: rows → rows by set-up that the text admits, with ``printed``, the paper's number;
                ``obstacle``: rows → why they are too few for a verdict, empty where they are not.
        """
        expectation = Expected(direction=expected) if isinstance(expected, str) else expected
        options = {**self.common, **options}

        def declare(measure: Measurement) -> Claim:
            claim = _made(f"{self.paper}/{number}", expectation, measure, **options)
            self.declared.append(claim)
            return claim

        return declare


def declared_in(module: ModuleType) -> list[Claim]:
    """The claims of every :class:`Claims` of a module, in their order."""
    return [claim for value in vars(module).values() if isinstance(value, Claims) for claim in value]


def _made(
    id: str,
    expected: Expected,
    measure: Measurement,
    *,
    statement: str = "",
    uses: Mapping[str, Any] | Callable[[Config], bool] | None = None,
    factor: str = "",
    setups: Callable[[Sequence[Row]], Mapping[Setup, Sequence[Row]]] | None = None,
    printed: float | None = None,
    obstacle: Callable[[Sequence[Row]], str] | None = None,
    **fields: Any,
) -> Claim:
    def answer(rows: Sequence[Row]) -> Verdict:
        if obstacle is not None and (why := obstacle(rows)):
            return not_run(why)
        found = measure(rows)
        if isinstance(found, Verdict):
            return found
        return (found if isinstance(found, Measured) else Measured(found)).verdict(expected)

    judge: Judge = answer
    if setups is not None:
        judge = over_setups(judge, setups, expected.value if printed is None else printed)
    if factor:
        judge = by_factor(judge, factor)
    statement = statement or " ".join((measure.__doc__ or "").strip().split("\n\n")[0].split())
    if not statement:
        raise ValueError(f"claim {id}: the docstring of its function is the statement, and there is none")
    return Claim(
        id=id,
        statement=statement,
        expected=expected,
        judge=judge,
        single=answer,
        uses=matches(**uses) if isinstance(uses, Mapping) else uses,
        **fields,
    )
