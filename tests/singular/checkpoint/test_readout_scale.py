"""A readout speaks for n samples: it compares distances and λ with n, and refuses where the limit is not reached."""

import math

import pytest
import torch
from torch import nn

from netvitals.singular import readout


def near_dead(distance):
    """Three tanh units, the last of which has weights of about this size."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Tanh(), nn.Linear(3, 2, bias=False))
    with torch.no_grad():
        net[0].weight[2] = distance * torch.tensor([1.0, -0.5, 0.3])
        net[2].weight[:, 2] = distance * torch.tensor([0.7, -0.5])
    return net, torch.randn(60, 3)


def fitted():
    """tanh 2-4-1 fitted to one unit: 17 parameters, most of which hardly matter."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    x = torch.randn(24, 2).double()
    y = torch.tanh(x[:, :1] - 0.5 * x[:, 1:])
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=40)

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        return loss

    optimizer.step(closure)
    return net, x


def test_a_fitted_network_is_no_regular_point_at_ten_thousand_samples():
    net, x = fitted()
    found = readout(net, "mse", x, units=1, chains=2)
    assert (found.limit.lam, found.limit.singular) == (8.5, 0)
    assert found.whole.lam is None and found.sampled.mean < 5.5, str(found)
    assert found.triple.lam == found.sampled.mean and math.isnan(found.triple.m), "the sampled value stands in"
    assert "its limit is 8.5, as at a regular point, and for n = 10,000" in str(found)
    assert f"by sampling: λ = {found.sampled.mean:.4g} ± {found.sampled.stderr:.2g}" in str(found)


@pytest.mark.parametrize("loss", ["mse", "ce"])
def test_a_regular_model_agrees_with_its_sampled_coefficient(loss):
    torch.manual_seed(0)
    found = readout(nn.Linear(3, 3, bias=False), loss, torch.randn(60, 3))
    lam = 4.5 if loss == "mse" else 3.0  # a shift of all logits is free
    assert (found.triple.lam, found.triple.m) == (lam, 1) and found.whole == found.limit
    assert found.sampled.mean == pytest.approx(lam, abs=3 * found.sampled.stderr + 0.1)


def test_more_samples_tell_a_checkpoint_from_the_singular_point_beside_it():
    net, x = near_dead(0.001)
    few, many = (readout(net, "mse", x, units=1, n=n, chains=0) for n in (10**6, 10**15))
    (hit,) = few.of("singular")
    assert hit.kind == "joint mode" and 0 < hit.nats < 1 and few.limit.sheets == (3, 2)
    assert not many.of("singular") and many.limit.sheets is None, str(many)
    apart = next(c for c in many.candidates if c.name == hit.name)
    assert apart.verdict == "regular" and apart.nats == pytest.approx(hit.nats * 1e9, rel=1e-9)
    assert "the samples tell it from the checkpoint" in apart.why
    # n K of taking the unit out: ½ n Σ (c tanh(a x))²
    a, c = net[0].weight[2].double(), net[2].weight[:, 2].double()
    exact = 10**6 * 0.5 * (torch.tanh(x.double() @ a).square().mean() * c.square().sum())
    assert hit.nats == pytest.approx(exact.item(), rel=1e-6)


def test_without_chains_there_is_a_limit_and_no_coefficient():
    found = readout(nn.Linear(3, 2), "mse", torch.randn(60, 3), chains=0)
    assert found.limit.lam == 4.0 and found.triple is None and found.sampled is None
    assert "no chains sampled it" in str(found)
    for wrong in ({"n": 2}, {"chains": -1}):
        with pytest.raises(ValueError, match="n= is the number of samples"):
            readout(nn.Linear(3, 2), "mse", torch.randn(60, 3), **wrong)
