"""Traces by tensor against the exact Hessian."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.curvature import trace


def test_traces_of_all_tensors_from_one_pass(case, bench):
    model, loss, batch, _ = case
    reference, sizes = bench.parameter_hessian(model, loss, batch)
    exact = dict(zip(sizes, [float(d.sum()) for d in reference.diag().split(list(sizes.values()))]))
    found = trace(model, loss, batch, probes=200)
    assert found.names == tuple(exact)
    for name, value in exact.items():
        assert abs(found.by_tensor[name] - value) <= 4 * found.by_tensor_stderr[name] + 1e-9, name
    assert abs(found.total - sum(exact.values())) <= 4 * found.total_stderr
    assert found.total == pytest.approx(sum(found.by_tensor.values()))
    assert found.draws.shape == (200, len(sizes))


def test_parts_add_up(case):
    model, loss, batch, _ = case
    whole, gn, t = (trace(model, loss, batch, probes=20, part=p, method="hutchinson") for p in ("H", "GN", "T"))
    np.testing.assert_allclose(whole.draws, gn.draws + t.draws, atol=1e-10)
    assert gn.draws.sum(1).min() >= -1e-10  # GN is positive semidefinite, so every quadratic form is


def test_error_bars_are_honest():
    net = deep()
    batch = (torch.randn(16, 6).double(), torch.randint(0, 3, (16,)))
    exact = trace(net, F.cross_entropy, batch, probes=4000, seed=999).total
    runs = [trace(net, F.cross_entropy, batch, probes=20, seed=s) for s in range(100)]
    inside = sum(abs(r.total - exact) <= 3 * r.total_stderr for r in runs)
    assert inside >= 95 and np.std([r.total for r in runs]) > 0


def test_frozen_and_unused_parameters_are_left_out():
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    net.spare = nn.Linear(2, 2)
    net.forward = lambda x: net[2](net[1](net[0](x)))
    net[0].weight.requires_grad_(False)
    found = trace(net, F.mse_loss, (torch.randn(5, 4), torch.randn(5, 2)), probes=4)
    assert found.names == ("0.bias", "2.weight", "2.bias")
    assert "±" in str(found)


def test_gaussian_probes_work_too():
    net = nn.Linear(3, 2).double()
    batch = (torch.randn(8, 3).double(), torch.randn(8, 2).double())
    a, b = (trace(net, F.mse_loss, batch, probes=2000, distribution=d) for d in ("rademacher", "gaussian"))
    assert abs(a.total - b.total) < 4 * np.hypot(a.total_stderr, b.total_stderr)


def deep():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def test_the_seed_alone_decides_whatever_the_memory():
    net = deep()
    batch = (torch.randn(16, 6).double(), torch.randint(0, 3, (16,)))
    wide, tight = (trace(net, F.cross_entropy, batch, probes=40, memory=m) for m in (1 << 30, 30_000))
    np.testing.assert_allclose(wide.draws, tight.draws, rtol=1e-9)
    fewer = trace(net, F.cross_entropy, batch, probes=7)
    again = trace(net, F.cross_entropy, batch, probes=7, seed=1)
    assert not np.allclose(fewer.draws, again.draws)


def test_refuses_a_single_probe():
    with pytest.raises(ValueError, match="at least 2"):
        trace(nn.Linear(2, 1), F.mse_loss, (torch.randn(3, 2), torch.randn(3, 1)), probes=1)
