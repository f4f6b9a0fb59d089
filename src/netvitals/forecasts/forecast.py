"""A forecast: a number with a date, two intervals and its conditions, stored before its day comes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Interval = tuple[float, float]
NOTHING: Interval = (math.nan, math.nan)
LOOKAHEAD = " by look-ahead"


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a quantity will be at a step, or at which step something will happen.

    Args:
        quantity: vital sign and metric (``gates/density@0.01``), or an event (``plateau/drop@0.5``).
        site: where; ``model`` for the whole.
        made_at: the step at which it was made.
        for_step: the day it is scored on; for an event the last day of its 80 % interval.
        value: the number; for an event the step. NaN where it is refused.
        interval50: holds the truth half of the time.
        interval80: holds it four times in five.
        method: a law by its name, ``relaxation``, ``statistics``, ``lines``, ``look-ahead``, ``unchanged``.
        horizon: the kind of date: ``10 %`` … ``100 %`` of what has passed, ``end``, or ``event``.
        conditions: what the law takes for granted, and what was found of it on this network.
        refused: why there is none, in words; empty where there is one.
        naive: what would be said without any law: ``unchanged``, ``goes on``, ``per step``, ``per learning rate``.

    >>> print(Forecast(quantity="gates/density@0.01", site="act", made_at=100, for_step=200, value=0.5,
    ...                interval50=(0.48, 0.52), interval80=(0.45, 0.55), method="relaxation"))
    gates/density@0.01 at act: 0.5 at step 200 (80 % interval 0.45 to 0.55; relaxation, made at step 100)
    """

    quantity: str
    site: str
    made_at: int
    for_step: int
    value: float = math.nan
    interval50: Interval = NOTHING
    interval80: Interval = NOTHING
    method: str = ""
    horizon: str = ""
    conditions: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""
    naive: Mapping[str, float] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        return not self.refused

    @property
    def is_event(self) -> bool:
        return self.horizon == "event"

    @property
    def judged_as(self) -> str:
        """The quantity; what a copy told of it is judged by itself."""
        return self.quantity + LOOKAHEAD * (self.method == "look-ahead")

    def __str__(self) -> str:
        if self.refused:
            return f"{self.quantity} at {self.site}: no forecast at step {self.made_at}: {self.refused}"
        low, high = self.interval80
        if self.is_event:
            return (
                f"{self.quantity} at {self.site}: near step {self.value:.0f} (80 % interval {low:.0f} to {high:.0f}; "
                f"{self.method}, made at step {self.made_at})"
            )
        return (
            f"{self.quantity} at {self.site}: {self.value:.4g} at step {self.for_step} (80 % interval {low:.4g} to "
            f"{high:.4g}; {self.method}, made at step {self.made_at})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; :meth:`from_dict` reads them back."""
        found = {key: value for key, value in vars(self).items() if value not in ("", {}, NOTHING)}
        return {key: dict(value) if isinstance(value, Mapping) else value for key, value in found.items()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Forecast:
        """A forecast read back from :meth:`to_dict`.

        Args:
            record: plain values; keys that are unknown are ignored.
        """
        values = {key: record[key] for key in cls.__dataclass_fields__ if key in record}
        for key in ("interval50", "interval80"):
            if key in values:
                values[key] = (float(values[key][0]), float(values[key][1]))
        for key in ("conditions", "naive"):
            values[key] = dict(values.get(key) or {})
        return cls(**values)


def refusal(quantity: str, step: int, day: int, method: str, horizon: str, why: str) -> Forecast:
    """No forecast, and the reason.

    >>> print(refusal("gates/density", 10, 20, "blend", "end", "nobody knows"))
    gates/density at model: no forecast at step 10: nobody knows
    """
    return Forecast(
        quantity=quantity, site="model", made_at=step, for_step=day, method=method, horizon=horizon, refused=why
    )
