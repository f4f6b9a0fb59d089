"""The constants table of saddle-escape §2.5, to the digits printed there, and its errata."""

import math

import pytest

from netvitals import activations as A

PI = math.pi
NAMES = ("slope", "q", "a_q", "h", "h_q", "half_power", "lam_prime", "lam", "gamma_printed", "q lambda'")
TABLE = {
    "tanh": (1, 3, -1 / 3, 0.6057055096, 1.453521, 0.197147, -0.799905, -1.199858, 0, -2.3997),
    "erf": (
        2 / math.sqrt(PI),
        3,
        -2 / (3 * math.sqrt(PI)),
        2 / math.sqrt(3 * PI),
        1.520097,
        0.232280,
        -7 / 9,
        -7 / 6,
        0,
        -2.3333,
    ),
    "sin": (1, 3, -1 / 6, math.exp(-0.5), 2 * math.exp(-0.5), 0.216166, -1 / 3, -1 / 2, 0, -1),
    "arctan": (1, 3, -1 / 3, 0.655680, 1.655680, 0.224850, -0.841712, -1.262568, 0, -2.5251),
    "gelu": (
        0.5,
        2,
        1 / math.sqrt(2 * PI),
        0.5,
        5 / (4 * math.sqrt(PI)),
        0.212611,
        5 / (math.sqrt(2) * PI),
        1.500527,
        3.8197,
        2.2508,
    ),
    "silu": (0.5, 2, 0.25, 0.5, 0.557466, 0.177888, 0.557466, 0.743289, 1.5, 1.1149),
    "centered:sigmoid": (0.25, 3, -1 / 48, 0.206621, 0.557466, 0.021690, -0.224835, -0.337252, 0, -0.6745),
    "centered:softplus": (0.5, 2, 0.125, 0.5, 0.319533, 0.142132, 0.159766, 0.213022, 0.3750, 0.3195),
}
PRINTED = dict(zip(NAMES, (1e-12, 0, 1e-12, 5.1e-7, 5.1e-7, 5.1e-7, 5.1e-7, 5.1e-7, 5.1e-5, 5.1e-5)))


@pytest.mark.parametrize("name", TABLE)
def test_constants_to_the_printed_digits(name):
    c = A.constants(name)
    found = (c.slope, c.q, c.a_q, c.h, c.h_q, c.half_power, c.lam_prime, c.lam, c.gamma_printed, c.nlo(1))
    for column, got, expected in zip(NAMES, found, TABLE[name]):
        assert got == pytest.approx(expected, abs=PRINTED[column]), column


def test_values_with_a_closed_form_are_exact():
    assert A.constants("tanh").h == pytest.approx(0.6057055096, abs=5.1e-11)
    erf, sin, gelu = A.constants("erf"), A.constants("sin"), A.constants("gelu")
    assert erf.h == pytest.approx(2 / math.sqrt(3 * PI), abs=1e-12)
    assert (erf.lam_prime, erf.lam) == pytest.approx((-7 / 9, -7 / 6), abs=1e-12)
    assert (sin.h_q, sin.lam) == pytest.approx((2 * math.exp(-0.5), -0.5), abs=1e-12)
    assert gelu.lam_prime == pytest.approx(5 / (math.sqrt(2) * PI), abs=1e-12)


@pytest.mark.parametrize(
    ("name", "k_t", "k_s"),
    [
        ("tanh", 4.845644, 0.07571319),
        ("erf", 7.487720, 0.11699563),
        ("sin", 4.852245, 0.07581633),
        ("gelu", 0.5, 0.0078125),
        ("silu", 0.5, 0.0078125),
    ],
)
def test_the_drive_in_both_clocks(name, k_t, k_s):
    c = A.constants(name)
    assert c.drive(depth=4, width=64) == pytest.approx(k_t, abs=5.1e-7)
    assert c.drive(4, 64, clock="s") == pytest.approx(k_s, abs=5.1e-9)
    assert c.drive(4, 64) / c.drive(4, 64, clock="s") == pytest.approx(64)  # erratum E1: the ratio is N
    assert c.drive(4, 64, beta=0.5) == pytest.approx(k_t / 2, abs=5.1e-7)


def test_corrected_and_printed_lambda_differ_by_2q_over_q_plus_1():
    for name, factor in (("tanh", 3 / 2), ("gelu", 4 / 3)):
        c = A.constants(name)
        assert c.lam / c.lam_printed == pytest.approx(factor)
    assert A.constants("gelu").nlo(2) == pytest.approx(1.1254, abs=5.1e-5)  # erratum E4


def test_class_d_is_centred_first():
    for name in ("sigmoid", "softplus"):
        plain, centred = A.constants(name), A.constants(f"centered:{name}")
        assert (plain.h, plain.h_q, plain.lam, plain.half_power) == pytest.approx(
            (centred.h, centred.h_q, centred.lam, centred.half_power), abs=1e-12
        )
        assert plain.offset == pytest.approx({"sigmoid": 0.5, "softplus": math.log(2)}[name]) and plain.label == "D"


def test_a_positive_drive_is_not_implied_by_class_b():
    for a in (0.2, 0.5):
        c = A.constants(f"poly:0:1:0:{-a}")
        assert c.label == "B3" and c.h == pytest.approx(1 - 3 * a, abs=1e-12)
        assert c.escapes(depth=4) is (a < 1 / 3)


def test_what_does_not_exist_is_said():
    relu = A.constants("relu")
    assert math.isnan(relu.slope) and relu.h == pytest.approx(0.5, abs=1e-12) and relu.lam == 0
    with pytest.raises(ValueError, match="slope f'\\(0\\), which this activation does not have"):
        relu.drive(4, 64)
    assert "undefined" in str(A.constants("elu"))
    with pytest.raises(ValueError, match="not elementwise"):
        A.constants("topk:gelu:0.5")
    with pytest.raises(ValueError, match="clock= must be 't'"):
        A.constants("tanh").drive(4, 64, clock="x")
    assert A.constants("identity").drive(3, 4) == pytest.approx(2.0) and A.constants("identity").lam == 0
