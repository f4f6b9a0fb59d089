"""Where the neighbourhood stays open λ is the sampled one, with its error bar; and the five conditions of §12."""

import itertools
import math

import pytest
import torch
from torch import nn

from netvitals import optim
from netvitals.singular import readout, rlct_deep_linear, rlct_reduced_rank


def linear(widths, rank):
    """A linear network of some rank, its other units dead in every layer."""
    torch.manual_seed(1)
    layers = [nn.Linear(a, b, bias=False) for a, b in itertools.pairwise(widths)]
    with torch.no_grad():
        for layer in layers:
            layer.weight.zero_()[:rank, :rank] = torch.eye(rank)
    return nn.Sequential(*layers), torch.randn(80, widths[0])


def agrees(net, x, exact, chains=None):
    """The expectation at finite n is about (m − 1)/log nβ below λ."""
    lam, m = exact
    found = readout(net, "mse", x, units=1, chains=chains)
    assert not found.limit.resolved and found.sampled.ok, str(found)
    triple, below = found.triple, (m - 1) / math.log(found.sampled.nbeta)
    slack = 4 * triple.stderr + 0.05
    assert lam - below - slack < triple.lam < lam + slack and 0 < triple.stderr < 0.1 * lam + 0.05, str(found)
    assert math.isnan(triple.m) and math.isnan(triple.nu) and found.undetermined == ""
    assert triple.free_energy(found.n) == pytest.approx(triple.lam * math.log(found.n))
    assert "m = not known" in str(triple) and "with the sampled λ" in str(found)


def test_a_three_layer_linear_network_at_its_singular_point(monkeypatch):
    monkeypatch.setattr("netvitals.singular.checkpoint.readout.ALONE", 250)  # the slow test below has all draws
    agrees(*linear((2, 1, 1, 2), 0), rlct_deep_linear((2, 1, 1, 2), 0), chains=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("widths", "rank"), [((2, 2, 2, 2), 1), ((3, 2, 2, 3), 1), ((2, 2, 2, 2, 2), 1), ((4, 4, 4), 2), ((4, 3, 4), 1)]
)
def test_several_dead_units_and_layers(widths, rank):
    exact = rlct_deep_linear(widths, rank) if len(widths) > 3 else rlct_reduced_rank(*widths, rank)
    agrees(*linear(widths, rank), exact)


def test_large_networks_are_not_sampled_unless_it_is_asked_for():
    net, x = nn.Sequential(nn.Linear(30, 40), nn.Tanh(), nn.Linear(40, 2)), torch.randn(20, 30)
    found = readout(net, "mse", x, units=1)
    assert found.triple is None and found.sampled is None
    assert "1,322 parameters" in found.undetermined and "chains=4" in found.undetermined
    assert found.undetermined in " ".join(str(found).split())


def conditions(net, x, y, loss="mse", **options):
    return readout(net, loss, (x, y), units=1, chains=0, **options).conditions


def dead_unit(turn=None):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3, bias=False), nn.Linear(3, 4, bias=False)).double()
    with torch.no_grad():
        net[0].weight[0], net[1].weight[:, 0] = 0, 0
        if turn is not None:
            net[0].weight.copy_(turn @ net[0].weight)
            net[1].weight.copy_(net[1].weight @ turn.T)
    return net, torch.randn(60, 4).double()


def test_the_noise_regime_is_read_off_the_targets():
    net, x = dead_unit()
    y = net(x).detach()
    assert conditions(net, x, y + torch.randn_like(y))["noise regime"].startswith("holds: the residual is")
    assert conditions(net, x, y)["noise regime"].startswith("fails: noise-free")
    assert (
        readout(net, "mse", x, units=1, chains=0).conditions["noise regime"].startswith("not checked: the batch has no")
    )
    assert conditions(net, x, torch.arange(60) % 2, "ce")["noise regime"].startswith("holds")


def test_the_optimiser_is_checked_where_it_is_given():
    net, x = dead_unit()
    y = torch.randn(60, 4).double()
    assert "give optimizer=" in conditions(net, x, y)["equivariant optimiser"]
    adam = conditions(net, x, y, optimizer=torch.optim.Adam(net.parameters()))["equivariant optimiser"]
    assert adam.startswith("fails: Adam")
    gauges = [optim.relu_rescale(net[0].weight, net[1].weight)]
    ours = conditions(net, x, y, optimizer=optim.DDCAdam(net.parameters(), gauges))["equivariant optimiser"]
    assert ours == "holds for the 1 gauges of DDCAdam"
    none = conditions(net, x, y, optimizer=optim.DDCAdam(net.parameters()))["equivariant optimiser"]
    assert none.startswith("fails")


def test_a_direction_that_is_no_unit_is_not_aligned():
    y = torch.randn(60, 4).double()
    assert conditions(*dead_unit(), y)["canonical alignment"].startswith("holds")
    turn = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(0)))[0].double()
    assert conditions(*dead_unit(turn), y)["canonical alignment"].startswith("fails")


def test_a_scan_that_begins_at_the_noise_floor_is_no_window():
    net, x = dead_unit()
    y = torch.randn(60, 4).double()
    assert conditions(net, x, y)["asymptotic window"].startswith("holds: scans begin")
    sunk = conditions(net, x, y, scan=(1e-16, 1e-15, 1e-2, 1e-1, 1.0))["asymptotic window"]
    assert sunk.startswith("fails") and "noise floor" in sunk and "scan=" in sunk
