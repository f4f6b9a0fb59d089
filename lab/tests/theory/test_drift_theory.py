"""Closed forms of the drift theory against exact enumeration or plain Monte Carlo."""

import itertools
import math

import pytest
import torch

from netvitals_lab.theory import drift_signs as theory

P = torch.tensor([1.5, -0.7, 0.4, 2.0], dtype=torch.float64)


def test_gain_is_the_mean_squared_column_by_enumeration():
    """One hidden unit with Rademacher weights of variance 2/2, one output of variance 1: every sign pattern counted."""
    a = torch.tensor([1.0, 2.0], dtype=torch.float64)
    total = torch.zeros(2, 2, dtype=torch.float64)
    for signs in itertools.product((-1.0, 1.0), repeat=3):
        w, r = torch.tensor(signs[:2], dtype=torch.float64), signs[2]
        v = r * (w @ a > 0) * w
        total += torch.outer(v, v) / 8
    gain = theory.downstream_gain(1, 1.0, [(1, 1.0)])
    torch.testing.assert_close(total, gain * torch.eye(2, dtype=torch.float64))


@pytest.mark.parametrize("hidden", [(), (12,), (12, 10), (12, 10, 8)])
def test_gain_of_he_layers_does_not_depend_on_depth(hidden):
    widths = [8, *hidden]
    layers = [(d, 2 / before) for before, d in itertools.pairwise(widths)]
    assert theory.downstream_gain(5, 1 / widths[-1], layers) == pytest.approx(theory.he_gain(8, 5)) == 0.625


def test_expected_gradient_of_gelu_has_the_reference_values():
    p = torch.tensor([2, 1, 0.5, 0.2, -0.2, -0.5, -1, -2], dtype=torch.float64)
    known = torch.tensor([1.3257, 0.5697, 0.1875, 0.0476, -0.0180, -0.0128, 0.0083, 0.0024], dtype=torch.float64)
    assert (theory.expected_gradient(p, "gelu", gain=0.625) - known).abs().max() < 1e-4


def test_any_loss_formula_reduces_to_the_squared_one():
    """For MSE with y = 0, E⟨o, ∇ℓ⟩ = E‖o‖² = c‖a‖²."""
    inner = 0.625 * P.relu().square().sum()
    torch.testing.assert_close(theory.expected_gradient_of_loss(P, inner), theory.expected_gradient(P, gain=0.625))


def test_weight_gradient_and_first_step_are_means_over_samples():
    g = torch.Generator().manual_seed(0)
    x, p = torch.rand(6, 3, generator=g), torch.randn(6, 4, generator=g)
    slow = sum(torch.outer(b.relu(), a) for a, b in zip(x, p)) / 6
    torch.testing.assert_close(theory.expected_weight_gradient(x, p, gain=2.0), 2 * slow.double())
    assert theory.first_step_drift(x, p, gain=2.0, lr=0.1) == pytest.approx(-0.2 * float(slow.mean()))


@pytest.mark.parametrize(
    ("name", "x", "sign"),
    [
        ("relu", 1, -1),
        ("gelu", 1, -1),
        ("silu", 1, -1),
        ("neg_relu", -1, -1),
        ("relu", -1, 1),
        ("neg_relu", 1, 1),
        ("tanh", 1, 0),
        ("identity", 1, 0),
        ("relu", 0, 0),
        ("leaky_relu:0.1", 1, -1),
    ],
)
def test_sign_rule(name, x, sign):
    assert theory.drift_sign(name, x) == sign


def test_mean_force_of_relu_is_exact():
    assert theory.mean_force("relu", sigma=0.7) == pytest.approx(0.7 / math.sqrt(2 * math.pi), rel=1e-9)


def test_inner_products_are_those_of_autograd():
    o = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    labels, y = torch.tensor([0, 1, 2, 3, 0]), torch.randn(5, 4, dtype=torch.float64)
    ce = torch.autograd.grad(torch.nn.functional.cross_entropy(o, labels, reduction="sum"), o)[0]
    torch.testing.assert_close(theory.cross_entropy_inner(o, labels), (o * ce).sum(-1))
    mse = torch.autograd.grad(0.5 * (o - y).square().sum(), o)[0]
    torch.testing.assert_close(theory.squared_error_inner(o, y), (o * mse).sum(-1))


def test_cross_entropy_force_at_tiny_outputs():
    torch.testing.assert_close(theory.cross_entropy_force(P, readout_variance=0.25, doubt=0.8), 0.2 * P.relu())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: theory.downstream_gain(0, 1.0), "widths must be positive"),
        (lambda: theory.he_gain(0, 3), "must be positive, got 0 and 3"),
        (lambda: theory.expected_gradient_of_loss(-P.abs(), 1.0), "all activations of a sample are zero"),
        (lambda: theory.expected_weight_gradient(P, P, gain=1.0), "expected inputs"),
    ],
)
def test_wrong_input_gets_a_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_cross_entropy_force_is_the_mean_gradient_over_readouts():
    """D3 by drawing 200,000 Gaussian readouts: its sign, its size, and the doubt 1 − ‖s‖²."""
    g = torch.Generator().manual_seed(0)
    a = torch.tensor([1.5, 0.4, 2.0, 0.0], dtype=torch.float64)
    w = 0.5 * torch.randn(200_000, 5, 4, generator=g, dtype=torch.float64)
    s = (w @ a).softmax(-1)
    error = s - torch.nn.functional.one_hot(torch.tensor(2), 5).double()
    drawn = torch.einsum("nc,nci->ni", error, w)
    doubt = float((1 - s.square().sum(-1)).mean())
    expected = theory.cross_entropy_force(a, readout_variance=0.25, doubt=doubt)
    z = (drawn.mean(0) - expected)[:3] / (drawn.std(0) / 200_000**0.5)[:3]
    assert z.abs().max() < 4.5, z
    assert bool((expected[:3] > 0).all()) and 0 < doubt < 1
