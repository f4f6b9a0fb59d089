"""A matrix over pairs of layers as a plain SVG: rows and columns named, numbers in the cells, a legend."""

from __future__ import annotations

from html import escape
from typing import Literal, get_args

import numpy as np

from netvitals.curvature.measure.result import InterlayerCurvature

Weight = Literal["resonance", "coupling", "stable_rank", "effective_dimension", "gn_gap", "missed"]


def heatmap_svg(found: InterlayerCurvature, weight: Weight = "coupling", cell: int = 36) -> str:
    """A matrix as a self-contained SVG: rows and columns named, the number in each cell, a legend of the shades.

    Args:
        found: what ``between_layers`` returned.
        weight: the metric in the cells.
        cell: pixels.

    Returns:
        An SVG drawing.
    """
    matrix, n = matrix_of(found, weight), len(found.nodes)
    longest = max(len(v) for v in found.nodes)
    left, top = 8 * longest + 10, 5 * longest + 24  # columns are named at an angle
    finite = matrix[np.isfinite(matrix)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    shades = (matrix - low) / (high - low if high > low else 1.0)
    out = []
    for i, v in enumerate(found.nodes):
        y = top + i * cell
        out.append(text_at(left - 6, y + cell * 0.6, v, anchor="end"))
        x = left + (i + 0.5) * cell
        out.append(f'<g transform="rotate(-40 {x:.0f} {top - 6})">{text_at(x, top - 6, v, anchor="start")}</g>')
        for j, w in enumerate(found.nodes):
            known = bool(np.isfinite(matrix[i, j]))
            label = f"{matrix[i, j]:.2g}" if known else "–"
            fill, ink = _colours(shades[i, j]) if known else ("#eee", "#111")
            x = left + j * cell
            out.append(
                f"<g><title>{escape(v)} and {escape(w)}: {label}</title>"
                f'<rect x="{x}" y="{y}" width="{cell}" height="{cell}" fill="{fill}"/>'
                f"{text_at(x + cell / 2, y + cell * 0.6, label, fill=ink)}</g>"
            )
    out += _legend(left, top + n * cell + 14, weight.replace("_", " "), low, high)
    return drawing(left + n * cell + 6 * longest + 60, top + n * cell + 50, out)


def _legend(x: float, y: float, title: str, low: float, high: float, steps: int = 20) -> list[str]:
    """A strip of shades from the smallest to the largest value."""
    strip = [f'<path d="M{x + 6 * k},{y}h6v10h-6z" fill="{_colours(k / (steps - 1))[0]}"/>' for k in range(steps)]
    ends = [
        text_at(x, y + 24, f"{low:.2g}", anchor="start"),
        text_at(x + 6 * steps, y + 24, f"{high:.2g}", anchor="end"),
    ]
    return [*strip, *ends, text_at(x + 6 * steps + 8, y + 9, title, anchor="start")]


def _colours(shade: float) -> tuple[str, str]:
    """Fill and ink of a cell, from light to dark blue."""
    fill = f"rgb({int(247 - 239 * shade)},{int(251 - 203 * shade)},{int(255 - 148 * shade)})"
    return fill, "#fff" if shade > 0.55 else "#111"


def text_at(x: float, y: float, text: str, anchor: str = "middle", fill: str = "#111") -> str:
    """A word in a drawing."""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{fill}">{escape(text)}</text>'


def drawing(width: float, height: float, parts: list[str]) -> str:
    """A drawing of this size, on white whatever the page is."""
    parts = ['<rect width="100%" height="100%" fill="#fff"/>', *parts]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" '
        f'font-size="12">{"".join(parts)}</svg>'
    )


def matrix_of(found: InterlayerCurvature, weight: str) -> np.ndarray:
    """The matrix of that name; a sentence where there is none."""
    if weight not in get_args(Weight):
        raise ValueError(f"weight= must be one of {', '.join(map(repr, get_args(Weight)))}, got {weight!r}")
    return getattr(found, weight)
