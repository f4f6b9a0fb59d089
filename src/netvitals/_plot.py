"""A small picture for a page or a notebook: points and lines with errors, as SVG that follows the page's colours."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 12, 42
MARKS = 6  # labels on an axis, about


@dataclass(frozen=True)
class Series:
    """One data series of a plot: points with optional error bars.

    Part of :class:`Plot`.

    Attributes:
        name: shown in the legend.
        x: positions along the horizontal axis.
        y: values, as many as ``x``.
        error: half the length of the error bar of each point.
        line: connect the points by a line.
        dashed: use a dashed line.
        tone: number of a colour of the page; by default the position in the plot.
        right: use the right axis.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float] | None = None
    line: bool = False
    dashed: bool = False
    tone: int | None = None
    right: bool = False

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y) or (self.error is not None and len(self.error) != len(self.x)):
            raise ValueError(f"series {self.name!r}: x, y and error must have the same length")


@dataclass(frozen=True)
class Plot:
    """A plot of several data series on common axes.

    Attributes:
        x_label: label of the horizontal axis.
        y_label: label of the left axis.
        series: the data series, in the order of the legend.
        log_x: use a logarithmic horizontal axis.
        log_y: use a logarithmic left axis.
        right_label: label of the right axis, which series with ``right`` use.
        log_right: use a logarithmic right axis.

    >>> picture = Plot("step", "loss", [Series("run", [0, 1, 2], [2.3, 1.1, 0.7], line=True)])
    >>> picture.svg()[:4], picture.legend
    ('<svg', [(0, 'run')])
    """

    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    right_label: str = ""
    log_right: bool = False

    def svg(self) -> str:
        """Return the plot as SVG without colours; CSS classes ``s0``, ``s1``, … take them from the page.

        >>> Plot("x", "y", [Series("a", [1, 2], [3, 4], line=True)]).svg().startswith("<svg")
        True
        """
        points = [
            (x, y, e, s.right)
            for s in self.series
            for x, y, e in zip(s.x, s.y, s.error or [0.0] * len(s.x))
            if _fit(x, self.log_x) and _fit(y, self._log(s))
        ]
        if not points:
            return ""
        second = any(p[3] for p in points)
        edge = WIDTH - (LEFT if second else RIGHT)
        across = _Axis([p[0] for p in points], self.log_x, LEFT, edge)
        ups = {
            side: _Axis(
                [p[1] + k * p[2] for p in points if p[3] == side for k in (-1, 1) if _fit(p[1] + k * p[2], log)],
                log,
                HEIGHT - BOTTOM,
                TOP,
            )
            for side, log in ((False, self.log_y), (True, self.log_right))
            if any(p[3] == side for p in points)
        }
        parts = [
            f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{escape(self.y_label)} against {escape(self.x_label)}">'
        ]
        for at, text in across.marks():
            parts.append(
                f'<path class="grid" d="M{at:.1f} {TOP}V{HEIGHT - BOTTOM}"/>'
                f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{text}</text>'
            )
        for at, text in ups[False].marks() if False in ups else ():
            parts.append(
                f'<path class="grid" d="M{LEFT} {at:.1f}H{edge}"/>'
                f'<text x="{LEFT - 7}" y="{at + 4:.1f}" text-anchor="end">{text}</text>'
            )
        for at, text in ups[True].marks() if True in ups else ():
            parts.append(f'<text x="{edge + 7}" y="{at + 4:.1f}">{text}</text>')
        if second:
            parts.append(
                f'<text class="name" transform="translate({WIDTH - 4} {(TOP + HEIGHT - BOTTOM) / 2}) '
                f'rotate(-90)" text-anchor="middle">{escape(self.right_label)}</text>'
            )
        parts.append(
            f'<text class="name" x="{(LEFT + edge) / 2}" y="{HEIGHT - 6}" text-anchor="middle">'
            f"{escape(self.x_label)}</text>"
        )
        parts.append(
            f'<text class="name" transform="translate(13 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" '
            f'text-anchor="middle">{escape(self.y_label)}</text>'
        )
        parts += [
            self._drawn(s, i, across.place, ups[s.right].place) for i, s in enumerate(self.series) if s.right in ups
        ]
        return "".join(parts) + "</svg>"

    def html(self) -> str:
        """Return the plot with its legend as HTML, for a page that already contains the style sheet."""
        keys = "".join(f'<span class="s{i}"><i></i>{escape(name)}</span>' for i, name in self.legend)
        return f'{self.svg()}<div class="keys">{keys}</div>'

    def standalone(self) -> str:
        """Return the plot as a complete SVG file, with style and legend."""
        inks = {"ink": "#1d2733", "soft": "#55606e", "faint": "#7b8694", "line": "#cfd6de", "rule": "#e4e8ed"}
        own = (
            "svg{"
            + "".join(f"--{name}:{ink};" for name, ink in inks.items())
            + "background:#fff;font-family:sans-serif}"
        )
        low, entries = HEIGHT + 12, list(enumerate(self.legend))
        legend = "".join(
            f'<g class="s{tone}"><text x="62" y="{low + 14 * k}" style="fill:var(--hue)">{escape(name)}</text></g>'
            for k, (tone, name) in entries
        )
        drawn = self.svg().replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        head, _, rest = drawn.partition(">")
        head = head.replace(f'viewBox="0 0 {WIDTH} {HEIGHT}"', f'viewBox="0 0 {WIDTH} {low + 14 * len(entries)}"')
        return f"{head}><style>{own}{style()}</style>{rest.removesuffix('</svg>')}{legend}</svg>"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the plot with its legend to an SVG file.

        Args:
            path: path of the file.

        Returns:
            The path written.
        """
        where = Path(path)
        where.write_text(self.standalone(), encoding="utf-8")
        return where

    def _repr_html_(self) -> str:
        """In a notebook: with a style of its own."""
        own = ":root{--faint:#8b95a3;--soft:#5b6676;--rule:#eeece6}"
        return f"<style>{own}{style()}</style><div>{self.html()}</div>"

    def _log(self, s: Series) -> bool:
        return self.log_right if s.right else self.log_y

    def _drawn(self, s: Series, i: int, across: Callable[[float], float], up: Callable[[float], float]) -> str:
        good = [
            (x, y, e)
            for x, y, e in zip(s.x, s.y, s.error or [0.0] * len(s.x))
            if _fit(x, self.log_x) and _fit(y, self._log(s))
        ]
        out = []
        if s.line and len(good) > 1:
            path = "L".join(f"{across(x):.1f} {up(y):.1f}" for x, y, _ in good)
            out.append(f'<path class="line{" dashed" if s.dashed else ""}" d="M{path}"/>')
        for x, y, e in good:
            if e > 0 and _fit(y - e, self._log(s)):
                out.append(f'<path class="line thin" d="M{across(x):.1f} {up(y - e):.1f}V{up(y + e):.1f}"/>')
            if not s.line:
                out.append(f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3.2"/>')
        return f'<g class="s{_tone(s, i)}"><title>{escape(s.name)}</title>{"".join(out)}</g>'

    @property
    def legend(self) -> list[tuple[int, str]]:
        """Colours and names, each once."""
        return list(dict.fromkeys((_tone(s, i), s.name) for i, s in enumerate(self.series)))


def style() -> str:
    """The style sheet of the pictures."""
    return (files("netvitals") / "_plot.css").read_text(encoding="utf-8")


def _tone(s: Series, place: int) -> int:
    return (place if s.tone is None else s.tone) % 8


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
        if self.log and step < 1:  # whole powers where there are enough, else 1, 2, 5
            whole = range(math.floor(self.low), math.ceil(self.high) + 1)
            ticks = [k + math.log10(m) for k in whole for m in ((1,) if span > 1.5 else (1, 2, 5))]
            ticks = [t for t in ticks if self.low <= t <= self.high]
        if not self.log or step >= 1 or len(ticks) < 2:
            ticks = [k * step for k in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]
        return [
            (
                self.start + (t - self.low) / span * (self.end - self.start),
                _power(t) if self.log else f"{round(t, 12):.4g}",
            )
            for t in ticks
        ]


def _power(t: float) -> str:
    """10^t, short enough for the margin.

    >>> _power(-4), _power(-1), _power(0.5)
    ('1e-4', '0.1', '3.16')
    """
    return f"1e{round(t)}" if t == round(t) and abs(t) > 2 else f"{10**t:.3g}"


def _fit(value: float, log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not log)
