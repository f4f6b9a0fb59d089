"""Gradient-sign statistics and the covariance split, against their definitions, and what BatchNorm does to them."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.capture import LinearView, Site, TensorView, observe
from netvitals.vitals import Drift


def signs(p, a, g):
    """By definition, g the gradient of each sample's own loss; arrays of (samples, units)."""
    on = p > 0
    units = [g[on[:, i], i].mean() > 0 for i in range(p.shape[1]) if on[:, i].any()]
    return {
        "g_pos": g[on].mean(),
        "g_all": g.mean(),
        "rho_pos": g[on].mean() / np.abs(g[on]).mean(),
        "rho_all": g.mean() / np.abs(g).mean(),
        "frac_units_pos": np.mean(units),
        "slope": (a * g)[on].sum() / (a[on] ** 2).sum(),
        "euler": (p * g).sum(1).mean(),
    }


@pytest.mark.parametrize("op", ["ReLU", "GELU", "Tanh"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_every_statistic_equals_its_definition(made, op, reduction):
    torch.manual_seed(0)
    f, n = getattr(nn, op)(), 40
    p = (torch.randn(n, 9, dtype=torch.float64) - 0.3).requires_grad_(True)
    p.data[:, 4] = -p.data[:, 4].abs()  # a unit that is never active
    a = f(p)
    a.retain_grad()
    head = torch.randn(9, 3, dtype=torch.float64)
    loss = F.mse_loss(a @ head, torch.randn(n, 3, dtype=torch.float64), reduction="none").sum(1)
    (loss.mean() if reduction == "mean" else loss.sum()).backward()
    per_sample = p.grad * (n if reduction == "mean" else 1)
    expected = signs(p.detach().numpy(), a.detach().numpy(), per_sample.numpy())
    view = made.activation(p.detach(), f, op=op)
    out = made.shown(Drift(reduction), view, grads=[a.grad])
    for metric, value in expected.items():
        assert out["act", metric] == pytest.approx(value, rel=1e-9, abs=1e-12), metric


def test_several_sites_read_what_each_reads_alone(made):
    torch.manual_seed(1)
    views = [made.activation(torch.randn(16, 8), torch.relu, op="relu", name=f"a{i}") for i in range(3)]
    g = torch.randn(3, 16, 8)
    alone = [made.shown(Drift(), s, grads=[gi]) for s, gi in zip(views, g)]
    together = made.shown(Drift(), *views, grads=list(g))
    for one in alone:
        for key, value in one.items():
            assert together[key] == pytest.approx(value, rel=1e-5), key


LAYERS = {
    "linear": (nn.Linear(6, 5), (8, 6)),
    "tokens": (nn.Linear(6, 5), (8, 3, 6)),
    "conv": (nn.Conv2d(6, 4, 3, padding=1), (8, 6, 7, 5)),
    "strided": (nn.Conv2d(6, 4, (3, 2), stride=2, dilation=(2, 1)), (8, 6, 9, 8)),
    "groups": (nn.Conv2d(6, 4, 3, groups=2, padding="same"), (8, 6, 7, 5)),
    "depthwise": (nn.Conv1d(6, 6, 5, groups=6), (8, 6, 12)),
    "volume": (nn.Conv3d(2, 3, 2), (4, 2, 4, 4, 4)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_split_adds_up_to_the_mean_weight_gradient(made, name):
    torch.manual_seed(2)
    layer, shape = LAYERS[name]
    layer = layer.double()
    layer.zero_grad()
    x = torch.randn(shape, dtype=torch.float64) + 0.5
    y = layer(x)
    y.retain_grad()
    (y.square() * torch.randn_like(y)).flatten(1).sum(1).mean().backward()
    view = LinearView(Site("l", "linear", type(layer).__name__, "input", -1, "l"), x, y.detach(), layer)
    out = made.shown(Drift(), view, grads=[y.grad])
    assert out["l", "tot"] == pytest.approx(float(layer.weight.grad.mean()), rel=1e-10)
    assert out["l", "tot"] == pytest.approx(out["l", "prod"] + out["l", "cov"], rel=1e-12)


def test_the_product_part_is_the_product_of_means_entry_by_entry(made):
    torch.manual_seed(3)
    layer, x, g = nn.Linear(4, 3).double(), torch.rand(20, 4).double(), torch.randn(20, 3).double()
    per_sample = 20 * g
    full = torch.einsum("ni,nk->ik", per_sample, x) / 20
    prod = per_sample.mean(0)[:, None] * x.mean(0)[None]
    view = LinearView(Site("l", "linear", "Linear", "input", -1, "l"), x, layer(x).detach(), layer)
    for reduction, scale in (("mean", 1), ("sum", 1 / 20)):
        out = made.shown(Drift(reduction), view, grads=[g])
        assert (out["l", "tot"], out["l", "prod"]) == pytest.approx(
            (scale * float(full.mean()), scale * float(prod.mean())), rel=1e-12
        )


@pytest.mark.parametrize("convolution", [False, True])
def test_batchnorm_after_the_layer_takes_the_mean_gradient_away(convolution):
    """D8: the gradient at its input sums to zero over the batch in every channel, so drift has no product part."""
    torch.manual_seed(4)
    if convolution:
        net = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 36, 4))
        x = torch.rand(16, 3, 8, 8)
    else:
        net = nn.Sequential(nn.Linear(12, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 4))
        x = torch.rand(16, 12)
    net, x = net.double(), x.double()
    y = torch.randint(0, 4, (16,))
    seen = observe(net, F.cross_entropy, (x, y), vitals=[Drift()], mode="train")
    read = {(r.site, r.metric): r.value for r in seen.measurements}
    assert abs(read["0", "prod"]) < 1e-13
    assert abs(read["0", "tot"]) > 1e-6
    hidden = net[0](x)
    hidden.retain_grad()
    F.cross_entropy(net[1:](hidden), y).backward()
    assert hidden.grad.transpose(0, 1).flatten(1).sum(1).abs().max() < 1e-13


def test_the_output_site_gives_the_euler_sum(made):
    o, g = torch.randn(7, 3), torch.randn(7, 3)
    view = TensorView(Site("output", "output", "Linear"), o)
    assert made.shown(Drift(), view, grads=[g])["output", "euler"] == pytest.approx(float((o * g).sum()), rel=1e-5)
    summed = made.shown(Drift("sum"), view, grads=[g])["output", "euler"]
    assert summed == pytest.approx(float((o * g).sum()) / 7, rel=1e-5)


def test_over_random_nets_the_gradient_on_positive_preactivations_is_positive(made):
    """Theorem 1.2, over re-initialisations: one net alone does not show it, its units share the weights downstream."""
    found = []
    for seed in range(32):
        net = made.relu_net([32, 64, 64, 10], seed=seed)
        for layer in net:
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_normal_(layer.weight)
        batch = torch.rand(32, 32).double(), torch.randint(0, 10, (32,))
        seen = observe(net, F.cross_entropy, batch, vitals=[Drift()], mode="train")
        found.append([r.value for r in seen.measurements if r.metric == "g_pos"])
    mean, stderr = np.mean(found, 0), np.std(found, 0, ddof=1) / 32**0.5
    assert mean.shape == (2,)
    assert (mean > 3 * stderr).all(), (mean, stderr)


def test_a_layer_of_another_kind_has_no_split_and_a_wrong_reduction_is_refused(made):
    layer, x = nn.ConvTranspose1d(2, 2, 1), torch.randn(1, 2, 3)
    view = LinearView(Site("l", "linear", "ConvTranspose1d", "input", 1, "l"), x, layer(x).detach(), layer)
    assert not made.shown(Drift(), view, grads=[torch.ones(1, 2, 3)])
    with pytest.raises(ValueError, match="'mean' or 'sum'"):
        Drift("max")
