"""One vital sign as a plotly figure, for a notebook: layers by steps, or lines."""

from __future__ import annotations

import difflib
from typing import Any

import numpy as np

from netvitals._extras import missing
from netvitals.findings import table


def figure(source: Any, vital: str, metric: str, *, kind: str = "heatmap") -> Any:
    """Plot one metric at every site over the training steps; needs the extra ``notebook``.

    Args:
        source: a Run, a Watch, a frame or measurements.
        vital: name of the vital sign, e.g. "gates".
        metric: name of the metric, e.g. "density@0.01".
        kind: "heatmap" (layers × steps) or "lines".

    Returns:
        A ``plotly.graph_objects.Figure``.

    >>> from netvitals.capture import Measurement
    >>> measurements = [Measurement(step, "gates", f"fc{i}", "density@0.01", 0.5) for step in range(3) for i in (1, 2)]
    >>> figure(measurements, "gates", "density@0.01").data[0].z.shape  # layers × steps
    (2, 3)
    """
    try:
        import plotly.graph_objects as go
    except ImportError:
        raise missing("report.figure, which draws for a notebook,", "plotly") from None

    if kind not in ("heatmap", "lines"):
        raise ValueError(f"kind= must be heatmap or lines, got {kind!r}")
    measurements = table(source)
    series = measurements.at(vital, metric) or measurements.at(vital, metric, pooled=True)
    if not series:
        known = sorted({f"{v} {m}" for v, _, m in measurements.series})
        near = difflib.get_close_matches(f"{vital} {metric}", known, 3, 0.3) or known[:6]
        raise ValueError(f"there are no measurements of {vital} {metric}; the nearest names are {', '.join(near)}")
    drawing = go.Figure()
    if kind == "lines":
        for s in series:
            drawing.add_scatter(x=s.steps, y=s.values, name=s.site, mode="lines")
        drawing.update_yaxes(title=metric)
    else:
        steps = np.unique(np.concatenate([s.steps for s in series]))
        grid = np.full((len(series), len(steps)), np.nan)
        for row, s in zip(grid, series):
            row[np.searchsorted(steps, s.steps)] = s.values
        drawing.add_heatmap(x=steps, y=[s.site for s in series], z=grid, colorbar={"title": metric})
        drawing.update_yaxes(autorange="reversed")  # the first layer on top
    drawing.update_xaxes(title="step")
    drawing.update_layout(title=f"{vital}: {metric}", template="plotly_white", margin={"l": 10, "r": 10, "t": 40})
    return drawing
