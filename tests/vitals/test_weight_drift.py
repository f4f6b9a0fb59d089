"""Drift statistics of weights, every row of the table, against numpy in float64."""

import numpy as np
import pytest
import torch
from torch import nn

from netvitals.drift import role, weight_drift
from netvitals.vitals import Drift


def table(w, w0, g=None):
    w, w0 = (t.double().numpy().ravel() for t in (w, w0))
    delta = w - w0
    out = {
        "weight_mean": w.mean(),
        "weight_std": w.std(ddof=1),
        "min": w.min(),
        "max": w.max(),
        "norm": np.sqrt((w**2).sum()),
        "neg_fraction": (w < 0).mean(),
        "pos_fraction": (w > 0).mean(),
        "extreme_threshold": np.quantile(np.abs(w), 0.999),
        "drift_z": delta.mean() / (0.5 * (w0.std(ddof=1) + w.std(ddof=1) + 1e-8)),
        "drift_t": delta.mean() * np.sqrt(w.size) / delta.std(ddof=1),
    }
    if g is not None:
        g = g.double().numpy()
        out |= {"grad_mean_abs": np.abs(g).mean(), "grad_norm": np.sqrt((g**2).sum())}
    return out


@pytest.fixture
def trained():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3),
        nn.Flatten(),
        nn.Linear(8, 40),
        nn.ReLU(),
        nn.Linear(40, 40),
        nn.Linear(40, 40),
    )
    initial = {n: p.detach().clone() for n, p in net.named_parameters()}
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.05 * torch.randn_like(p) - 0.02)
        net[8].weight[0] = 0.0
    grads = {n: torch.randn_like(p) for n, p in net.named_parameters()}
    return net, initial, grads


def test_every_row_of_the_table_for_every_tensor(made, trained):
    net, initial, grads = trained
    out = made.shown(Drift(), parameters=made.parameter_view(net, initial, grads))
    for name, p in net.named_parameters():
        for metric, value in table(p.detach(), initial[name], grads[name]).items():
            assert out[name, metric] == pytest.approx(value, rel=2e-4, abs=1e-6), (name, metric)


def test_the_pure_function_is_exact(trained):
    net, initial, _ = trained
    for name, p in net.named_parameters():
        found = weight_drift(p, initial[name])
        for metric, value in table(p.detach(), initial[name]).items():
            assert getattr(found, metric) == pytest.approx(value, rel=1e-10, abs=1e-12), (name, metric)


def test_roles_are_averaged_apart(made, trained):
    net, initial, grads = trained
    out = made.shown(Drift(), parameters=made.parameter_view(net, initial, grads))
    named = dict(net.named_parameters())
    modules = dict(net.named_modules())
    for who in ("weight", "bias", "norm_gain", "norm_shift"):
        mine = [n for n in named if role(n, named[n], modules) == who]
        assert out[f"model/{who}", "drift_z"] == pytest.approx(np.mean([out[n, "drift_z"] for n in mine]), abs=1e-6)
        assert out[f"model/{who}", "neg_fraction"] == pytest.approx(np.mean([out[n, "neg_fraction"] for n in mine]))


@pytest.mark.parametrize(
    ("name", "module", "shape", "expected"),
    [
        ("a.weight", nn.Linear(2, 2), (2, 2), "weight"),
        ("a.bias", nn.Linear(2, 2), (2,), "bias"),
        ("a.weight", nn.LayerNorm(2), (2,), "norm_gain"),
        ("a.bias", nn.GroupNorm(1, 2), (2,), "norm_shift"),
        ("a.weight", nn.Embedding(3, 2), (3, 2), "embedding"),
        ("a.in_proj_weight", nn.MultiheadAttention(2, 1), (6, 2), "weight"),
        ("a.pos", nn.Module(), (4, 2), "other"),
        ("a.weight", nn.PReLU(), (1,), "other"),
    ],
)
def test_what_a_parameter_is(name, module, shape, expected):
    assert role(name, torch.zeros(shape), {"a": module}) == expected


def test_no_drift_at_the_start_and_nothing_unknown_is_written(made, trained):
    net, _, _ = trained
    start = {n: p.detach().clone() for n, p in net.named_parameters()}
    out = made.shown(Drift(), parameters=made.parameter_view(net, start))
    assert all(out[n, "drift_z"] == 0 for n in start)
    assert not any(metric == "grad_norm" for _, metric in out)
    bare = made.shown(Drift(), parameters=made.parameter_view(net))
    assert not any(metric.startswith("drift") for _, metric in bare)


def test_weights_are_read_at_a_distance_of_steps(made, trained):
    net, initial, _ = trained
    drift = Drift(min_steps=10)
    view = made.parameter_view(net, initial)
    read = [step for step in range(25) if made.shown(drift, parameters=view, step=step)]
    assert read == [0, 10, 20]
    assert made.shown(drift, parameters=view, step=3)  # a new run with the same instance


def test_initial_values_of_another_model_are_not_remembered(made):
    drift = Drift()
    for scale in (1.0, 5.0):
        net = nn.Linear(30, 30)
        initial = {n: scale * torch.randn_like(p) for n, p in net.named_parameters()}
        out = made.shown(drift, parameters=made.parameter_view(net, initial))
        expected = table(net.weight.detach(), initial["weight"])
        assert out["weight", "drift_z"] == pytest.approx(expected["drift_z"], rel=1e-4)


def test_wrong_input_gets_a_sentence():
    with pytest.raises(ValueError, match=r"must have the same shape, got \(2,\) and \(3,\)"):
        weight_drift(torch.zeros(2), torch.zeros(3))
    with pytest.raises(ValueError, match="empty"):
        weight_drift(torch.zeros(0), torch.zeros(0))
    with pytest.raises(ValueError, match="'mean' or 'sum'"):
        Drift(reduction="none")
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Drift(min_steps=0)
