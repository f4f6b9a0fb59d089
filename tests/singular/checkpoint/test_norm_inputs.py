"""The Schur ratio of a norm's inputs at the direction of its kernel."""

import pytest
import torch
from torch import nn

from netvitals.singular.checkpoint.norm_inputs import kernel_shares
from netvitals.singular.moments.factors import dead_entry, schur_complement

f64 = torch.float64


def rows(n=400, d=6, seed=0):
    gen = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=gen, dtype=f64) @ torch.randn(d, d, generator=gen, dtype=f64)


def test_the_share_is_that_of_the_moment_matrix():
    norm, x = nn.LayerNorm(6).double(), rows()
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 2, 6))
    (found,) = kernel_shares(norm, x)
    a, v = x.T @ x / len(x), 1 / norm.weight.detach()
    assert abs(found.ratio - schur_complement(a, v) / dead_entry(a, v)) < 1e-10
    assert abs(found.size - dead_entry(a, v) / float(x.square().mean())) < 1e-10 and found.row_count == 400


def test_a_component_that_the_others_tell_has_no_share_of_its_own():
    x = rows()
    u = torch.ones(6, dtype=f64) / 6**0.5
    told = x - torch.outer(x @ u, u) + torch.outer(x[:, 0] - x[:, 1], u)  # the mean is a function of the rest
    (found,) = kernel_shares(nn.LayerNorm(6).double(), told)
    assert found.ratio < 1e-20
    q = torch.linalg.qr(rows(seed=1))[0]
    (white,) = kernel_shares(nn.LayerNorm(6).double(), q)
    assert abs(white.ratio - 1) < 1e-10 and abs(white.size - 1) < 1e-10


def test_what_is_not_a_single_direction_is_left_out_with_its_reason():
    net = nn.Sequential(nn.LayerNorm(6), nn.RMSNorm(6)).double()
    with torch.no_grad():
        net[0].weight[:2] = 0
    found = kernel_shares(net, rows())
    assert [s.norm for s in found] == ["1"] and "2 of its gains are zero" in found.skipped["0"]
    with pytest.raises(ValueError, match="has no LayerNorm"):
        kernel_shares(nn.Linear(6, 2).double(), rows())
