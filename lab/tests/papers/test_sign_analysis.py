"""P1: gradient signs over re-initialisations agree with the closed forms and with statistics computed by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.drift.signs import covariance_split, gradient_signs
from netvitals_lab import models
from netvitals_lab.papers.weight_drift.sign_analysis import analyse_signs
from netvitals_lab.theory import drift_signs as drift_theory

WIDTH, CLASSES = 64, 10


def mlp(act: str = "relu", norm: str = "none") -> nn.Module:
    return models.build(f"mlp:20-{WIDTH}x3-{CLASSES},act={act},norm={norm},bias=false,init=he")


def half_mse(o: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return 0.5 * (o - F.one_hot(y, CLASSES)).square().sum(1).mean()


@pytest.fixture(scope="module")
def batch():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 20, generator=generator)
    # with -x for every x the first layer's input has no mean in any direction
    return torch.cat([x, -x]), torch.randint(CLASSES, (128,), generator=generator)


@pytest.mark.slow
def test_slope_is_the_gain_of_the_theory(batch):
    analysis = analyse_signs(mlp, half_mse, batch, inits=64)
    gain = drift_theory.he_gain(WIDTH, CLASSES)
    for layer in analysis.activations.values():
        assert abs(layer["slope"].z(gain)) < 4.5, f"{layer.site}: slope {layer['slope']}, c_l = {gain}"
    assert analysis.positive, str(analysis)
    assert analysis.drifts == {"blocks.0.linear": 0, "blocks.1.linear": -1, "blocks.2.linear": -1, "head": 0}


@pytest.mark.slow
def test_tanh_has_a_positive_push_and_no_drift(batch):
    analysis = analyse_signs(lambda: mlp("tanh"), half_mse, batch, inits=48)
    assert analysis.positive  # D11: the sign test alone shows nothing
    assert set(analysis.drifts.values()) == {0}, str(analysis)
    assert all(abs(s["rho_all"].z(0)) < 4.5 for s in analysis.activations.values())


def test_batch_norm_takes_the_product_of_means_away(batch):
    analysis = analyse_signs(lambda: mlp(norm="batch"), F.cross_entropy, batch, inits=4)
    for name, layer in list(analysis.layers.items())[:-1]:
        assert abs(layer["prod"].value) < 1e-7, f"{name}: {layer}"  # D8


def test_one_initialisation_by_hand(batch):
    torch.manual_seed(7)
    net, (x, y) = mlp("gelu").double(), (batch[0].double(), batch[1])
    analysis = analyse_signs(lambda: net, F.cross_entropy, (x, y), inits=2)
    h, ps, xs = x, [], []
    for block in net.blocks:
        xs.append(h)
        ps.append(block.linear(h))
        h = block.act(ps[-1])
    grads = torch.autograd.grad(F.cross_entropy(net.head(h), y), ps)
    for i, (block, name) in enumerate(zip(net.blocks, analysis.activations)):
        signs = gradient_signs(ps[i], block.act(ps[i]), grads[i])
        for metric in ("g_pos", "g_all", "rho_pos", "rho_all", "frac_units_pos", "slope", "euler"):
            assert analysis.activations[name][metric].value == pytest.approx(getattr(signs, metric), rel=1e-10), metric
        split = covariance_split(block.linear, xs[i], grads[i])
        layer = analysis.layers[f"blocks.{i}.linear"]
        assert (layer["tot"].value, layer["prod"].value, layer["cov"].value) == pytest.approx(
            (split.tot, split.prod, split.cov), rel=1e-9
        )


def test_activations_that_work_in_place_are_seen_the_same(batch):
    def make(inplace: bool) -> nn.Module:
        return nn.Sequential(
            nn.Linear(20, 32), nn.ReLU(inplace), nn.Linear(32, 32), nn.ReLU(inplace), nn.Linear(32, 10)
        )

    seen = [analyse_signs(lambda i=i: make(i), F.cross_entropy, batch, inits=3) for i in (False, True)]
    assert seen[0].activations == seen[1].activations


def test_the_generator_is_left_alone_and_seeds_decide(batch):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = analyse_signs(mlp, F.cross_entropy, batch, inits=3, seed=5)
    assert torch.equal(before, torch.get_rng_state())
    assert first == analyse_signs(mlp, F.cross_entropy, batch, inits=3, seed=5)
    assert first != analyse_signs(mlp, F.cross_entropy, batch, inits=3, seed=6)


def test_bad_input_is_refused_in_words(batch):
    with pytest.raises(ValueError, match="at least 2"):
        analyse_signs(mlp, F.cross_entropy, batch, inits=1)
    with pytest.raises(ValueError, match="initialisation 0 is nan"):
        analyse_signs(mlp, lambda o, y: F.cross_entropy(o, y) * float("nan"), batch, inits=2)
    with pytest.raises(ValueError, match="no activation"):
        analyse_signs(lambda: nn.Linear(20, CLASSES), F.cross_entropy, batch, inits=2)
