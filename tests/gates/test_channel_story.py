"""Margins, crossing distances and correlations of every channel, of a checkpoint and over a run."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import netvitals as nv
import reader_models
from netvitals import gates


@pytest.mark.parametrize("name", reader_models.NAMES)
def test_the_channels_of_six_architectures(name):
    model, _, batch = reader_models.make(name)
    report = gates.measure(model, batch)
    story = gates.channels(report)
    assert set(story.sites) == set(report.sites) and story.moments == 1 and math.isnan(story.positive())
    for site, found in story.sites.items():
        expected = report.margins(0.1)[site]
        assert found.normalized == pytest.approx(expected.normalized) and found.margin == pytest.approx(expected.raw)
        assert (found.density == report.sites[site].channel_densities[0.1]).all()
    assert len(story.to_frame()) == sum(s.channels for s in report.sites.values())
    assert story.plot().svg() and len(str(story).splitlines()) <= 45


def test_the_distance_to_the_nearest_edge_is_that_of_the_open_set():
    """GELU's open set at θ = 0.1 is (−1.8613, −1.0778) and (−0.5543, ∞)."""
    net = nn.Sequential(nn.Identity(), nn.GELU())
    centres, spread = torch.tensor([-2.5, -1.5, -0.7, 0.0, 3.0]), 0.2
    x = centres + spread * torch.randn(20000, 5)
    found = gates.channels(gates.measure(net, x)).sites["1"]
    edges = np.array([-1.8613, -1.8613, -0.5543, -0.5543, -0.5543])
    signs = np.array([-1, 1, -1, 1, 1])
    assert found.distance == pytest.approx(signs * np.abs(centres.numpy() - edges) / spread, rel=0.02)
    assert found.density == pytest.approx(found.predicted, abs=0.01)
    with pytest.raises(ValueError, match=r"measured at theta = 0\.01, 0\.1, not at 0\.2"):
        gates.channels(gates.measure(net, x), 0.2)


def test_over_a_run_density_goes_with_the_normalised_margin(tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Linear(32, 2))
    with torch.no_grad():
        net[1].bias.fill_(-0.1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    x, y = torch.randn(256, 8), torch.randint(0, 2, (256,))
    with nv.watch(net, optimizer, every=1, run=tmp_path / "run", vitals=["gates", "preactivations"]) as watch:
        for _ in range(16):  # a run keeps arrays of every fifth measured step
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)
            with torch.no_grad():  # the variance collapses, and the mean goes down
                net[1].weight.mul_(0.87)
                net[1].bias.sub_(0.004)
    story = gates.channels(nv.open_run(tmp_path / "run"))
    assert story.moments >= 3 and story.sites["2"].mu.shape == (32,)
    assert story.positive() > 0.9 > 0.1 > story.positive("raw")
    assert "correlation" in story.plot().x_label and "goes with the normalised margin" in str(story)
    with pytest.raises(ValueError, match=r"has no density@0\.3"):
        gates.channels(nv.open_run(tmp_path / "run"), 0.3)
    with pytest.raises(TypeError, match="got a Sequential"):
        gates.channels(net)
