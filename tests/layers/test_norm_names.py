"""Norms by name: the right class, the right shape, and no leak between tokens or samples."""

import pytest
import torch
from torch import nn

from netvitals import layers as L

SHAPES = {2: (32, 16), 3: (4, 6, 16), 4: (8, 16, 5, 5)}
SPECS = [
    "batch",
    "group",
    "group:4",
    "layer",
    "rms",
    "none",
    "quantile:0.75",
    "quantile_mean:0.75",
    "prestop:10",
    "QuantileBatchNorm2d-75",
    "QuantileMeanBatchNorm2d-25",
    "BatchNorm",
]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("ndim", SHAPES)
def test_every_norm_fits_every_layout(spec, ndim):
    x = 3 * torch.randn(SHAPES[ndim]) + 1
    module = L.norm(spec, 16, ndim)
    y = module(x)
    assert y.shape == x.shape and torch.isfinite(y).all()
    assert module.eval()(x).shape == x.shape
    if spec != "none":
        assert sum(p.numel() for p in module.parameters()) in (16, 32)  # γ, and β unless RMS


@pytest.mark.parametrize(
    ("spec", "ndim", "kind"),
    [
        ("batch", 2, nn.BatchNorm1d),
        ("batch", 4, nn.BatchNorm2d),
        ("batch", 3, L.PerToken),
        ("layer", 3, nn.LayerNorm),
        ("rms", 3, nn.RMSNorm),
        ("none", 2, nn.Identity),
        ("quantile:0.5", 4, L.QuantileBatchNorm2d),
        ("quantile:0.5", 3, L.QuantileLayerNorm),
        ("quantile_mean:0.5", 2, L.QuantileMeanBatchNorm1d),
        ("prestop:5", 3, L.LayerNormPreStop),
        ("prestop:5", 4, L.BatchNorm2dPreStop),
        ("group", 4, nn.GroupNorm),
    ],
)
def test_names_give_the_stated_class(spec, ndim, kind):
    assert type(L.norm(spec, 16, ndim)) is kind


@pytest.mark.parametrize("spec", ["group", "layer", "rms", "quantile:0.75"])
def test_token_norms_do_not_look_at_other_tokens(spec):
    x = torch.randn(2, 7, 16)
    module = L.norm(spec, 16, 3)
    assert torch.allclose(module(x)[:, :3], module(x[:, :3]), atol=1e-6)


def test_token_batch_norm_pools_all_tokens():
    x = 2 * torch.randn(8, 50, 16) + 3
    y = L.norm("batch", 16, 3)(x)
    assert y.mean(dim=(0, 1)).abs().max() < 1e-5 and (y.std(dim=(0, 1)) - 1).abs().max() < 1e-2


def test_rms_is_the_written_formula():
    x = torch.randn(3, 16, 4, 4)
    expected = x / (x.square().mean(dim=1, keepdim=True) + 1e-6).sqrt()
    assert torch.allclose(L.norm("rms", 16, 4)(x), expected, atol=1e-6)


def test_group_norm_of_vectors_keeps_information():
    x = torch.randn(32, 32)
    assert L.norm("group", 32, 2)(x).std() > 0.5  # one channel per group would return zeros


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("bach", 8, 2), "no norm 'bach'; the nearest names are .*batch"),
        (("quantile", 8, 2), "expected quantile:Q"),
        (("rms:3", 8, 2), "expected rms"),
        (("batch", 8, 5), "ndim= must be 2"),
        (("group:3", 16, 4), "group:3.* 16 channels"),
        (("quantile:0.5:rows", 8, 4), "search= must be one of .* got 'rows'"),
    ],
)
def test_wrong_names_get_a_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        L.norm(*arguments)
