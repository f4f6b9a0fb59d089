"""Pictures of dead directions hold what was measured, with the colours of the classes and the predicted slopes."""

import math
import re

import numpy as np
import pytest
import torch
from torch import nn

from netvitals.report import Plot, Series
from netvitals.report import dead_directions as pictures
from netvitals.singular import classify_spectrum, coefficient_history, kl_order, readout
from netvitals.singular.checkpoint.stream import sigma_stream
from netvitals.singular.networks import zoo
from netvitals.singular.sampling.history import CoefficientHistory

f64 = torch.float64


def cube():
    return kl_order(lambda th: th[:1].pow(3).expand(5, 1), torch.zeros(1, dtype=f64), torch.ones(1, dtype=f64))


def test_the_dashed_line_of_an_order_has_the_predicted_slope():
    drawn = pictures.order_plot({"cube": cube()})
    points, line = drawn.series
    slope = np.polyfit(np.log(line.x), np.log(line.y), 1)[0]
    assert slope == pytest.approx(4.0, abs=1e-9) and line.dashed and drawn.log_x and drawn.log_y
    assert points.y == pytest.approx(cube().fisher.tolist()) and drawn.legend == [(0, "cube, order 3")]


def test_a_direction_without_order_has_points_and_no_line():
    scan = kl_order(lambda th: th[:1].abs().pow(1.7).expand(5, 1), torch.zeros(1, dtype=f64), torch.ones(1, dtype=f64))
    drawn = pictures.order_plot(scan)
    assert scan.order is None and [s.line for s in drawn.series] == [False]


def test_the_spectrum_is_coloured_by_class():
    def family(th):
        return torch.stack([th[0] ** 3, th[0] * th[1] + th[0] ** 4, th[2] + th[3]])[None]

    found = classify_spectrum(
        family, torch.zeros(4, dtype=f64), torch.tensor([1.0, 0, 0, 0]), np.geomspace(1e-3, 1e-1, 6).tolist()
    )
    drawn = pictures.spectrum_plot(found)
    names = {name: tone for tone, name in drawn.legend}
    assert names == {"transversal: 1, t^4": 1, "tangential: 1, t^2": 2, "constant: 1, t^0": 0, "zero: 1, not drawn": 3}
    svg = drawn.svg()
    assert all(f'<g class="s{tone}">' in svg for tone in (0, 1, 2)) and svg.count('class="line"') == 3


def test_the_coefficient_is_drawn_with_errors_and_the_loss_on_its_own_axis():
    torch.manual_seed(0)
    net = nn.Linear(3, 2)
    x = torch.randn(200, 3)
    y = x[:, 0].gt(0).long()
    history = coefficient_history(
        net,
        nn.functional.cross_entropy,
        (x, y),
        checkpoints={0: net.state_dict(), 9: net.state_dict()},
        chains=2,
        draws=20,
    )
    drawn = pictures.coefficient_plot(history)
    assert isinstance(history, CoefficientHistory) and drawn.series[0].error == [c.stderr for c in history.coefficients]
    assert drawn.series[1].right and ">loss</text>" in drawn.svg() and drawn.svg().count("line thin") == 2


def test_the_stream_is_drawn_over_depth():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(6, 6)

        def forward(self, x):
            return x + torch.tanh(self.inner(x))

    torch.manual_seed(0)
    found = sigma_stream(nn.Sequential(Block(), Block()), torch.randn(50, 6))
    drawn = pictures.stream_plot(found)
    assert drawn.series[0].x == [0, 1, 2] and list(drawn.series[0].y) == list(found.sigma) and drawn.log_y


def test_a_second_axis_leaves_the_first_as_it_is():
    one = Plot("x", "y", [Series("a", [1, 2], [3, 4], line=True)]).svg()
    both = Plot(
        "x", "y", [Series("a", [1, 2], [3, 4], line=True), Series("b", [1, 2], [300, 400], right=True)], right_label="z"
    ).svg()
    ticks = lambda svg: re.findall(r'text-anchor="end">([^<]*)<', svg)
    assert ticks(one) == ticks(both) and ">z</text>" in both and ">z</text>" not in one
    assert Plot("x", "y", [Series("a", [1], [math.nan])]).svg() == ""
    assert "<style>" in Plot("x", "y", [Series("a", [1, 2], [3, 4])])._repr_html_()


def test_the_page_of_a_readout_escapes_names_and_needs_no_network(tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    with torch.no_grad():
        net[0].weight[2], net[0].bias[2], net[2].weight[:, 2] = 0, 0, 0
    found = readout(net, "ce", (torch.randn(60, 4), None), units=2)
    path = pictures.saved(pictures.readout_page(found, title="<b>"), tmp_path, "readout.html")
    text = path.read_text()
    assert path.name == "readout.html" and "&lt;b&gt;" in text and "<h1><b>" not in text
    assert "http" not in text.replace("http-equiv", "") and "<script" not in text
    assert "singular set" in text and "canonical alignment" in text


def test_every_specimen_of_the_zoo_can_be_drawn():
    scans = {
        s.name: kl_order(s.outputs, s.theta0, s.direction, s.likelihood, ts=np.geomspace(0.01, 0.1, 4).tolist())
        for s in zoo.specimens()[:8]
    }
    assert pictures.order_plot(scans).svg().startswith("<svg")
