"""The large part of a matrix taken out first: traces and diagonals against the dense Hessian in float64."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.curvature import diagonal, trace
from netvitals.curvature.matrices.deflation import Deflated, left_out
from netvitals.curvature.matrices.diagonals import _left_one_out


@pytest.fixture(scope="module")
def problem():
    """Few examples: Gauss–Newton has a rank of at most 12 in 115 parameters."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 11), nn.Tanh(), nn.Linear(11, 3)).double()
    return net, (torch.randn(6, 6).double(), torch.randint(0, 3, (6,)))


def dense(net, batch):
    names, values = zip(*net.named_parameters())
    flat = torch.cat([v.detach().reshape(-1) for v in values])
    sizes = [v.numel() for v in values]

    def f(w):
        parts = dict(zip(names, (p.view_as(v) for p, v in zip(w.split(sizes), values))))
        return F.cross_entropy(torch.func.functional_call(net, parts, (batch[0],)), batch[1])

    return torch.autograd.functional.hessian(f, flat), sizes


def test_what_is_known_and_what_is_left_add_up_to_the_diagonal():
    g = torch.Generator().manual_seed(0)
    a = torch.randn(9, 9, generator=g, dtype=torch.float64)
    h = a + a.mT
    large = Deflated.of(torch.randn(4, 9, generator=g, dtype=torch.float64))
    rest = torch.eye(9, dtype=torch.float64)
    # over the whole identity in place of signs, the samples are the columns' own entries
    left = large.samples(rest, large.cleaned(rest) @ h).sum(0)
    torch.testing.assert_close(large.known(large.basis @ h) + left, h.diagonal())


def test_a_matrix_of_low_rank_is_exact_once_it_is_taken_out(problem):
    net, batch = problem
    found = trace(net, F.cross_entropy, batch, probes=45, part="GN", method="hutch++")
    assert found.method == "hutch++" and found.total_stderr < 1e-9 * found.total
    exact = diagonal(net, F.cross_entropy, batch, part="GN", method="exact")
    assert found.total == pytest.approx(sum(float(v.sum()) for v in exact.values.values()), rel=1e-9)
    some = diagonal(net, F.cross_entropy, batch, part="GN", probes=45)
    assert some.method == "xdiag"
    for name, value in exact.values.items():
        torch.testing.assert_close(some.values[name], value, atol=1e-10, rtol=1e-7)


@pytest.mark.parametrize("method", ["hutchinson", "xdiag"])
def test_the_diagonal_is_that_of_the_dense_hessian_within_its_errors(problem, method):
    net, batch = problem
    h, _ = dense(net, batch)
    exact = diagonal(net, F.cross_entropy, batch, method="exact")
    torch.testing.assert_close(torch.cat([v.reshape(-1) for v in exact.values.values()]), h.diagonal())
    assert exact.method == "exact" and list(exact.values) == [n for n, _ in net.named_parameters()]
    z, errors = [], []
    for seed in range(20):
        found = diagonal(net, F.cross_entropy, batch, probes=30, seed=seed, method=method)
        off = torch.cat([v.reshape(-1) for v in found.values.values()]) - h.diagonal()
        error = torch.cat([v.reshape(-1) for v in found.stderr.values()])
        z.append((off / error.clamp_min(1e-12)).numpy())
        errors.append(float(off.norm()))
    z = np.stack(z)
    assert abs(z.mean()) < 0.2 and 0.75 < z.std() < 1.3, f"mean {z.mean():.2f}, spread {z.std():.2f}"


