"""Norms about a quantile: torch's norms at q=None, written-out formulas else, running centres, freezing."""

import copy

import pytest
import torch
from torch import nn

from netvitals import layers as L

SHARES = (0.10, 0.25, 0.50, 0.75, 0.90)


def train_both(ours, theirs, shape):
    """Three training batches, one evaluation; outputs, gradients and buffers of both."""
    ours.load_state_dict(theirs.state_dict(), strict=False)
    for seed in range(3):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).requires_grad_(True)
        y, z = ours(x), theirs(x)
        assert torch.equal(y, z)
        for a, b in zip(
            torch.autograd.grad(y.square().sum(), [x, ours.weight]),
            torch.autograd.grad(z.square().sum(), [x, theirs.weight]),
        ):
            assert torch.equal(a, b)
    x = torch.randn(shape)
    assert torch.equal(ours.eval()(x), theirs.eval()(x))


@pytest.mark.parametrize(
    ("ours", "theirs", "shape"),
    [
        (L.QuantileBatchNorm1d(6), nn.BatchNorm1d(6), (16, 6)),
        (L.QuantileBatchNorm1d(6), nn.BatchNorm1d(6), (8, 6, 5)),
        (L.QuantileBatchNorm2d(6), nn.BatchNorm2d(6), (8, 6, 4, 5)),
        (L.QuantileMeanBatchNorm2d(6), nn.BatchNorm2d(6), (8, 6, 4, 5)),
        (L.BatchNorm2dPreStop(6, max_tracked=100), nn.BatchNorm2d(6), (8, 6, 4, 5)),
        (L.BatchNorm1dPreStop(6, max_tracked=100), nn.BatchNorm1d(6), (8, 6)),
        (L.QuantileLayerNorm(6), nn.LayerNorm(6), (3, 5, 6)),
        (L.LayerNormPreStop(6, max_tracked=100), nn.LayerNorm(6), (3, 5, 6)),
    ],
)
def test_without_q_they_are_torch_norms(ours, theirs, shape):
    train_both(ours, theirs, shape)
    for name in ("running_mean", "running_var"):
        if hasattr(theirs, name):
            assert torch.equal(getattr(ours, name), getattr(theirs, name))


def by_hand(x, q, search, variance):
    """The norm of (N, C, H, W) written with sorts and loops."""
    n, c = x.shape[:2]
    pick = lambda v: v.flatten().sort().values[int(q * v.numel() + 1e-9)]
    if search == "channelwise":
        m = torch.stack([torch.stack([pick(x[i, j]) for i in range(n)]).mean() for j in range(c)])
    elif search == "batchwise":
        m = torch.stack([pick(x[:, j]) for j in range(c)])
    else:
        m = pick(x).repeat(c)
    m = m.view(1, c, 1, 1)
    about = m if variance == "quantile" else x.mean(dim=(0, 2, 3), keepdim=True)
    v = ((x - about) ** 2).mean(dim=(0, 2, 3), keepdim=True)
    return (x - m) / (v + 1e-5).sqrt(), m.flatten(), v.flatten()


@pytest.mark.parametrize("search", ["channelwise", "batchwise", "global"])
@pytest.mark.parametrize("kind", [L.QuantileBatchNorm2d, L.QuantileMeanBatchNorm2d])
@pytest.mark.parametrize("q", [0.1, 0.75])
def test_batch_norm_about_a_quantile_is_the_written_formula(kind, search, q):
    x = torch.randn(5, 3, 4, 4, dtype=torch.float64) + 2
    norm = kind(3, q, search).double()
    expected, m, v = by_hand(x, q, search, norm.variance)
    assert torch.allclose(norm(x), expected, atol=1e-12)
    n = x.numel() / 3
    assert torch.allclose(norm.running_mean, 0.1 * m) and torch.allclose(norm.running_var, 0.9 + 0.1 * v * n / (n - 1))
    norm.eval()
    again = norm(x)
    assert torch.allclose(
        again, (x - norm.running_mean.view(1, 3, 1, 1)) / (norm.running_var.view(1, 3, 1, 1) + 1e-5).sqrt(), atol=1e-12
    )


@pytest.mark.parametrize("q", SHARES)
def test_zeros_after_relu_are_the_quantile(q):
    x = torch.randn(400, 10)
    assert (torch.relu(L.QuantileBatchNorm1d(10, q)(x)) == 0).float().mean().item() == pytest.approx(q, abs=0.003)
    image = torch.randn(16, 4, 20, 20)
    for search in ("channelwise", "batchwise", "global"):
        share = (torch.relu(L.QuantileBatchNorm2d(4, q, search)(image)) == 0).float().mean().item()
        assert share == pytest.approx(q, abs=0.01), search
    tokens = torch.randn(4, 7, 100)
    share = (torch.relu(L.QuantileLayerNorm(100, q)(tokens)) == 0).float().mean().item()
    assert share == pytest.approx(q + 0.01)  # the quantile itself becomes an exact zero


