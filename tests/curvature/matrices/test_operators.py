"""Matrices that people use elsewhere: Fisher, patterns, diagonals, inverses, scipy, life after ``with``."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.curvature import operators
from netvitals.curvature.matrices.solving import damped_inverse, solved


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.mid, self.head = nn.Embedding(5, 3), nn.Linear(3, 4), nn.Linear(4, 5)

    def forward(self, ids):
        return self.head(torch.tanh(self.mid(self.tok(ids))))


def cases():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    x = torch.randn(7, 4).double()
    ids = torch.randint(0, 5, (3, 6))
    ragged = ids.clone()
    ragged[0, 3:] = -100
    token_loss = lambda o, y: F.cross_entropy(o.flatten(0, 1), y.flatten())
    return {
        "classes": (net, F.cross_entropy, (x, torch.randint(0, 3, (7,)))),
        "values": (net, F.mse_loss, (x, torch.randn(7, 3).double())),
        "labels": (net, F.binary_cross_entropy_with_logits, (x, torch.randint(0, 2, (7, 3)).double())),
        "tokens": (Tokens().double(), token_loss, (ids, ids.roll(1, 1))),
        "tokens that are ignored": (Tokens().double(), token_loss, (ids, ragged)),
    }


def jacobian(net, x):
    names, values = zip(*net.named_parameters())
    flat = torch.cat([v.detach().reshape(-1) for v in values])
    sizes = [v.numel() for v in values]

    def f(w):
        parts = dict(zip(names, (p.view_as(v) for p, v in zip(w.split(sizes), values))))
        return torch.func.functional_call(net, parts, (x,))

    return torch.autograd.functional.jacobian(f, flat), f(flat).detach()


def fishers(name):
    """The exact and the empirical Fisher matrix from dense Jacobians, by their definitions."""
    net, _, (x, y) = cases()[name]
    j, out = jacobian(net, x)
    exact = torch.zeros(j.shape[-1], j.shape[-1], dtype=torch.float64)
    empirical = exact.clone()
    if name in ("classes", "tokens", "tokens that are ignored"):
        j, p, labels = (
            j.reshape(-1, out.shape[-1], j.shape[-1]),
            out.softmax(-1).reshape(-1, out.shape[-1]),
            y.flatten(),
        )
        count = int((labels >= 0).sum())
        for ju, pu, yu in zip(j, p, labels):
            if yu >= 0:
                exact += ju.mT @ (torch.diag(pu) - torch.outer(pu, pu)) @ ju / count
                g = ju.mT @ (pu - F.one_hot(yu, len(pu)))
                empirical += torch.outer(g, g) / count
    else:
        n, k = out.shape
        for ju, fu, yu in zip(j, out, y):
            if name == "values":
                curve, slope = 2 / k * torch.eye(k, dtype=torch.float64), 2 / k * (fu - yu)
            else:
                p = fu.sigmoid()
                curve, slope = torch.diag(p * (1 - p)) / k, (p - yu) / k
            exact += ju.mT @ curve @ ju / n
            g = ju.mT @ slope
            empirical += torch.outer(g, g) / n
    return exact, empirical


@pytest.mark.parametrize("name", list(cases()))
def test_fisher_matrices_are_those_of_their_definitions(name):
    net, loss, batch = cases()[name]
    exact, empirical = fishers(name)
    with operators(net, loss, batch, labels=4000) as of:
        torch.testing.assert_close(of.whole("fisher").dense(), exact, atol=1e-12, rtol=1e-8)
        torch.testing.assert_close(of.whole("fisher-empirical").dense(), empirical, atol=1e-12, rtol=1e-8)
        off = float((of.whole("fisher-mc").dense() - exact).norm() / exact.norm())
        assert off < 0.1, f"4000 drawn labels are {off:.2f} off"
        with pytest.raises(ValueError, match="must be one of 'H'"):
            of.whole("fischer") @ torch.ones(exact.shape[0]).double()


def test_a_loss_that_is_no_likelihood_has_no_fisher_matrix():
    net, _, (x, y) = cases()["values"]
    quartic = operators(net, lambda o, t: (o - t).pow(4).mean(), (x, y))
    with pytest.raises(ValueError, match="Use part='GN'"):
        quartic.whole("fisher").dense()


def test_patterns_diagonals_and_blocks_are_cut_from_the_whole():
    net, loss, batch = cases()["classes"]
    with operators(net, loss, batch) as of:
        h = of.whole().dense()
        torch.testing.assert_close(of.submatrix("0.*").dense(), h[:25, :25])
        torch.testing.assert_close(of.submatrix("0.*", "2.*", "GN").dense(), of.whole("GN").dense()[:25, 25:])
        biases = [*range(20, 25), *range(40, 43)]
        torch.testing.assert_close(of.submatrix(["*.bias"]).T.dense(), h[biases][:, biases])
        given = of.whole("fisher-empirical").dense()
        torch.testing.assert_close(of.block("0.weight", "2.bias", "fisher-empirical").dense(), given[:20, 40:])
        torch.testing.assert_close(of.whole().diagonal(), h.diagonal())
        with pytest.raises(KeyError, match=r"no node matches '1\.\*'"):
            of.submatrix("1.*")


def test_operators_live_on_after_the_block_and_follow_the_model():
    net, loss, batch = cases()["classes"]
    with operators(net, loss, batch) as of:
        whole, block = of.whole(), of.block("0.weight", "2.weight")
        h, b = whole.dense(), block.dense()
    torch.testing.assert_close(whole.dense(), h)
    torch.testing.assert_close(block.dense(), b)
    with torch.no_grad():
        net[2].weight.mul_(2)
    moved = whole.dense()
    assert not torch.allclose(moved, h)
    lazy = operators(net, loss, batch)  # never entered
    torch.testing.assert_close(lazy.whole().dense(), moved)
    assert lazy.names[0] == "0.weight" and net[0].weight.grad is None and net[0].weight.requires_grad
    parts = lazy.split(moved[0])
    assert parts["0.weight"].shape == (5, 4)
    torch.testing.assert_close(lazy.joined(parts), moved[0])
    assert float(lazy.joined({"0.bias": torch.ones(5)}).sum()) == 5
    with pytest.raises(RuntimeError, match="closed"):
        _ = lazy.products


def test_damped_inverses_and_scipy():
    from scipy.sparse.linalg import cg, eigsh

    net, loss, batch = cases()["classes"]
    of = operators(net, loss, batch)
    gn = of.whole("GN")
    dense = gn.dense()
    b = torch.randn(3, 43, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wanted = torch.linalg.solve(dense + 0.1 * torch.eye(43).double(), b.mT).mT
    inverse = damped_inverse(gn, 0.1, tol=1e-10)
    torch.testing.assert_close(inverse.apply(b), wanted, rtol=1e-6, atol=1e-8)
    scipy = gn.to_scipy()
    np.testing.assert_allclose(scipy @ b[0].numpy(), dense @ b[0])
    np.testing.assert_allclose(scipy @ b.mT.numpy(), dense @ b.mT)
    np.testing.assert_allclose(eigsh(scipy, k=1)[0], torch.linalg.eigvalsh(dense)[-1:], rtol=1e-8)
    assert cg(inverse.to_scipy(), b[0].numpy(), rtol=1e-8)[1] == 0
    with pytest.raises(ValueError, match="direction of curvature"):
        damped_inverse(of.whole("H"), 0.0).apply(b)
    with pytest.raises(ValueError, match="more products with most="):
        damped_inverse(gn, 1e-6, most=2).apply(b)
    assert not solved(gn.apply, b, damping=1e-6, most=2).converged


def test_many_batches_have_fisher_matrices_too():
    net, loss, (x, y) = cases()["classes"]
    exact, empirical = fishers("classes")
    with operators(net, loss, [(x[:3], y[:3]), (x[3:], y[3:])]) as of:
        torch.testing.assert_close(of.whole("fisher").dense(), exact, atol=1e-12, rtol=1e-8)
        torch.testing.assert_close(of.whole("fisher-empirical").dense(), empirical, atol=1e-12, rtol=1e-8)