def test_it_pays_in_error_at_the_same_number_of_products():
    """Near a fit H is Gauss–Newton, and its eigenvalues fall quickly."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 2)).double()
    x = torch.randn(30, 6).double()
    batch = x, net(x).detach() + 0.01 * torch.randn(30, 2).double()
    true = sum(float(v.sum()) for v in diagonal(net, F.mse_loss, batch, method="exact").values.values())
    run = lambda method, seed: trace(net, F.mse_loss, batch, probes=45, seed=seed, method=method)
    off = {
        method: np.sqrt(np.mean([(run(method, s).total - true) ** 2 for s in range(12)]))
        for method in ("hutchinson", "hutch++")
    }
    assert off["hutch++"] < 0.5 * off["hutchinson"], off
    centred = lambda out, y: F.mse_loss(out - out.mean(0), y)  # examples see each other in the loss
    auto = trace(net, centred, batch, probes=45)
    assert auto.method == "hutch++" and "examples see each other" in str(auto)


def test_each_sample_is_left_to_what_the_other_products_do_not_span():
    g = torch.Generator().manual_seed(3)
    a = torch.randn(12, 12, generator=g, dtype=torch.float64)
    h, signs = a + a.mT, (torch.randint(0, 2, (4, 12), generator=g) * 2 - 1).double()
    found = _left_one_out(signs, signs @ h, lambda rows: rows @ h)
    for i, z in enumerate(signs):
        others = torch.linalg.qr((torch.cat([signs[:i], signs[i + 1 :]]) @ h).mT)[0]
        p = others @ others.mT
        torch.testing.assert_close(found[i], (p @ h).diagonal() + z * (h @ z - p @ h @ z))


def test_leaving_one_out_pays_in_the_error_of_a_diagonal():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 2)).double()
    x = torch.randn(30, 6).double()
    batch = x, net(x).detach() + 0.01 * torch.randn(30, 2).double()
    flat = lambda found: torch.cat([v.reshape(-1) for v in found.values.values()])
    exact = flat(diagonal(net, F.mse_loss, batch, method="exact"))
    run = lambda method, seed: diagonal(net, F.mse_loss, batch, probes=60, seed=seed, method=method)
    off = {m: np.mean([float((flat(run(m, s)) - exact).norm()) for s in range(6)]) for m in ("hutchinson", "xdiag")}
    assert run("auto", 0).method == "xdiag" and off["xdiag"] < 0.5 * off["hutchinson"], off


def test_plain_probes_go_on_where_it_does_not_pay():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16)).double()
    batch = torch.randn(200, 8).double(), torch.randn(200, 16).double()
    centred = lambda out, y: F.mse_loss(out - out.mean(0), y)  # examples see each other in the loss
    auto, plain = (trace(net, centred, batch, probes=12, method=m) for m in ("auto", "hutchinson"))
    assert auto.method == "hutchinson"
    np.testing.assert_allclose(auto.draws, plain.draws, rtol=1e-9)


def test_the_share_left_out_is_that_of_a_least_squares_fit():
    g = torch.Generator().manual_seed(0)
    rows = torch.randn(4, 9, generator=g, dtype=torch.float64) @ torch.diag(torch.logspace(0, -2, 9).double())
    shares = []
    for i in range(4):
        others = torch.cat([rows[:i], rows[i + 1 :]])
        fit = torch.linalg.lstsq(others.mT, rows[i]).solution
        shares.append(float((rows[i] - fit @ others).square().sum() / rows[i].square().sum()))
    assert left_out(rows) == pytest.approx(np.mean(shares), rel=1e-8)


def test_many_batches_and_words(problem):
    net, (x, y) = problem
    one = diagonal(net, F.cross_entropy, (x, y), probes=6, method="hutchinson")
    many = diagonal(net, F.cross_entropy, [(x[:2], y[:2]), (x[2:], y[2:])], probes=6, method="hutchinson")
    for name, value in one.values.items():
        torch.testing.assert_close(many.values[name], value)
    assert "diagonal of H" in str(one) and one.to_dict()["parameters"][0]["parameter"] == "0.weight"
    with pytest.raises(ValueError, match="at least 4"):
        diagonal(net, F.cross_entropy, (x, y), probes=3)
    with pytest.raises(ValueError, match="must be 'auto'"):
        trace(net, F.cross_entropy, (x, y), method="xtrace")
