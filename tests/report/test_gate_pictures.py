"""The pictures of gates in a run's report: the law against what was measured, and margins first and last."""

import numpy as np
import pytest
import torch
from torch import nn

import netvitals as nv
from netvitals.capture import Measurement
from netvitals.findings import table
from netvitals.report import render
from netvitals.report.gate_plots import gate_pictures


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 24), nn.GELU(), nn.Linear(24, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(256, 6)
    with nv.watch(net, optimizer=optimizer, run=tmp_path_factory.mktemp("run") / "r", every=5) as vitals:
        for _ in range(31):
            loss = net(x).square().mean() + (net(x).sum(1) - x.sum(1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            vitals.step(loss)
    return nv.open_run(vitals.path)


def test_the_law_is_drawn_beside_what_was_measured(run):
    law, margins = gate_pictures(table(run), run)
    clouds = {s.name: s for s in law.plot.series}
    assert set(clouds) == {"after a BatchNorm", "after a layer", "equal"}
    norm = clouds["after a BatchNorm"]
    assert len(norm.x) == 24 and np.abs(np.array(norm.x) - norm.y).mean() < 0.05  # by channel, from μ and σ alone
    assert "2 layers" in law.caption and "(μ − z_low)/σ" in margins.caption


def test_margins_are_those_of_the_first_and_the_last_look(run):
    margins = {s.name: s for s in gate_pictures(table(run), run)[1].plot.series}["after a BatchNorm"]
    for values, end in ((margins.x, {"first": True}), (margins.y, {"last": True})):
        mu, sigma = (run.arrays("preactivations", site="2", metric=m, **end)[0] for m in ("mu", "sigma"))
        assert mu.step == (0 if "first" in end else 30)
        assert values == pytest.approx(np.clip(mu.value / sigma.value, -6, 6).tolist(), abs=1e-5)
    with pytest.raises(ValueError, match="not both at once"):
        run.arrays(first=True, last=True)


def test_the_report_shows_them_and_does_without_where_nothing_is_known(run):
    page = render(run)
    assert "Predicted against measured gate density" in page and page.count('"svg": ') == 2
    assert '"svg": ' not in render([Measurement(i, "gates", "a", "density@0.1", 0.5) for i in range(3)])
