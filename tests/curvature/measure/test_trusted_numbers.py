"""Numbers that others act on: residuals of eigenvalues, the direction of an escape, the margin of a jump."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.curvature import operators, top_eigenvalues
from netvitals.curvature.advice.steps import escape_step
from netvitals.curvature.engine.operator import Operator
from netvitals.vitals.curvature import Curvature


def test_a_residual_is_the_residual_and_bounds_the_error():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3)).double()
    batch = (torch.randn(20, 6).double(), torch.randint(0, 3, (20,)))
    found = top_eigenvalues(net, F.cross_entropy, batch, k=3, most=12, tol=0.0)
    with operators(net, F.cross_entropy, batch) as of:
        h = of.whole().dense()
    left = (found.vectors @ h - torch.tensor(found.values)[:, None] * found.vectors).norm(dim=1)
    np.testing.assert_allclose(found.residuals, left, rtol=1e-6)
    assert found.residuals.max() > 1e-4, "too converged to tell anything"
    true = torch.linalg.eigvalsh(h)
    for value, residual in zip(found.values, found.residuals):
        nearest = float((true - value).abs().min())
        assert nearest <= residual * (1 + 1e-9), f"{value} ± {residual} is {nearest} from an eigenvalue"


@pytest.mark.parametrize("seed", range(6))
def test_an_escape_goes_down_the_slope_whichever_way_its_vector_points(seed):
    g = torch.Generator().manual_seed(seed)
    q, _ = torch.linalg.qr(torch.randn(8, 8, generator=g, dtype=torch.float64))
    h = (q * torch.tensor([-2.0, 1, 2, 3, 4, 5, 6, 7], dtype=torch.float64)) @ q.mT
    saddle = Operator((8, 8), torch.float64, lambda z: z @ h, lambda z: z @ h)
    for slope in (torch.randn(8, generator=g, dtype=torch.float64), q[:, 0], -q[:, 0]):
        step = escape_step(saddle, slope, length=0.3, seed=seed).step
        assert float(slope @ step) < 0, f"the step climbs: gradient times step is {float(slope @ step):.3g}"
        assert float(step @ h @ step) == pytest.approx(-2 * 0.09)


def test_a_change_within_its_error_bars_is_no_jump():
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    seen = Curvature(net, nn.MSELoss(), (torch.randn(4, 2), torch.randn(4, 1)), share=1.0, factor=2.0)
    found = seen.measure(0)
    noisy = lambda value, error: _with(found, resonance=value, resonance_stderr=error)
    ones = np.ones_like(found.resonance)
    assert not seen._compare(1, noisy(ones, 0.9 * ones), noisy(3 * ones, 0.9 * ones))  # 2 is less than 2 · 1.27
    jumps = seen._compare(1, noisy(ones, 0.5 * ones), noisy(3 * ones, 0.5 * ones))  # and more than 2 · 0.71
    assert {j.metric for j in jumps} == {"resonance"}, [str(j) for j in jumps]


def _with(found, **changed):
    from dataclasses import replace

    return replace(found, **changed)