@pytest.mark.parametrize(
    "norm", [L.QuantileBatchNorm1d(3, 0.5), L.QuantileMeanBatchNorm1d(3, 0.25), L.QuantileBatchNorm1d(3, 0.5, "global")]
)
def test_gradients_of_batch_norms(norm):
    x = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    norm = norm.double()
    norm.track_running_stats, norm.running_mean, norm.running_var = False, None, None
    assert torch.autograd.gradcheck(norm, x)


@pytest.mark.parametrize("search", ["token", "position", "global"])
def test_layer_norm_about_a_quantile(search):
    x = torch.randn(4, 5, 8, dtype=torch.float64)
    norm = L.QuantileLayerNorm(8, 0.75, search).double()
    token = x.sort(dim=-1).values[..., 6:7]  # element number ⌊0.75·8⌋+1 = 7
    m = {"token": token, "position": token.mean(dim=0, keepdim=True), "global": token.mean()}[search]
    expected = (x - m) / (((x - m) ** 2).mean(dim=-1, keepdim=True) + 1e-5).sqrt()
    assert torch.allclose(norm(x), expected, atol=1e-12)
    assert torch.allclose(norm.eval()(x), expected, atol=1e-12)  # the running centre starts at the first batch
    assert torch.autograd.gradcheck(norm, x.requires_grad_(True))


def test_the_token_centre_is_causal_and_takes_any_length():
    norm = L.QuantileLayerNorm(16, 0.75)
    x = torch.randn(2, 9, 16)
    assert torch.allclose(norm(x)[:, :4], norm(x[:, :4]), rtol=1e-6, atol=1e-6)
    assert torch.allclose(norm(x)[:1], norm(x[:1]), rtol=1e-6, atol=1e-6)


def test_the_position_centre_refuses_another_length_in_a_sentence():
    norm = L.QuantileLayerNorm(16, 0.75, "position")
    norm(torch.randn(2, 9, 16))
    with pytest.raises(ValueError, match=r"9 positions, but the input has 5"):
        norm(torch.randn(2, 5, 16))
    with pytest.raises(ValueError, match=r"9 positions, but the input has 5"):
        norm.eval()(torch.randn(2, 5, 16))


@pytest.mark.parametrize(
    ("norm", "shape"),
    [
        (L.QuantileBatchNorm2d(4, 0.75, max_tracked=3), (8, 4, 5, 5)),
        (L.BatchNorm2dPreStop(4, 3), (8, 4, 5, 5)),
        (L.BatchNorm1dPreStop(4, 3), (8, 4)),
        (L.LayerNormPreStop(4, 3), (8, 5, 4)),
        (L.QuantileLayerNorm(4, 0.5, "position", max_tracked=3), (8, 5, 4)),
        (L.QuantileLayerNorm(4, 0.5, "global", max_tracked=3), (8, 5, 4)),
    ],
)
def test_statistics_freeze_after_the_counted_batches(norm, shape):
    for _ in range(3):
        assert not norm.frozen
        norm(torch.randn(shape) + 1)
    assert norm.frozen and norm.training
    held = copy.deepcopy(norm.state_dict())
    x = torch.randn(shape) * 9 - 4
    y = norm(x)
    assert all(torch.equal(held[k], v) for k, v in norm.state_dict().items())
    assert torch.allclose(norm.eval()(x), y)  # training and evaluation agree once frozen
    twin = type(norm)(4, 3) if "PreStop" in type(norm).__name__ else copy.deepcopy(norm)
    twin.load_state_dict(held)
    assert torch.allclose(twin(x), y)
    assert norm.train()(x).requires_grad


def test_lazily_shaped_centres_load_from_a_checkpoint():
    trained = L.QuantileLayerNorm(8, 0.5, "position")
    trained(torch.randn(2, 6, 8))
    fresh = L.QuantileLayerNorm(8, 0.5, "position")
    fresh.load_state_dict(trained.state_dict())
    x = torch.randn(3, 6, 8)
    assert torch.equal(fresh.eval()(x), trained.eval()(x))


def test_half_precision_inputs_keep_their_dtype():
    for dtype in (torch.float16, torch.bfloat16):
        assert L.QuantileBatchNorm2d(3, 0.5).to(dtype)(torch.randn(4, 3, 5, 5, dtype=dtype)).dtype == dtype
        assert L.QuantileLayerNorm(8, 0.5).to(dtype)(torch.randn(4, 3, 8, dtype=dtype)).dtype == dtype


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: L.QuantileBatchNorm2d(3, 1.5), r"q= must be a fraction in \[0, 1\)"),
        (lambda: L.QuantileBatchNorm2d(3, 0.5, "rows"), "search= must be one of .* got 'rows'"),
        (lambda: L.QuantileBatchNorm2d(3, 0.5)(torch.randn(2, 3)), r"got shape \(2, 3\)"),
        (lambda: L.QuantileBatchNorm2d(3, 0.5)(torch.randn(2, 4, 5, 5)), "3 channels in the second"),
        (lambda: L.BatchNorm2dPreStop(3, 0), "at least 1"),
    ],
)
def test_wrong_options_get_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
