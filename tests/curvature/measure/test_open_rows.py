"""Statements of the paper that need a closed form or an architecture of their own: infinite depth, dense nets."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.curvature import node_jacobians
from netvitals.curvature.measure.jacobians import gaussian_exponents, lyapunov


def test_the_exponent_of_infinite_depth_is_the_closed_form_of_gaussian_products():
    """Oseledets' limit, where it is known: −0.065 at width 8."""
    assert gaussian_exponents(8)[0] == pytest.approx(-0.0651, abs=1e-4)
    assert gaussian_exponents(8, scale=2.0)[0] == pytest.approx(gaussian_exponents(8)[0] + np.log(2))
    g = torch.Generator().manual_seed(0)
    chain = [torch.randn(12, 8, 8, generator=g, dtype=torch.float64) / 8**0.5 for _ in range(600)]
    found = lyapunov(chain)
    assert found.qr == pytest.approx(gaussian_exponents(8)[0], abs=4 * found.qr_stderr)
    np.testing.assert_allclose(found.spectrum[:4], gaussian_exponents(8)[:4], atol=0.02)


def test_at_the_depths_that_networks_have_the_exponents_still_differ_from_the_limit():
    """A linear network of 12 layers: the log-norm of Eq. 8 lies above the limit, as every finite depth does."""
    torch.manual_seed(0)
    layers = [nn.Linear(8, 8, bias=False) for _ in range(13)]
    for layer in layers:
        nn.init.normal_(layer.weight, 0, 8**-0.5)
    net = nn.Sequential(*layers).double()
    batch = torch.randn(4, 8).double(), torch.randn(4, 8).double()
    with node_jacobians(net, F.mse_loss, batch, nodes=[str(i) for i in range(13)]) as of:
        chain = [of.jacobian(b, a) for a, b in zip(of.names, of.names[1:])]
    found = lyapunov(chain)
    assert found.layers == 12 and found.eq8 > gaussian_exponents(8)[0]
    assert found.qr <= found.eq8 + 1e-12


def test_the_trained_phases_run_on_packed_images(tmp_path, monkeypatch):
    """The configuration of the paper's scale, on a few images of noise packed as a real subset is."""
    from dataclasses import replace

    from netvitals_lab.papers.dag_hessian.distance import STUDIES, trial, trials

    g = np.random.default_rng(0)
    draw = lambda n: {"x": g.integers(0, 256, (n, 8, 8, 3), dtype=np.uint8), "y": g.integers(0, 3, n)}
    train, test = draw(96), draw(40)
    np.savez(tmp_path / "cifar10-12k.npz", x_train=train["x"], y_train=train["y"], x_test=test["x"], y_test=test["y"])
    monkeypatch.setenv("NETVITALS_DATA", str(tmp_path))
    whole = replace(STUDIES[0].scales["paper"], trained_on="images:cifar10-12k.npz")
    few = replace(
        whole, depths=(), spectral_depths=(), trained_depths=(2,), deep=(), width=6, samples=4, epochs=2, seeds=(0,)
    )
    rows = [row for config in trials(few) for row in trial(config)]
    assert {r["phase"] for r in rows} >= {"init", "final"} and all(max(r["resonance"]) > 0 for r in rows)
