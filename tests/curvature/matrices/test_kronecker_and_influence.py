"""Kronecker factors against exact blocks, and influence against leaving examples out for real."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.curvature import influence, kronecker, operators


def test_the_error_of_kronecker_factors_is_their_distance_to_the_exact_block():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3, bias=False)).double()
    batch = torch.randn(30, 4).double(), torch.randint(0, 3, (30,))
    found = kronecker(net, F.cross_entropy, batch, labels=400)
    for name in ("0", "2"):
        block = found[name]
        with operators(net, F.cross_entropy, batch, nodes=["0", "2"]) as of:
            exact = of.block(name, name, "GN").dense()
        eye = torch.eye(block.size).double()
        for ekfac, error in ((False, block.error_kfac), (True, block.error_ekfac)):
            true = float((block.apply(eye, ekfac=ekfac) - exact).norm() / exact.norm())
            assert error == pytest.approx(true, rel=0.5), (name, ekfac, error, true)
            inverse = block.inverse(eye, 0.1, ekfac=ekfac)
            torch.testing.assert_close(inverse @ (block.apply(eye, ekfac=ekfac) + 0.1 * eye), eye, atol=1e-8, rtol=0)
        assert block.error_ekfac <= block.error_kfac * 1.05
    assert "K-FAC is off by" in str(found)
    with pytest.raises(ValueError, match="more than 0"):
        found["0"].inverse(eye, 0.0)


def test_one_example_and_one_output_are_exact():
    """A single outer product is a Kronecker product."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 1), nn.Identity()).double()
    batch = torch.randn(1, 3).double(), torch.randn(1, 1).double()
    found = kronecker(net, F.mse_loss, batch, labels=4000)["0"]
    assert found.error_kfac < 0.05 and found.error_ekfac < 0.05, (found.error_kfac, found.error_ekfac)


def test_convolutions_are_covered_and_what_is_not_is_listed():
    torch.manual_seed(0)

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.again, self.head = nn.Conv2d(2, 3, 3, padding=1), nn.Linear(3, 3), nn.Linear(3, 4)

        def forward(self, x):
            h = torch.tanh(self.conv(x)).mean((2, 3))
            return self.head(torch.tanh(self.again(torch.tanh(self.again(h)))))

    net = Twice().double()
    found = kronecker(net, F.cross_entropy, (torch.randn(12, 2, 5, 5).double(), torch.randint(0, 4, (12,))), labels=200)
    assert set(found.layers) == {"conv", "head"} and "2 times" in found.skipped["again"]
    assert found["head"].error_ekfac < 0.4 and found["conv"].error_ekfac < 0.9, str(found)
    with pytest.raises(KeyError, match="not a linear layer or convolution"):
        kronecker(net, F.cross_entropy, (torch.randn(2, 2, 5, 5).double(), torch.randint(0, 4, (2,))), nodes=["conw"])


@pytest.mark.parametrize("part", ["H", "GN"])
def test_influence_is_what_leaving_an_example_out_does(part):
    """Logistic regression with weight decay, trained to the bottom, with and without each example."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=g, dtype=torch.float64)
    y = ((x[:, 0] + 0.5 * torch.randn(60, generator=g, dtype=torch.float64)) > 0).long()
    tx, ty = torch.randn(16, 3, generator=g, dtype=torch.float64), torch.randint(0, 2, (16,), generator=g)
    decay = 0.1

    def fitted(keep):
        net = nn.Linear(3, 2).double()
        with torch.no_grad():
            for p in net.parameters():
                p.zero_()
        weight = keep.double() / len(x)  # left out: its term is gone, the others stay as they were
        optimizer = torch.optim.LBFGS(net.parameters(), max_iter=300, tolerance_grad=1e-12, tolerance_change=1e-16)

        def closure():
            optimizer.zero_grad()
            loss = (weight * F.cross_entropy(net(x), y, reduction="none")).sum()
            loss = loss + decay / 2 * sum(p.square().sum() for p in net.parameters())
            loss.backward()
            return loss

        for _ in range(5):
            optimizer.step(closure)
        return net

    whole = fitted(torch.ones(60))
    test_loss = lambda net: float(F.cross_entropy(net(tx), ty))
    true = []
    for i in range(60):
        keep = torch.ones(60)
        keep[i] = 0
        true.append(test_loss(fitted(keep)) - test_loss(whole))
    batches = [(x[:25], y[:25]), (x[25:], y[25:])]
    found = influence(whole, F.cross_entropy, batches, (tx, ty), part=part, damping=decay, tol=1e-8)
    assert np.corrcoef(found.left_out, true)[0, 1] > 0.99, np.corrcoef(found.left_out, true)[0, 1]
    assert 0.7 < np.polyfit(true, found.left_out, 1)[0] < 1.3, np.polyfit(true, found.left_out, 1)[0]
    assert found.helpful(1) == [int(np.argmax(true))] and "60 training examples" in str(found)


def test_influence_is_refused_where_examples_see_each_other():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))
    batch = torch.randn(8, 3), torch.randint(0, 2, (8,))
    with pytest.raises(ValueError, match="depends on other examples"):
        influence(net.train(), F.cross_entropy, batch, batch, damping=1.0)
    assert len(influence(net.eval(), F.cross_entropy, batch, batch, damping=1.0).left_out) == 8


def test_kronecker_factors_of_many_batches_are_means_over_their_examples():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    x, y = torch.randn(10, 3).double(), torch.randn(10, 2).double()
    parts = [(x[:7], y[:7]), (x[7:], y[7:])]
    one = kronecker(net, "mse", (x, y), labels=2000)
    many = kronecker(net, "mse", parts, labels=2000)
    for name in one.layers:
        torch.testing.assert_close(many[name].A, one[name].A)
        torch.testing.assert_close(many[name].G, one[name].G, rtol=0.15, atol=0.02 * float(one[name].G.norm()))
        assert abs(many[name].error_ekfac - one[name].error_ekfac) < 0.1
    with pytest.raises(ValueError, match="twice"):
        kronecker(net, "mse", iter(parts))
