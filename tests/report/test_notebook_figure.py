"""A vital sign as a plotly figure."""

import numpy as np
import pytest

from netvitals.capture import Measurement
from netvitals.report import figure

READINGS = [
    Measurement(step, "gates", site, "density@0.01", 0.5 + 0.1 * i + 0.01 * step)
    for step in (0, 5, 10)
    for i, site in enumerate(("a", "b"))
]


def test_heat_map_holds_every_reading_in_its_place():
    (heat,) = figure(READINGS, "gates", "density@0.01").data
    assert list(heat.y) == ["a", "b"] and list(heat.x) == [0, 5, 10]
    assert np.allclose(heat.z, [[0.5, 0.55, 0.6], [0.6, 0.65, 0.7]])


def test_lines_have_one_trace_a_site():
    drawing = figure(READINGS, "gates", "density@0.01", kind="lines")
    assert [t.name for t in drawing.data] == ["a", "b"]


@pytest.mark.parametrize(
    ("metric", "kind", "words"), [("densty@0.01", "lines", "density@0.01"), ("density@0.01", "pie", "heatmap")]
)
def test_wrong_input_gets_a_sentence(metric, kind, words):
    with pytest.raises(ValueError, match=words):
        figure(READINGS, "gates", metric, kind=kind)
