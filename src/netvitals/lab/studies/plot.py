"""A small picture for the claims page: points and lines with errors, drawn as SVG that follows the page's colours."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 12, 42
MARKS = 6           # labels on an axis, about


@dataclass(frozen=True)
class Series:
    """One set of points; ``error`` is drawn as a bar up and down."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float] | None = None
    line: bool = False
    dashed: bool = False

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y) or (self.error is not None and len(self.error) != len(self.x)):
            raise ValueError(f"series {self.name!r}: x, y and error must have one length")


@dataclass(frozen=True)
class Plot:
    """Several series on one pair of axes."""

    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False

    def svg(self) -> str:
        """The picture; classes ``s0``, ``s1``, … take their colours from the page.

        >>> Plot("x", "y", [Series("a", [1, 2], [3, 4], line=True)]).svg().startswith("<svg")
        True
        """
        points = [(x, y, e) for s in self.series for x, y, e in zip(s.x, s.y, s.error or [0.0] * len(s.x))
                  if _fit(x, self.log_x) and _fit(y, self.log_y)]
        if not points:
            return ""
        across = _Axis([p[0] for p in points], self.log_x, LEFT, WIDTH - RIGHT)
        up = _Axis([p[1] + k * p[2] for p in points for k in (-1, 1) if _fit(p[1] + k * p[2], self.log_y)],
                   self.log_y, HEIGHT - BOTTOM, TOP)
        parts = [f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
                 f'aria-label="{escape(self.y_label)} against {escape(self.x_label)}">']
        for at, text in across.marks():
            parts.append(f'<path class="grid" d="M{at:.1f} {TOP}V{HEIGHT - BOTTOM}"/>'
                         f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{text}</text>')
        for at, text in up.marks():
            parts.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>'
                         f'<text x="{LEFT - 7}" y="{at + 4:.1f}" text-anchor="end">{text}</text>')
        parts.append(f'<text class="name" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">'
                     f'{escape(self.x_label)}</text>')
        parts.append(f'<text class="name" transform="translate(13 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" '
                     f'text-anchor="middle">{escape(self.y_label)}</text>')
        parts += [self._drawn(s, i, across.place, up.place) for i, s in enumerate(self.series)]
        return "".join(parts) + "</svg>"

    def _drawn(self, s: Series, i: int, across: Callable[[float], float], up: Callable[[float], float]) -> str:
        good = [(x, y, e) for x, y, e in zip(s.x, s.y, s.error or [0.0] * len(s.x))
                if _fit(x, self.log_x) and _fit(y, self.log_y)]
        out = []
        if s.line and len(good) > 1:
            path = "L".join(f"{across(x):.1f} {up(y):.1f}" for x, y, _ in good)
            out.append(f'<path class="line{" dashed" if s.dashed else ""}" d="M{path}"/>')
        for x, y, e in good:
            if e > 0 and _fit(y - e, self.log_y):
                out.append(f'<path class="line thin" d="M{across(x):.1f} {up(y - e):.1f}V{up(y + e):.1f}"/>')
            if not s.line:
                out.append(f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3.2"/>')
        return f'<g class="s{i % 8}"><title>{escape(s.name)}</title>{"".join(out)}</g>'

    @property
    def legend(self) -> list[tuple[int, str]]:
        return [(i % 8, s.name) for i, s in enumerate(self.series)]


class _Axis:
    def __init__(self, values: Sequence[float], log: bool, start: float, end: float) -> None:
        scaled = [math.log10(v) for v in values] if log else list(values)
        low, high = min(scaled), max(scaled)
        room = 0.05 * (high - low) or 0.5 * abs(high) or 0.5
        self.low, self.high, self.log, self.start, self.end = low - room, high + room, log, start, end

    def place(self, value: float) -> float:
        scaled = math.log10(value) if self.log else value
        return self.start + (scaled - self.low) / (self.high - self.low) * (self.end - self.start)

    def marks(self) -> list[tuple[float, str]]:
        span = self.high - self.low
        step = 10 ** math.floor(math.log10(span / MARKS))
        step *= next(k for k in (1, 2, 5, 10) if span / (step * k) <= MARKS)
        if self.log and step < 1 and span > 1.5:
            step = 1
        first = math.ceil(self.low / step)
        ticks = [k * step for k in range(first, math.floor(self.high / step) + 1)]
        return [(self.start + (t - self.low) / span * (self.end - self.start),
                 f"{10**t:.3g}" if self.log else f"{round(t, 12):.4g}") for t in ticks]


def _fit(value: float, log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not log)
