"""A forecast: the step at which something will happen, an interval and its conditions, stored before that step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Interval = tuple[float, float]
NOTHING: Interval = (math.nan, math.nan)


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A forecast of the step at which an event happens: the end of a plateau, or divergence of the loss.

    Args:
        quantity: the event: ``plateau/drop@0.5``, ``plateau/leaves`` or ``loss/lost`` (the run diverges).
        site: the place; ``model`` for the whole model.
        made_at: the step at which it was made.
        for_step: the step at which it is scored, the last one of its 80 % interval.
        value: the step at which it is expected. NaN where it is refused.
        interval80: holds it four times in five.
        method: ``saddle``, ``climb``, ``schedule`` or ``look-ahead``.
        conditions: assumptions of the method, and what was measured of them on this network.
        refused: the reason why there is no forecast; empty if there is one.
        naive: the forecast of the naive baseline.

    >>> print(Forecast(quantity="plateau/drop@0.5", made_at=100, for_step=260, value=200.0,
    ...                interval80=(160, 260), method="saddle"))
    plateau/drop@0.5 at model: near step 200 (80 % interval 160 to 260; saddle, made at step 100)
    """

    quantity: str
    site: str = "model"
    made_at: int
    for_step: int
    value: float = math.nan
    interval80: Interval = NOTHING
    method: str = ""
    conditions: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""
    naive: Mapping[str, float] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        return not self.refused

    def __str__(self) -> str:
        if self.refused:
            return f"{self.quantity} at {self.site}: no forecast at step {self.made_at}: {self.refused}"
        low, high = self.interval80
        return (
            f"{self.quantity} at {self.site}: near step {self.value:.0f} (80 % interval {low:.0f} to {high:.0f}; "
            f"{self.method}, made at step {self.made_at})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain values for JSON; :meth:`from_dict` converts them back."""
        found = {key: value for key, value in vars(self).items() if value not in ("", {}, NOTHING)}
        return {key: dict(value) if isinstance(value, Mapping) else value for key, value in found.items()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Forecast:
        """A forecast read back from :meth:`to_dict`.

        Args:
            record: plain values; keys that are unknown are ignored.
        """
        values = {key: record[key] for key in cls.__dataclass_fields__ if key in record}
        if "interval80" in values:
            values["interval80"] = (float(values["interval80"][0]), float(values["interval80"][1]))
        for key in ("conditions", "naive"):
            values[key] = dict(values.get(key) or {})
        return cls(**values)


def refusal(quantity: str, step: int, method: str, why: str) -> Forecast:
    """No forecast, and the reason.

    >>> print(refusal("plateau/leaves", 10, "saddle", "no layer is small"))
    plateau/leaves at model: no forecast at step 10: no layer is small
    """
    return Forecast(quantity=quantity, made_at=step, for_step=step, method=method, refused=why)
