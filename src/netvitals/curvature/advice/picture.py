"""The interaction graph and the matrices as data, text, DOT and plain SVG."""

from __future__ import annotations

import json
from html import escape
from typing import Any, Literal

import numpy as np

from netvitals.curvature.engine.graph import OUT, NodeGraph
from netvitals.curvature.measure.result import InterlayerCurvature

Weight = Literal["resonance", "coupling", "stable_rank", "gn_gap"]


def interaction_graph(found: InterlayerCurvature, weight: Weight = "coupling", least: float = 0.0) -> dict[str, Any]:
    """Nodes, edges of the network, and links between all pairs weighted by a metric; plain values for JSON."""
    matrix = _matrix(found, weight)
    n = len(found.nodes)
    links = [
        {
            "source": found.nodes[i],
            "target": found.nodes[j],
            weight: _plain(matrix[i, j]),
            f"{weight}_stderr": _plain(getattr(found, weight + "_stderr")[i, j]),
        }
        for i in range(n)
        for j in range(i + 1, n)
        if np.isfinite(matrix[i, j]) and matrix[i, j] >= least
    ]
    edges = [{"source": p, "target": v} for v, ps in found.graph.parents.items() for p in ps]
    nodes = [
        {"name": v, "size": s, "own": _plain(found.resonance[i, i])}
        for i, (v, s) in enumerate(zip(found.nodes, found.sizes))
    ]
    return {"space": found.space, "nodes": nodes, "edges": edges, "links": links}


def to_json(found: InterlayerCurvature, weight: Weight = "coupling") -> str:
    return json.dumps(interaction_graph(found, weight), ensure_ascii=False, allow_nan=False)


def to_dot(found: InterlayerCurvature, weight: Weight = "coupling", least: float = 0.1) -> str:
    """Graphviz text: solid arrows are the network, dashed lines couple nodes."""
    data = interaction_graph(found, weight, least)
    quote = lambda s: json.dumps(s, ensure_ascii=False)
    lines = ["digraph curvature {", "  rankdir=LR;"]
    lines += [f"  {quote(e['source'])} -> {quote(e['target'])};" for e in data["edges"]]
    lines += [
        f'  {quote(k["source"])} -> {quote(k["target"])} [dir=none, style=dashed, label="{k[weight]:.2g}"];'
        for k in data["links"]
    ]
    return "\n".join([*lines, "}"])


def heatmap(found: InterlayerCurvature, weight: Weight = "coupling") -> dict[str, Any]:
    """Labels, values and errors of a matrix, for plotly or any other drawing."""
    clean = lambda m: [[_plain(x) for x in row] for row in m]
    return {
        "title": weight.replace("_", " "),
        "labels": list(found.nodes),
        "z": clean(_matrix(found, weight)),
        "stderr": clean(getattr(found, weight + "_stderr")),
    }


def heatmap_svg(found: InterlayerCurvature, weight: Weight = "coupling", cell: int = 36) -> str:
    """A matrix as a self-contained SVG with the number in each cell."""
    matrix, n = _matrix(found, weight), len(found.nodes)
    left = 8 * max(len(v) for v in found.nodes) + 10
    low, high = float(np.nanmin(matrix)), float(np.nanmax(matrix))
    span = high - low if high > low else 1.0
    out = []
    for i, v in enumerate(found.nodes):
        y = 20 + i * cell
        out.append(f'<text x="{left - 6}" y="{y + cell * 0.6:.0f}" text-anchor="end">{escape(v)}</text>')
        for j in range(n):
            x, value = left + j * cell, matrix[i, j]
            if np.isfinite(value):
                shade = (value - low) / span
                fill = f"rgb({int(247 - 239 * shade)},{int(251 - 203 * shade)},{int(255 - 148 * shade)})"
                ink = "#fff" if shade > 0.55 else "#111"
            else:
                fill, ink = "#eee", "#111"
            label = f"{value:.2g}" if np.isfinite(value) else "–"
            tip = f"{escape(v)} and {escape(found.nodes[j])}: {label}"
            out.append(
                f'<g><title>{tip}</title><rect x="{x}" y="{y}" width="{cell}" height="{cell}" fill="{fill}"/>'
                f'<text x="{x + cell / 2:.0f}" y="{y + cell * 0.6:.0f}" text-anchor="middle" fill="{ink}">'
                f"{label}</text></g>"
            )
    return _svg(left + n * cell + 10, 30 + n * cell, out)


def graph_svg(graph: NodeGraph, weights: dict[tuple[str, str], float] | None = None) -> str:
    """The node graph from left to right, by longest depth; edge widths follow ``weights`` (parent, child) if given."""
    top = graph.topology
    level: dict[str, int] = {}
    for v in top.order:
        level[v] = 1 + max((level[p] for p in top.parents[v]), default=-1)
    rows: dict[int, list[str]] = {}
    for v in top.order:
        rows.setdefault(level[v], []).append(v)
    wide = 9 * max(len(v) for v in top.order) + 40
    at = {v: (30 + k * wide, 30 + i * 50) for k, vs in rows.items() for i, v in enumerate(vs)}
    most = max(weights.values()) if weights else 1.0
    out = []
    for v in top.order:
        for p in top.parents[v]:
            (x1, y1), (x2, y2) = at[p], at[v]
            bow = 18 if level[v] - level[p] > 1 else 0  # a skip is drawn as an arc
            thick = 1 + 5 * (weights or {}).get((p, v), 0.0) / most if weights else 1.5
            out.append(
                f'<path d="M{x1 + 8},{y1} Q{(x1 + x2) / 2:.0f},{(y1 + y2) / 2 - bow:.0f} {x2 - 8},{y2}" '
                f'fill="none" stroke="#678" stroke-width="{thick:.1f}"/>'
            )
    for v, (x, y) in at.items():
        fill = "#345" if v == OUT else "#fff"
        out.append(
            f'<circle cx="{x}" cy="{y}" r="7" fill="{fill}" stroke="#345"/>'
            f'<text x="{x}" y="{y - 11}" text-anchor="middle">{escape(v)}</text>'
        )
    return _svg(60 + wide * len(rows), 60 + 50 * max(len(vs) for vs in rows.values()), out)


def _svg(width: float, height: float, parts: list[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" '
        f'font-size="12">{"".join(parts)}</svg>'
    )


def _matrix(found: InterlayerCurvature, weight: str) -> np.ndarray:
    if weight not in ("resonance", "coupling", "stable_rank", "gn_gap"):
        raise ValueError(f"weight is {weight!r}, expected 'resonance', 'coupling', 'stable_rank' or 'gn_gap'")
    return getattr(found, weight)


def _plain(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None
