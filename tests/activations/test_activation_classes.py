"""The classifier table of saddle-escape §4.1, the closed forms of φ, and the smoothness probe."""

import math

import pytest
import torch
from torch import nn

from netvitals import activations as A

EXPECTED = {  # name: (label, q)
    "identity": ("A", math.inf),
    "relu": ("A", math.inf),
    "leaky_relu:0.1": ("A", math.inf),
    "prelu": ("A", math.inf),
    "neg_relu": ("A", math.inf),
    "tanh": ("B3", 3),
    "erf": ("B3", 3),
    "sin": ("B3", 3),
    "arctan": ("B3", 3),
    "poly:0:1:0:0:0:1": ("B5", 5),
    "gelu": ("C", 2),
    "gelu_tanh": ("C", 2),
    "silu": ("C", 2),
    "mish": ("C", 2),
    "hardswish": ("C", 2),
    "b_silu": ("C", 2),
    "quick_gelu": ("C", 2),
    "sigmoid": ("D", 3),
    "softplus": ("D", 2),
    "logsigmoid": ("D", 2),
    "sigmoid:40": ("D", 3),
    "softplus:50": ("D", 2),
    "poly:1:2": ("D", math.inf),
    "centered:sigmoid": ("B3", 3),
    "centered:softplus": ("C", 2),
    "centered:logsigmoid": ("C", 2),
    "tanhshrink": ("outside", 3),
    "poly:0:1:0:0:1": ("outside", 4),
    "hardtanh": ("outside", math.inf),
    "relu2": ("outside", None),
    "gelu2": ("outside", 2),
    "elu": ("outside", None),
    "celu:2": ("outside", None),
    "softsign": ("outside", None),
    "selu": ("outside", None),
    "relu6": ("outside", None),
    "hardshrink": ("outside", math.inf),
    "sugar_b_silu": ("outside", None),
    "topk:gelu:0.5": ("outside", None),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_class_of(name):
    label, q = EXPECTED[name]
    found = A.classify(name)
    assert found.label == label, found
    assert math.isnan(found.q) if q is None else found.q == q
    assert found.why and found.why in str(found)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("relu", "1-homogeneous"),
        ("identity", "linear"),
        ("tanhshrink", "f'(0) = 0"),
        ("poly:0:1:0:0:1", "thin family"),
        ("hardtanh", "linear around 0 but not everywhere"),
        ("elu", "not C2 at 0: a_2 is 0.5 from the left and 0"),
        ("softsign", "a_2 is 1 from the left and -1"),
        ("selu", "slopes at 0 differ: 1.7581 from the left"),
        ("sugar_b_silu", "surrogate gradient"),
        ("topk:gelu:0.5", "not elementwise"),
        ("sigmoid", "of class B3"),
    ],
)
def test_the_reason_is_named(name, words):
    assert words in A.classify(name).why


def test_class_a_with_a_kink_says_almost_everywhere():
    assert A.classify("relu").almost_everywhere and not A.classify("identity").almost_everywhere
    assert A.classify("relu").sides == (0.0, 1.0) and math.isnan(A.classify("relu").slope)
    assert A.classify("poly:0:-3").slope == pytest.approx(-3, abs=1e-12)


def test_class_d_reports_its_centred_class():
    assert {n: A.classify(n).centered for n in ("sigmoid", "softplus", "logsigmoid", "poly:1:2")} == {
        "sigmoid": "B3",
        "softplus": "C",
        "logsigmoid": "C",
        "poly:1:2": "A",
    }


def test_printed_coefficients_of_mish_and_hardswish():
    assert A.classify("mish").taylor[1:3] == pytest.approx((0.6, 0.32), abs=1e-12)
    assert A.classify("hardswish").taylor[1:3] == pytest.approx((0.5, 1 / 6), abs=1e-12)


