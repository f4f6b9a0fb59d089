"""Curvature between layers as pictures: the interaction graph as data, JSON and DOT, and both drawings as plain SVG."""

from __future__ import annotations

import json
from html import escape
from typing import Any, Literal

import networkx as nx
import numpy as np

from netvitals.capture.result import plain
from netvitals.curvature import InterlayerCurvature
from netvitals.curvature.engine.graph import OUT, NodeGraph

Weight = Literal["resonance", "coupling", "stable_rank", "gn_gap"]


def interaction_graph(found: InterlayerCurvature, weight: Weight = "coupling", least: float = 0.0) -> dict[str, Any]:
    """Nodes, edges of the network, and links between all pairs weighted by a metric; plain values for JSON."""
    _matrix(found, weight)
    error = f"{weight}_stderr"
    links = [
        {"source": row["v"], "target": row["w"], weight: row[weight], error: row[error]}
        for row in found.rows()
        if row["v"] != row["w"] and np.isfinite(row[weight]) and row[weight] >= least
    ]
    edges = [{"source": p, "target": v} for v, ps in found.graph.parents.items() for p in ps]
    own = np.diag(found.resonance)
    nodes = [{"name": v, "size": s, "own": r} for v, s, r in zip(found.nodes, found.sizes, own)]
    return plain({"space": found.space, "nodes": nodes, "edges": edges, "links": links})


def to_json(found: InterlayerCurvature, weight: Weight = "coupling") -> str:
    """The interaction graph as JSON."""
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
    z, stderr = _matrix(found, weight), getattr(found, weight + "_stderr")
    return plain({"title": weight.replace("_", " "), "labels": found.nodes, "z": z, "stderr": stderr})


def heatmap_svg(found: InterlayerCurvature, weight: Weight = "coupling", cell: int = 36) -> str:
    """A matrix as a self-contained SVG with the number in each cell."""
    matrix, n = _matrix(found, weight), len(found.nodes)
    left = 8 * max(len(v) for v in found.nodes) + 10
    low, high = float(np.nanmin(matrix)), float(np.nanmax(matrix))
    shades = (matrix - low) / (high - low if high > low else 1.0)
    out = []
    for i, v in enumerate(found.nodes):
        y = 20 + i * cell
        out.append(_text(left - 6, y + cell * 0.6, v, anchor="end"))
        for j, w in enumerate(found.nodes):
            known = bool(np.isfinite(matrix[i, j]))
            label = f"{matrix[i, j]:.2g}" if known else "–"
            fill, ink = _colours(shades[i, j]) if known else ("#eee", "#111")
            x = left + j * cell
            out.append(
                f"<g><title>{escape(v)} and {escape(w)}: {label}</title>"
                f'<rect x="{x}" y="{y}" width="{cell}" height="{cell}" fill="{fill}"/>'
                f"{_text(x + cell / 2, y + cell * 0.6, label, fill=ink)}</g>"
            )
    return _svg(left + n * cell + 10, 30 + n * cell, out)


def graph_svg(graph: NodeGraph, weights: dict[tuple[str, str], float] | None = None) -> str:
    """The node graph from left to right, by longest depth; edge widths follow ``weights`` (parent, child) if given."""
    net = graph.topology.graph
    columns = list(nx.topological_generations(net))
    level = {v: k for k, vs in enumerate(columns) for v in vs}
    wide = 9 * max(len(v) for v in level) + 40
    at = {v: (30 + k * wide, 30 + i * 50) for k, vs in enumerate(columns) for i, v in enumerate(vs)}
    most = max(weights.values()) if weights else 1.0
    out = []
    for p, v in net.edges:
        (x1, y1), (x2, y2) = at[p], at[v]
        bow = 18 if level[v] - level[p] > 1 else 0  # a skip is drawn as an arc
        thick = 1 + 5 * weights.get((p, v), 0.0) / most if weights else 1.5
        out.append(
            f'<path d="M{x1 + 8},{y1} Q{(x1 + x2) / 2:.0f},{(y1 + y2) / 2 - bow:.0f} {x2 - 8},{y2}" '
            f'fill="none" stroke="#678" stroke-width="{thick:.1f}"/>'
        )
    for v, (x, y) in at.items():
        fill = "#345" if v == OUT else "#fff"
        out.append(f'<circle cx="{x}" cy="{y}" r="7" fill="{fill}" stroke="#345"/>{_text(x, y - 11, v)}')
    return _svg(60 + wide * len(columns), 60 + 50 * max(len(vs) for vs in columns), out)


def _colours(shade: float) -> tuple[str, str]:
    """Fill and ink of a cell, from light to dark blue."""
    fill = f"rgb({int(247 - 239 * shade)},{int(251 - 203 * shade)},{int(255 - 148 * shade)})"
    return fill, "#fff" if shade > 0.55 else "#111"


def _text(x: float, y: float, text: str, anchor: str = "middle", fill: str = "#111") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{fill}">{escape(text)}</text>'


def _svg(width: float, height: float, parts: list[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" '
        f'font-size="12">{"".join(parts)}</svg>'
    )


def _matrix(found: InterlayerCurvature, weight: str) -> np.ndarray:
    if weight not in ("resonance", "coupling", "stable_rank", "gn_gap"):
        raise ValueError(f"weight is {weight!r}, expected 'resonance', 'coupling', 'stable_rank' or 'gn_gap'")
    return getattr(found, weight)
