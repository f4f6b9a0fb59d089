"""A curve in a few numbers, kept up as it grows: what a list of runs shows of the loss."""

from __future__ import annotations

from typing import Any

import numpy as np

POINTS = 64  # at most; an even number


class Sparkline:
    """Means over stretches of steps, which double in length when there are too many.

    >>> line = Sparkline()
    >>> line.add(np.arange(200), np.linspace(2, 1, 200))
    >>> len(line.record()["means"]), line.record()["last"]
    (50, 1.0)
    """

    def __init__(self, record: dict[str, Any] | None = None) -> None:
        known = record or {}
        self._first, self._width = known.get("first"), int(known.get("width", 1))
        self._last = known.get("last")
        means = known.get("means") or []
        self._total, self._count = np.zeros(POINTS), np.zeros(POINTS)
        for i, mean in enumerate(means[:POINTS]):
            if mean is not None:
                self._total[i], self._count[i] = mean * self._width, self._width

    def add(self, steps: np.ndarray, values: np.ndarray) -> None:
        """Take in measurements."""
        if not len(steps):
            return
        if self._first is None:
            self._first = int(steps.min())
        while (int(steps.max()) - self._first) // self._width >= POINTS:
            for name in ("_total", "_count"):
                halves = getattr(self, name).reshape(-1, 2).sum(1)
                setattr(self, name, np.r_[halves, np.zeros(POINTS // 2)])
            self._width *= 2
        good = np.isfinite(values)
        at = np.clip((steps - self._first) // self._width, 0, POINTS - 1)[good]
        self._total += np.bincount(at, values[good], POINTS)
        self._count += np.bincount(at, minlength=POINTS)
        self._last = float(values[-1]) if np.isfinite(values[-1]) else None

    def record(self) -> dict[str, Any]:
        """Plain values: the first step, steps a point, the means (None where there is none), the last measurement."""
        used = np.flatnonzero(self._count)
        end = int(used[-1]) + 1 if len(used) else 0
        means = [float(f"{t / c:.5g}") if c else None for t, c in zip(self._total[:end], self._count[:end])]
        return {"first": self._first, "width": self._width, "means": means, "last": self._last}
