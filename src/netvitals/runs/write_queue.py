"""What waits to be written: measurements in columns, arrays, notes and findings, made storable as they come."""

from __future__ import annotations

import itertools
import json
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from netvitals.capture import ArrayMeasurement, Measurement, StepColumns, plain
from netvitals.runs.checksum import LONGEST_RECORD

LARGEST, SMALLEST = 2**63 - 1, -(2**63)  # what a step on disk can be
REMARKS_KEPT = 20  # sentences about replaced values, per run

Key = tuple[str, str, str]


@dataclass
class Columns:
    """Measurements as a commit wants them: plain numbers beside the names of their series."""

    steps: np.ndarray
    keys: Sequence[Key]
    values: np.ndarray
    layout: Any = None  # equal for pages of one layout, so that their series are looked up once

    @classmethod
    def of_page(cls, page: StepColumns) -> Columns:
        step, remarks = _step(page.step)
        if remarks:
            page = replace(page, step=step)
        return cls(np.full(len(page.values), step, np.int64), _Names(page), page.values, page.layout)

    def __len__(self) -> int:
        return len(self.values)


class _Names(Sequence[Key]):
    """The names of a page, listed only when its layout is new."""

    def __init__(self, page: StepColumns) -> None:
        self._page = page

    def __len__(self) -> int:
        return len(self._page.values)

    def __getitem__(self, index: Any) -> Any:
        return list(self._page.names())[index]

    def __iter__(self) -> Any:
        return self._page.names()


@dataclass
class Pending:
    """Everything handed over since the last commit."""

    columns: list[Columns] = field(default_factory=list)
    arrays: list[ArrayMeasurement] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    forecasts: list[str] = field(default_factory=list)
    replace_findings: bool = False
    held: int = 0  # measurements and array elements

    def __bool__(self) -> bool:
        waiting = (self.held, self.notes, self.findings, self.replace_findings, self.columns, self.arrays)
        return any(map(bool, waiting)) or bool(self.forecasts)

    def before(self, later: Pending) -> Pending:
        """This and what came after it, as one: for a commit that is tried again."""
        replaced = later.replace_findings
        return Pending(
            columns=self.columns + later.columns,
            arrays=self.arrays + later.arrays,
            notes={**self.notes, **later.notes},
            findings=later.findings if replaced else self.findings + later.findings,
            forecasts=self.forecasts + later.forecasts,
            replace_findings=self.replace_findings or replaced,
            held=self.held + later.held,
        )

    def parts(self) -> list[Pending]:
        """The same, one thing at a time: to find the one that cannot be stored."""
        return [
            *(Pending(columns=[c], held=len(c)) for c in self.columns),
            *(Pending(arrays=[a], held=a.value.size) for a in self.arrays),
            *(Pending(notes={key: value}) for key, value in self.notes.items()),
            *([Pending(findings=self.findings, replace_findings=True)] if self.replace_findings else ()),
            *(Pending(findings=[f]) for f in ([] if self.replace_findings else self.findings)),
            *(Pending(forecasts=[f]) for f in self.forecasts),
        ]


def storable(measurements: Iterable[Measurement]) -> tuple[Columns, list[str]]:
    """Measurements in columns, and a sentence for each value that had to be replaced.

    >>> odd = [Measurement(np.int64(3), "v", "s", "m", 1), Measurement(2**63, "v", "s", "m", "x")]
    >>> columns, remarks = storable(odd)
    >>> columns.steps.tolist(), columns.values.tolist(), len(remarks)
    ([3, 9223372036854775807], [1.0, nan], 2)
    """
    rows = list(measurements)
    keys = [(r[1], r[2], r[3]) for r in rows]
    try:
        if all(type(r[0]) is int for r in rows):
            steps = np.fromiter((r[0] for r in rows), np.int64, len(rows))
            return Columns(steps, keys, np.fromiter((r[4] for r in rows), np.float64, len(rows))), []
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass  # one at a time, below
    remarks: list[str] = []
    numbers, values = [], []
    for step, _, site, metric, value in rows:
        number, remark = _step(step)
        remarks += remark
        numbers.append(number)
        try:
            values.append(float(value))
        except Exception:
            values.append(float("nan"))
            remarks.append(f"{metric} at {site} was a {type(value).__name__} and no number: kept as NaN")
    return Columns(np.array(numbers, np.int64), keys, np.array(values, np.float64)), remarks


def storable_array(array: ArrayMeasurement) -> tuple[ArrayMeasurement, list[str]]:
    """An array reading that can be stored; what holds no numbers is refused at once."""
    value = np.asarray(array.value)
    if value.dtype.kind not in "biufc":
        raise TypeError(
            f"the array {array.vital}/{array.metric} at {array.site} must contain numbers, got dtype {value.dtype}"
        )
    step, remarks = _step(array.step)
    return replace(array, value=value, step=step), remarks


def text(name: Any) -> str:
    """A name as UTF-8 can hold it: half a surrogate pair is written out.

    >>> text("layer\\ud800"), text(None)
    ('layer\\\\ud800', 'None')
    """
    return str(name).encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")


def as_json(value: Any) -> str:
    """JSON as Python reads it back: NaN and infinities stay what they are; what JSON cannot hold becomes its text."""
    try:
        found = json.dumps(value if _is_plain(value) else plain(value, odd=float))
        return (
            found if len(found) <= LONGEST_RECORD else json.dumps(f"a {type(value).__name__} that is too long to keep")
        )
    except Exception:
        try:
            return json.dumps(text(repr(value)))
        except Exception:  # not even a repr
            return json.dumps(f"a {type(value).__name__} that cannot be written")


def _is_plain(value: Any) -> bool:
    """Nothing but what JSON has, two levels deep: most of what is written by the hundred."""
    simple = (str, int, float, bool, type(None))
    return type(value) is dict and all(
        type(k) is str
        and (type(v) in simple or (type(v) in (dict, list, tuple) and all(type(one) in simple for one in _parts(v))))
        for k, v in value.items()
    )


def _parts(value: Any) -> Iterator[Any]:
    return itertools.chain(value.keys(), value.values()) if type(value) is dict else iter(value)


def _step(step: Any) -> tuple[int, list[str]]:
    try:
        number = operator.index(step)
    except TypeError:
        try:
            number = int(step)
        except Exception:
            return -1, [f"step {text(step)[:40]!r} is no number: kept as -1"]
        if number != step:
            return _bounded(number)[0], [f"step {text(step)[:40]} is no whole number: kept as {number}"]
    return _bounded(number)


def _bounded(number: int) -> tuple[int, list[str]]:
    if SMALLEST <= number <= LARGEST:
        return number, []
    kept = LARGEST if number > 0 else SMALLEST
    return kept, [f"a step of {number:.3g} is beyond 64 bits: kept as {kept}"]