@pytest.mark.parametrize(
    "name", ["identity", "relu", "leaky_relu", "tanh", "erf", "sin", "gelu", "silu", "sigmoid", "softplus"]
)
def test_phi_by_autograd_equals_its_closed_form(name):
    z = torch.linspace(-6, 6, 241, dtype=torch.float64)
    assert torch.allclose(A.phi(name)(z), A.phi_closed(name)(z), atol=1e-13), name


@pytest.mark.parametrize(
    ("name", "coefficient", "order"),
    [
        ("tanh", -2 / 3, 3),
        ("erf", -4 / (3 * math.sqrt(math.pi)), 3),
        ("sin", -1 / 3, 3),
        ("gelu", 1 / math.sqrt(2 * math.pi), 2),
        ("silu", 0.25, 2),
        ("sigmoid", -0.5, 0),
        ("softplus", -math.log(2), 0),
    ],
)
def test_phi_starts_with_its_stated_term(name, coefficient, order):
    found = A.classify(name)
    assert (found.phi_leading, found.phi_order) == (pytest.approx(coefficient, abs=1e-12), order)
    small = torch.tensor([1e-3, 2e-3], dtype=torch.float64)
    size = found.phi(small).abs()
    assert math.log2(float(size[1] / size[0])) == pytest.approx(order, abs=2e-3)


@pytest.mark.parametrize("name", ["tanh", "gelu", "mish", "sigmoid:40", "arctan"])
def test_taylor_coefficients_match_the_cauchy_integral(name):
    import numpy as np
    from scipy.special import erf

    analytic = {
        "tanh": np.tanh,
        "gelu": lambda z: z * (1 + erf(z / np.sqrt(2))) / 2,
        "arctan": np.arctan,
        "mish": lambda z: z * np.tanh(np.log1p(np.exp(z))),
        "sigmoid:40": lambda z: 1 / (1 + np.exp(-40 * z)),
    }
    radius = {"sigmoid:40": 0.03}.get(name, 0.5)
    circle = np.exp(2j * np.pi * np.arange(256) / 256)
    expected = (np.fft.fft(analytic[name](radius * circle)) / 256).real[:8]
    found = A.taylor(name).numpy() * radius ** np.arange(8)
    assert np.abs(found - expected).max() < 1e-12


def test_the_probe_sees_what_autograd_at_zero_does_not():
    point = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(nn.functional.softsign(point), point)
    assert slope == 1  # autograd has no complaint
    probe = A.smoothness("softsign")
    assert not probe.smooth and probe.agree == 2
    assert (probe.left[2], probe.right[2]) == pytest.approx((1, -1), abs=1e-8)
    assert A.smoothness("hardtanh").smooth  # locally it is; φ tells
    with pytest.raises(ValueError, match="not smooth at 0"):
        A.taylor("softsign")


def test_modules_callables_and_float32_modules():
    assert A.classify(nn.GELU(approximate="tanh")).label == "C"
    assert A.classify(lambda z: z - z**3 / 2).label == "B3"
    assert A.classify(nn.Sequential(nn.Tanh(), nn.Tanh())).label == "B3"
    assert A.classify(nn.PReLU(init=1.0)).label == "A"
    scaled = nn.PReLU(init=0.5)
    before = A.classify(scaled).sides
    with torch.no_grad():
        scaled.weight.fill_(0.75)
    assert before == (0.5, 1.0) and A.classify(scaled).sides == (0.75, 1.0)


def test_what_is_no_function_of_one_number_is_refused_and_not_given_numbers():
    for f in (nn.Softmax(-1), lambda x: x - x.mean(), nn.GLU(), nn.Linear(3, 3)):
        with pytest.raises(ValueError, match=r"elementwise|cannot be called on a row of numbers"):
            A.crossings(f, 0.1)
        found = A.classify(f)
        assert found.label == "outside" and ("elementwise" in found.why or "cannot be called" in found.why)
        with pytest.raises(ValueError, match="constants of the activation"):
            A.constants(f)


def test_growth_far_out_does_not_hide_the_value_at_zero():
    found = A.classify(torch.exp)
    assert (found.label, found.offset, found.centered) == ("D", 1.0, "C")
    assert float(found.phi(0.0)) == -1.0
