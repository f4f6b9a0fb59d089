"""What cannot be measured is refused with a sentence: directions, NaN, half precision, empty batches and classes."""

import math

import pytest
import torch
from torch import nn

from netvitals import singular
from netvitals.singular.adapters.tangent import safe_spaces
from netvitals.singular.checkpoint.layernorm import ln_kernel_test
from netvitals.singular.moments.schur import schur_profile
from netvitals.singular.orders.cross_entropy import softmax_head
from netvitals.singular.orders.crossing import recover_crossing
from netvitals.singular.orders.order import directional_fisher, kl_along, score_expansion
from netvitals.singular.orders.spectrum import fisher_matrix

f64 = torch.float64
ZERO, ONE = torch.zeros(2, dtype=f64), torch.ones(2, dtype=f64)


def square(th):
    return th[:1].square().expand(4, 1)


def product(th):
    return th.prod().reshape(1, 1)


def broken(th):
    return square(th) * math.nan


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 3))


def with_nan():
    x = torch.randn(40, 4)
    x[3, 1] = math.nan
    return x


@pytest.mark.parametrize(
    "call",
    [
        lambda v: directional_fisher(square, ZERO, v),
        lambda v: kl_along(square, ZERO, v, [0.1]),
        lambda v: singular.kl_order(square, ZERO, v),
        lambda v: score_expansion(square, ZERO, v),
        lambda v: singular.classify_spectrum(square, ZERO, v, [0.1, 0.2, 0.3]),
        lambda v: singular.gauge_or_singular(square, ZERO, v),
        lambda v: recover_crossing(product, ZERO, [ONE, v]),
    ],
)
@pytest.mark.parametrize(
    ("v", "words"),
    [
        (ZERO, "not zero"),
        (torch.ones(3, dtype=f64), "same shape as theta"),
        (math.nan * ONE, "finite"),
        (torch.ones(2, 1, dtype=f64), "same shape as theta"),
    ],
)
def test_directions(call, v, words):
    with pytest.raises(ValueError, match=words):
        call(v)


@pytest.mark.parametrize(
    "call",
    [
        lambda: singular.kl_order(broken, ZERO, ONE),
        lambda: fisher_matrix(broken, ZERO),
        lambda: singular.classify_spectrum(broken, ZERO, ONE, [0.1, 0.2, 0.3]),
        lambda: safe_spaces(broken, ZERO),
        lambda: singular.kfac(net(), "ce", with_nan()),
        lambda: schur_profile(net(), with_nan()),
        lambda: ln_kernel_test(net(), with_nan()),
        lambda: singular.readout(net(), "ce", (with_nan(), None)),
        lambda: singular.tangential_lora(net(), with_nan()),
        lambda: softmax_head(math.nan * torch.ones(3, 2), torch.zeros(3, dtype=torch.long)),
    ],
)
def test_nan(call):
    with pytest.raises(ValueError, match="NaN"):
        call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: singular.readout(net(), "ce", (torch.randn(0, 4), None)), "empty"),
        (lambda: singular.tangential_lora(net(), torch.randn(0, 4)), "empty"),
        (lambda: softmax_head(torch.randn(0, 4), torch.zeros(0, dtype=torch.long)), "needs one label"),
        (lambda: softmax_head(torch.randn(5, 4), torch.full((5,), 4)), "from 0 to 3"),
        (lambda: singular.zoo.SplitMixture(0.0), "strictly between 0 and 1"),
        (lambda: singular.zoo.SplitMixture(1.0), "strictly between 0 and 1"),
        (lambda: singular.kl_order(square, ZERO, ONE, ts=[-0.1, 0.1, 0.2]), "t > 0"),
        (lambda: singular.classify_spectrum(square, ZERO, ONE, [0.0, 0.1, 0.2]), "positive values in ts"),
    ],
)
def test_empty_batches_classes_and_windows(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_class_without_samples_is_no_error():
    found = softmax_head(torch.randn(20, 5), torch.zeros(20, dtype=torch.long))
    assert found.bounds_hold and math.isfinite(found.c0) and found.c0 > 0


def test_half_precision_is_promoted_and_said():
    for kind in (torch.float16, torch.bfloat16):
        found = singular.kl_order(square, ZERO.to(kind), torch.tensor([1.0, 0.0], dtype=kind))
        assert found.order == 2 and str(kind).removeprefix("torch.") in found.estimator
    assert "promoted" not in singular.kl_order(square, ZERO, ONE).estimator
