"""Escape formulas against the exact flow: depth and critical-depth laws, corrections, resonance, bad input."""

import numpy as np
import pytest

from netvitals import saddle
from netvitals.saddle.laws.escape import balanced, next_to_leading, regime, resummed

EPS = np.logspace(-2, -0.75, 20)


@pytest.mark.parametrize(
    ("depth", "full", "first", "time", "ratios"),
    [
        (3, -1.164, -1.031, 20.197, (1.012, 1.327)),
        (4, -2.070, -2.001, 1031.75, (1.001, 1.130)),
        (5, -3.026, -2.999, 6.8810e4, (1.0003, 1.084)),
        (6, -4.007, -3.999, 5.1604e6, (1.0002, 1.067)),
    ],
)
def test_depth_scaling_of_balanced_chains(depth, full, first, time, ratios):
    """Experiment E2a."""
    x0 = np.repeat(EPS[:, None], depth, 1)
    ode, lead = saddle.escape_time(x0, "tanh", 64), saddle.escape_time(x0, "tanh", 64, method="leading")
    assert saddle.fit_exponent(EPS, ode.t).slope == pytest.approx(full, abs=1e-3)
    head = saddle.fit_exponent(EPS[:5], ode.t[:5], r=depth)
    assert head.slope == pytest.approx(first, abs=1e-3) and head.agrees(0.05)
    assert ode.t[0] == pytest.approx(time, rel=1e-4)
    assert (ode.t / lead.t)[[0, -1]] == pytest.approx(ratios, abs=1e-3)


@pytest.mark.parametrize(("r", "first"), [(3, -1.036), (4, -2.003), (5, -2.999), (6, -3.999)])
def test_exponent_follows_r_not_depth(r, first):
    """Experiment E2b: six layers, r of them small."""
    x0 = np.ones((5, 6))
    x0[:, :r] = EPS[:5, None]
    fit = saddle.fit_exponent(EPS[:5], saddle.escape_time(x0, "tanh", 64).t, r=r)
    assert fit.slope == pytest.approx(first, abs=1e-3) and fit.agrees(0.05)


@pytest.mark.parametrize(
    ("name", "depth", "eps", "coefficient", "exact"),
    [
        ("tanh", 6, 0.01, 2.1328, 2.1331),
        ("sin", 6, 0.01, 0.88890, 0.88889),
        ("erf", 7, 0.003, 1.66668, 1.66667),
        ("gelu", 5, 0.003, -2.0185, -2.0257),
        ("silu", 6, 0.003, -0.867172, -0.867170),
    ],
)
def test_next_to_leading_coefficient(name, depth, eps, coefficient, exact):
    d = saddle.drive(name, depth, 64)
    base = balanced(eps, depth, d.k, 0.3)
    flow = saddle.reduced_flow([eps] * depth, name, 64, threshold=0.3, rtol=1e-12, keep=False)
    measured = (flow.escape_t / base - 1) / eps ** (d.q - 1)
    formula = (next_to_leading(eps, d, 0.3) / base - 1) / eps ** (d.q - 1)
    assert formula == pytest.approx(exact, abs=6e-5)
    assert measured == pytest.approx(coefficient, abs=8e-4)


@pytest.mark.parametrize(
    ("name", "depth", "slope"),
    [("tanh", 4, 1.1998), ("sin", 4, 0.5000), ("erf", 4, 1.1666), ("gelu", 3, -1.4999), ("silu", 3, -0.7433)],
)
def test_logarithmic_resonance_has_the_corrected_coefficient(name, depth, slope):
    """At L = q + 1 the correction is −(λ/K) ln(1/ε) with λ = (2q/(q+1)) λ' (erratum E3)."""
    d = saddle.drive(name, depth, 1)
    eps = np.array([2e-4, 1e-3, 5e-3])
    kt = (
        d.k
        * saddle.reduced_flow(
            np.repeat(eps[:, None], depth, 1), name, 1, threshold=0.1, rtol=1e-12, keep=False
        ).escape_t
    )
    rest = kt - eps ** -(depth - 2.0) / (depth - 2)
    measured = np.diff(rest) / np.diff(np.log(1 / eps))
    assert measured[0] == pytest.approx(slope, abs=8e-3)
    assert slope == pytest.approx(-d.lam, abs=2e-3)
    assert abs(measured[0] + d.lam_prime) > 0.1  # the printed coefficient does not fit


def test_resummed_time_beats_leading_order_at_the_resonance():
    x0 = [0.01] * 4
    ode = float(saddle.escape_time(x0, "tanh", 64, threshold=0.5))
    error = {
        m: abs(float(saddle.escape_time(x0, "tanh", 64, threshold=0.5, method=m)) / ode - 1)
        for m in ("balanced", "resummed", "nlo")
    }
    assert error["resummed"] < error["balanced"] and error["nlo"] < error["balanced"]
    d = saddle.drive("tanh", 4, 64)
    printed = resummed(0.01, d, 0.5, lam=d.lam_prime)
    assert abs(printed / ode - 1) > error["resummed"]


def test_below_the_resonance_the_tail_sets_the_correction():
    """Erratum E7: for L = 3 and q = 3 the relative correction is O(ε)."""
    eps = np.array([1e-3, 2e-3, 4e-3])
    d = saddle.drive("tanh", 3, 64)
    t = saddle.escape_time(np.repeat(eps[:, None], 3, 1), "tanh", 64).t
    gap = t / (eps**-1.0 / d.k) - 1
    assert saddle.fit_exponent(eps, np.abs(gap)).slope == pytest.approx(1.003, abs=0.02)


