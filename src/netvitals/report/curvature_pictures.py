"""Curvature between layers as pictures: the interaction graph as data, JSON and DOT, and both drawings as plain SVG."""

from __future__ import annotations

import json
from typing import Any

import networkx as nx
import numpy as np

from netvitals.capture import plain
from netvitals.curvature import OUT, InterlayerCurvature, NodeGraph, Weight, drawing, heatmap_svg, matrix_of, text_at

__all__ = ["graph_svg", "heatmap", "heatmap_svg", "interaction_graph", "to_dot", "to_json"]


def interaction_graph(found: InterlayerCurvature, weight: Weight = "coupling", least: float = 0.0) -> dict[str, Any]:
    """Nodes, edges of the network, and links between all pairs weighted by a metric; plain values for JSON.

    Args:
        found: what ``between_layers`` returned.
        weight: the metric on the links.
        least: links below this are left out.

    Returns:
        Nodes, edges and links.
    """
    matrix_of(found, weight)
    if weight in ("missed", "effective_dimension"):
        raise ValueError(
            f"the metric weight={weight!r} has no standard errors, which this graph contains: use heatmap_svg, "
            "which needs none"
        )
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
    """The interaction graph as JSON.

    Args:
        found: what ``between_layers`` returned.
        weight: the metric on the links.

    Returns:
        JSON text.
    """
    return json.dumps(interaction_graph(found, weight), ensure_ascii=False, allow_nan=False)


def to_dot(found: InterlayerCurvature, weight: Weight = "coupling", least: float = 0.1) -> str:
    """Graphviz text: solid arrows are the network, dashed lines couple nodes.

    Args:
        found: what ``between_layers`` returned.
        weight: the metric on the links.
        least: links below this are left out.

    Returns:
        Graphviz text.
    """
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
    """Labels, values and errors of a matrix, for plotly or any other drawing.

    Args:
        found: what ``between_layers`` returned.
        weight: the metric in the cells.

    Returns:
        Title, labels, values and errors.
    """
    z, stderr = matrix_of(found, weight), getattr(found, weight + "_stderr", None)
    return plain({"title": weight.replace("_", " "), "labels": found.nodes, "z": z, "stderr": stderr})


def graph_svg(graph: NodeGraph, weights: dict[tuple[str, str], float] | None = None) -> str:
    """The node graph from left to right, by longest depth; edge widths follow ``weights`` (parent, child) if given.

    Args:
        graph: how the nodes follow each other.
        weights: number by (parent, child); None draws all alike.

    Returns:
        An SVG drawing.
    """
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
        out.append(f'<circle cx="{x}" cy="{y}" r="7" fill="{fill}" stroke="#345"/>{text_at(x, y - 11, v)}')
    return drawing(60 + wide * len(columns), 60 + 50 * max(len(vs) for vs in columns), out)
