"""Agreement with another library, where it is installed."""

import pytest
import torch
from torch import nn

from netvitals.curvature import operators, spectral_density, top_eigenvalues, trace

curvlinops = pytest.importorskip("curvlinops")


@pytest.fixture
def problem():
    net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 4)).double()
    return net, nn.CrossEntropyLoss(), (torch.randn(12, 5).double(), torch.randint(0, 4, (12,)))


def test_products_with_h_and_gn_agree(problem):
    net, loss, batch = problem
    z = torch.randn(sum(p.numel() for p in net.parameters()), dtype=torch.float64)
    with operators(net, loss, batch) as of:
        for part, kind in (("H", curvlinops.HessianLinearOperator), ("GN", curvlinops.GGNLinearOperator)):
            theirs = kind(net, loss, list(net.parameters()), [batch], check_deterministic=False)
            torch.testing.assert_close(of.whole(part) @ z, theirs @ z)


def test_trace_and_spectrum_agree(problem):
    net, loss, batch = problem
    h = curvlinops.HessianLinearOperator(net, loss, list(net.parameters()), [batch], check_deterministic=False)
    dense = h @ torch.eye(h.shape[1], dtype=torch.float64)
    found = trace(net, loss, batch, probes=400)
    assert abs(found.total - float(dense.trace())) <= 4 * found.total_stderr
    top = top_eigenvalues(net, loss, batch, k=2, tol=1e-8)
    assert top.values == pytest.approx(torch.linalg.eigvalsh(dense).flip(0)[:2].tolist(), rel=1e-6)
    assert spectral_density(net, loss, batch, steps=10, runs=3).size == len(dense)