@pytest.mark.parametrize(
    ("r", "last", "ratio"), [(3, False, 0.9965), (4, False, 0.99999), (3, True, 0.9964), (4, True, 0.99998)]
)
def test_critical_depth_law_with_the_small_layers_first_or_last(r, last, ratio):
    """T11 and erratum E14: the prefactor for any position of the bottleneck."""
    x0 = np.array([1e-3] * r + [0.8] * (6 - r))
    x0, layer = (x0[::-1].copy(), 5) if last else (x0, 0)
    ode = float(saddle.escape_time(x0, "tanh", 1, layer=layer))
    law = float(saddle.escape_time(x0, "tanh", 1, method="critical", layer=layer))
    assert ode / law == pytest.approx(ratio, abs=2e-4)


def test_two_small_layers_are_logarithmic_and_one_is_constant():
    for last, prefactor in ((False, 1.0), (True, 1.666)):
        t = []
        for eps in (1e-3, 1e-4):
            x0 = [eps, eps, 0.8, 0.8, 0.8, 0.8]
            layer = 5 if last else 0
            t.append(float(saddle.escape_time(x0[::-1] if last else x0, "tanh", 1, layer=layer)))
        k = saddle.drive("tanh", 6, 1).k * 0.8**4
        assert (t[1] - t[0]) / np.log(10) * k == pytest.approx(prefactor, abs=2e-3)
    one = [float(saddle.escape_time([eps] + [0.8] * 5, "tanh", 1)) for eps in (1e-3, 1e-4)]
    assert one == pytest.approx([1.72, 1.72], abs=0.01)


def test_two_layer_chains_are_logarithmic():
    eps = np.array([1e-2, 1e-3, 1e-4])
    fit = saddle.fit_exponent(eps, saddle.escape_time(np.repeat(eps[:, None], 2, 1), "tanh", 1).t, r=2)
    assert fit.log_rate == pytest.approx(1 / saddle.drive("tanh", 2, 1).k, rel=1e-3) and fit.log_r2 > 0.99999
    assert "logarithmic" in fit.verdict


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("tanh", (5006.17, 560.40, 53.342)),
        ("erf", (5009.94, 564.21, 57.157)),
        ("sin", (5002.76, 557.76, 51.537)),
        ("gelu", (4862.68, 511.12, 37.484)),
        ("silu", (4929.33, 531.36, 42.117)),
    ],
)
def test_rescaled_times_of_experiment_three(name, values):
    eps = np.array([0.01, 0.03, 0.1])
    k = saddle.drive(name, 4, 64).k
    t = saddle.escape_time(np.repeat(eps[:, None], 4, 1), name, 64, threshold=0.5).t
    assert k * t == pytest.approx(values, rel=2e-5)


def test_drives_of_the_reference_table():
    for name, k in (("tanh", 4.845644), ("erf", 7.487720), ("sin", 4.852245), ("gelu", 0.5), ("silu", 0.5)):
        d = saddle.drive(name, 4, 64)
        assert d.k == pytest.approx(k, abs=1e-6)
        assert d.k_s == pytest.approx(k / 64, abs=1e-8)  # erratum E1: the two clocks differ by N


def test_relu_chain_has_a_drive_of_its_own():
    """Class A with a kink: K = √N β E[σ σ^{∘(L−1)}], and the leading law is exact but for the end of the flight."""
    d = saddle.drive("relu", 5, 4)
    assert d.k == pytest.approx(1.0)
    t = saddle.reduced_flow([0.01] * 5, "relu", 4, threshold=0.1, keep=False).escape_t
    assert t == pytest.approx(balanced(0.01, 5, d.k, 0.1), rel=1e-4)


@pytest.mark.parametrize(
    ("f", "reason"),
    [
        ("elu", "not C2"),
        ("sigmoid", "centred"),
        (lambda z: z + z**4, "thin family"),
        (lambda z: z - z.tanh(), "f'\\(0\\) = 0"),
    ],
)
def test_activations_outside_the_theory_are_named(f, reason):
    with pytest.raises(ValueError, match=reason):
        saddle.escape_time([0.1] * 3, f, 8)


def test_hardtanh_is_refused():
    from torch import nn

    with pytest.raises(ValueError, match="linear around 0"):
        saddle.escape_time([0.1] * 3, nn.Hardtanh(), 8)


def test_no_positive_drive_is_refused():
    with pytest.raises(ValueError, match="does not leave the saddle at zero"):
        saddle.drive(lambda u: u - 0.5 * u**3, 4, 8)  # class B3 with h = 1 − 3a < 0
    with pytest.raises(ValueError, match="does not leave the saddle at zero"):
        saddle.drive("tanh", 4, 8, beta=-1.0)


def test_bad_methods_and_scales():
    with pytest.raises(ValueError, match="choose one of"):
        saddle.escape_time([0.1] * 3, "tanh", 8, method="exact")
    with pytest.raises(ValueError, match="equal, positive scales"):
        saddle.escape_time([0.1, 0.2, 0.1], "tanh", 8, method="nlo")
    with pytest.raises(ValueError, match="no layer"):
        saddle.escape_time([0.7, 0.8, 0.9], "tanh", 8, method="critical", threshold=0.95)
    assert float(saddle.escape_time([0.5, 0.1, 0.1], "tanh", 8, threshold=0.3, method="leading")) == 0.0


def test_regimes():
    assert regime([0.01] * 4, "tanh").startswith("resummed")
    assert regime([0.01] * 3, "tanh").startswith("ode")
    assert regime([0.01] * 3, "relu").startswith("balanced")
    assert regime([0.001, 0.001, 0.001, 1.0], "tanh").startswith("critical")
    assert regime([0.1, 0.2, 0.3, 0.4], "tanh").startswith("leading")
