"""Gradient signs over re-initialisations agree with the closed forms and with statistics computed by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals import drift
from netvitals_lab import models
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
    analysis = drift.signs(mlp, half_mse, batch, inits=64)
    gain = drift_theory.he_gain(WIDTH, CLASSES)
    for layer in analysis.activations.values():
        assert abs(layer["slope"].z(gain)) < 4.5, f"{layer.site}: slope {layer['slope']}, c_l = {gain}"
    assert analysis.positive, str(analysis)
    assert analysis.drifts == {"blocks.0.linear": 0, "blocks.1.linear": -1, "blocks.2.linear": -1, "head": 0}


@pytest.mark.slow
def test_tanh_has_a_positive_push_and_no_drift(batch):
    analysis = drift.signs(lambda: mlp("tanh"), half_mse, batch, inits=48)
    assert analysis.positive  # D11: the sign test alone shows nothing
    assert set(analysis.drifts.values()) == {0}, str(analysis)
    assert all(abs(s["rho_all"].z(0)) < 4.5 for s in analysis.activations.values())


def test_batch_norm_takes_the_product_of_means_away(batch):
    analysis = drift.signs(lambda: mlp(norm="batch"), F.cross_entropy, batch, inits=4)
    for name, layer in list(analysis.layers.items())[:-1]:
        assert abs(layer["prod"].value) < 1e-7, f"{name}: {layer}"  # D8


def by_hand(net, x, y):
    """The statistics of one initialisation by their definitions: {(place, metric): value}."""
    h, ps, xs = x, [], []
    for block in net.blocks:
        xs.append(h)
        ps.append(block.linear(h))
        h = block.act(ps[-1])
    grads = torch.autograd.grad(F.cross_entropy(net.head(h), y), ps)
    found = {}
    for i, block in enumerate(net.blocks):
        p, g, on = ps[i].detach(), len(x) * grads[i], ps[i].detach() > 0
        a, name = block.act(p), f"blocks.{i}"
        units = [g[on[:, u], u].mean() > 0 for u in range(p.shape[1]) if on[:, u].any()]
        found |= {
            (name, "g_pos"): g[on].mean(),
            (name, "g_all"): g.mean(),
            (name, "rho_pos"): g[on].sum() / g[on].abs().sum(),
            (name, "rho_all"): g.sum() / g.abs().sum(),
            (name, "frac_units_pos"): torch.stack(units).double().mean(),
            (name, "slope"): (a * g)[on].sum() / a[on].square().sum(),
            (name, "euler"): (p * g).sum(1).mean(),
            (name, "tot"): (g.T @ xs[i].detach() / len(x)).mean(),
            (name, "prod"): (g.mean(0)[:, None] * xs[i].detach().mean(0)).mean(),
        }
    return {key: float(v) for key, v in found.items()}


def test_the_means_over_initialisations_by_hand(batch):
    x, y = batch[0].double(), batch[1]
    analysis = drift.signs(lambda: mlp("gelu").double(), F.cross_entropy, (x, y), inits=3)
    each = []
    for seed in range(3):
        torch.manual_seed(seed)
        each.append(by_hand(mlp("gelu").double(), x, y))
    for name, metric in each[0]:
        values = torch.tensor([e[name, metric] for e in each], dtype=torch.float64)
        layer = metric in ("tot", "prod")
        at = analysis.layers[f"{name}.linear"] if layer else analysis.activations[f"{name}.act"]
        assert at[metric].value == pytest.approx(float(values.mean()), rel=1e-9), (name, metric)
        assert at[metric].stderr == pytest.approx(float(values.std()) / 3**0.5, rel=1e-6), (name, metric)


def test_activations_that_work_in_place_are_seen_the_same(batch):
    def make(inplace: bool) -> nn.Module:
        return nn.Sequential(
            nn.Linear(20, 32), nn.ReLU(inplace), nn.Linear(32, 32), nn.ReLU(inplace), nn.Linear(32, 10)
        )

    seen = [drift.signs(lambda i=i: make(i), F.cross_entropy, batch, inits=3) for i in (False, True)]
    assert seen[0].activations == seen[1].activations


def test_the_generator_is_left_alone_and_seeds_decide(batch):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = drift.signs(mlp, F.cross_entropy, batch, inits=3, seed=5)
    assert torch.equal(before, torch.get_rng_state())
    assert first == drift.signs(mlp, F.cross_entropy, batch, inits=3, seed=5)
    assert first != drift.signs(mlp, F.cross_entropy, batch, inits=3, seed=6)


def test_bad_input_is_refused_in_words(batch):
    with pytest.raises(ValueError, match="at least 2"):
        drift.signs(mlp, F.cross_entropy, batch, inits=1)
    with pytest.raises(ValueError, match="initialisation 0 is nan"):
        drift.signs(mlp, lambda o, y: F.cross_entropy(o, y) * float("nan"), batch, inits=2)
    with pytest.raises(TypeError, match="makes a new model"):
        drift.signs(mlp(), F.cross_entropy, batch)
    with pytest.raises(TypeError, match=r"must return a torch\.nn\.Module, got a NoneType"):
        drift.signs(lambda: None, F.cross_entropy, batch)
    net = mlp()
    with pytest.raises(ValueError, match="the same weights twice"):
        drift.signs(lambda: net, F.cross_entropy, batch)
    with pytest.raises(TypeError, match="holds no loss"):
        drift.signs(mlp, None, batch)
    with pytest.raises(ValueError, match="no activation"):
        drift.signs(lambda: nn.Linear(20, CLASSES), F.cross_entropy, batch, inits=2)
