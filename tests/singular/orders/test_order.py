"""KL orders and Fisher slopes of models whose answer is known."""

import math
import re

import numpy as np
import pytest
import torch

from netvitals.singular.orders import likelihood, order
from netvitals.singular.orders.crossing import eps_scan, recover_crossing
from netvitals.singular.orders.order import directional_fisher, kl_along, kl_order, score_expansion
from netvitals.singular.orders.rates import rate_fit

f64 = {"dtype": torch.float64}


def power(k):
    return lambda th: th[:1].pow(k).expand(8, 1)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_power_law(k):
    result = kl_order(power(k), torch.zeros(1, **f64), torch.ones(1, **f64))
    assert result.order == k and result.consistent
    assert result.slope == pytest.approx(2 * (k - 1), abs=0.05)
    assert result.ratio == pytest.approx(2 * k**2, rel=0.02)
    assert result.passes <= 12


def dead_unit(activation, bias=False):
    """Two-layer net with a dead hidden unit; the joint direction turns its row and its column on together."""
    gen = torch.Generator().manual_seed(1)
    x = torch.randn(4000, 4, generator=gen, **f64)
    live1, live2 = torch.randn(3, 4, generator=gen, **f64), torch.randn(2, 3, generator=gen, **f64)
    row, column = torch.randn(4, generator=gen, **f64), torch.randn(2, generator=gen, **f64)

    def outputs(theta):
        w_in, w_out = theta[:4], theta[4:]
        return activation(x @ live1.T) @ live2.T + activation(x @ w_in)[:, None] * w_out

    return outputs, torch.zeros(6, **f64), torch.cat([row / row.norm(), column / column.norm()])


@pytest.mark.parametrize("activation", [torch.relu, torch.tanh, torch.nn.functional.gelu, lambda z: z])
@pytest.mark.parametrize("family", ["gaussian", "categorical"])
def test_dead_hidden_unit_has_order_two(activation, family):
    result = kl_order(*dead_unit(activation), likelihood=family, ts=np.geomspace(1e-4, 1e-2, 10))
    assert result.order == 2
    assert result.slope == pytest.approx(2, abs=0.05)
    assert result.ratio == pytest.approx(8, rel=0.02)


def test_single_layer_move_of_a_dead_unit_is_a_gauge_direction():
    outputs, theta, v = dead_unit(torch.tanh)
    v = v.clone()
    v[4:] = 0
    result = kl_order(outputs, theta, v)
    assert result.order is None and "gauge" in result.note


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_scalar_chain_has_the_order_of_its_depth(depth):
    ones = torch.ones(depth, **f64)
    result = kl_order(lambda th: th.prod().reshape(1, 1), torch.zeros(depth, **f64), ones)
    assert result.order == depth
    assert result.fisher[0] == pytest.approx(depth * (result.ts[0] / math.sqrt(depth)) ** (2 * (depth - 1)), rel=1e-9)


class Mixture:
    """Two unit Gaussians of weights w, 1−w; outputs are densities on a grid, so Fisher and KL are exact integrals."""

    name = "density on a grid"
    grid = torch.linspace(-12, 12, 4001, **f64)

    def __init__(self, w):
        self.w = w

    def outputs(self, theta):
        a, b = theta[0] * (1 - self.w), -theta[0] * self.w
        density = self.w * torch.exp(-((self.grid - a) ** 2) / 2) + (1 - self.w) * torch.exp(
            -((self.grid - b) ** 2) / 2
        )
        return (density / math.sqrt(2 * math.pi))[None]

    def fisher(self, outputs, tangent):
        return torch.trapezoid(tangent[0] ** 2 / outputs[0], self.grid)

    def kl(self, truth, outputs):
        # Σ p log(p/q) − p + q is the same integral without cancellation of the linear term
        r = (outputs[0] - truth[0]) / truth[0]
        return torch.trapezoid(truth[0] * (r - torch.log1p(r)), self.grid)


@pytest.mark.parametrize("w", [0.5, 0.3, 0.1])
def test_mixture_split(w):
    family = Mixture(w)
    ts = np.geomspace(1e-2, 1e-1, 10)
    result = kl_order(family.outputs, torch.zeros(1, **f64), torch.ones(1, **f64), family, ts=ts)
    c = (w * (1 - w)) ** 2
    assert result.order == 2 and result.ratio == pytest.approx(8, rel=0.02)
    s = ts[0]
    assert result.fisher[0] == pytest.approx(c * (2 * s**2 + (20 * w**2 - 20 * w + 3) * s**4 / 2), rel=1e-5)
    assert result.kl[0] == pytest.approx(c * (s**4 / 4 + (8 * w**2 - 8 * w + 1) * s**6 / 12), rel=1e-4)


@pytest.mark.parametrize("ks", [(1, 1), (1, 2), (2, 2), (2, 3), (3, 1), (3, 3), (1, 2, 3), (2, 2, 2)])
def test_crossing_recovery_is_exact(ks):
    powers = torch.tensor(ks, **f64)
    r = len(ks)

    def outputs(theta):
        return (theta**powers).prod().reshape(1, 1)

    found = recover_crossing(outputs, torch.zeros(r, **f64), list(torch.eye(r, **f64)))
    assert found.ks == ks and found.consistent
    assert found.estimates == pytest.approx(ks, abs=1e-6)
    assert found.generic == pytest.approx(sum(ks), abs=1e-6)
    assert (found.lam, found.m) == (1 / (2 * max(ks)), ks.count(max(ks)))


def test_eps_scan_reads_the_anchored_sheet():
    moving, anchored = torch.eye(2, **f64)
    slope = eps_scan(
        lambda th: (th[0] * th[1] ** 3).reshape(1, 1), torch.zeros(2, **f64), moving, anchored, eps=(0.1, 0.2, 0.4, 0.8)
    )
    assert slope == pytest.approx(6, abs=1e-6)


def test_shifted_fit_recovers_the_exponent_that_a_plain_fit_misses():
    s = np.geomspace(1e-3, 1e-1, 12)
    y = 0.7 * (s + 1e-3) ** 2
    plain, shifted = rate_fit(s, y), rate_fit(s, y, shift=True)
    assert plain.slope < 1.9
    assert shifted.slope == pytest.approx(2, abs=1e-3) and shifted.shift == pytest.approx(1e-3, rel=1e-2)


def test_checkpoint_near_the_singularity():
    outputs, theta, v = dead_unit(torch.tanh)
    near = theta + 1e-3 * v / v.norm()
    result = kl_order(outputs, near, v, ts=np.geomspace(1e-3, 1e-1, 10), shift=True)
    assert result.estimate == pytest.approx(2, abs=0.05)


def test_zero_curve_is_named_and_not_fitted():
    fit = rate_fit([0.1, 0.2, 0.4], [0.0, 0.0, 0.0])
    assert math.isnan(fit.slope) and fit.flags == ("identically zero",)


def test_score_expansion_agrees_with_the_fit():
    outputs, theta, v = dead_unit(torch.tanh)
    expansion = score_expansion(outputs, theta, v, order=3)
    unit = v / v.norm()
    t = 1e-4
    assert expansion.order == 2
    assert float(kl_along(outputs, theta, unit, [t])[0]) == pytest.approx(expansion.C * t**4, rel=1e-3)


def test_monte_carlo_and_empirical_fisher_are_named_and_near_the_expected_one():
    gen = torch.Generator().manual_seed(0)
    x = torch.randn(20000, 5, generator=gen, **f64)
    w = torch.randn(15, generator=gen, **f64)
    v = torch.randn(15, generator=gen, **f64)

    def outputs(theta):
        return x @ theta.reshape(5, 3)

    exact = directional_fisher(outputs, w, v, "categorical")
    sampled = likelihood.monte_carlo(outputs(w), seed=3)
    assert "monte-carlo" in sampled.name
    assert float(directional_fisher(outputs, w, v, sampled)) == pytest.approx(float(exact), rel=0.05)


def test_directional_fisher_equals_the_dense_matrix():
    gen = torch.Generator().manual_seed(0)
    x = torch.randn(50, 3, generator=gen, **f64)

    def outputs(theta):
        return torch.tanh(x @ theta[:6].reshape(3, 2)) * theta[6:]

    theta, v = torch.randn(8, generator=gen, **f64), torch.randn(8, generator=gen, **f64)
    jacobian = torch.func.jacrev(outputs)(theta)
    dense = torch.einsum("ndi,ndj->ij", jacobian, jacobian) / 50
    assert float(directional_fisher(outputs, theta, v)) == pytest.approx(float(v @ dense @ v), rel=1e-12)


@pytest.mark.parametrize(("v", "words"), [(torch.zeros(2), "not zero"), (torch.ones(3), "same shape as theta")])
def test_bad_directions(v, words):
    with pytest.raises(ValueError, match=words):
        kl_order(power(2), torch.zeros(2), v)


def test_nan_outputs_are_refused():
    with pytest.raises(ValueError, match="NaN or infinit"):
        kl_order(lambda th: th[:1].expand(3, 1) * math.nan, torch.zeros(1), torch.ones(1))


def test_unknown_likelihood_lists_the_known():
    with pytest.raises(ValueError, match="categorical"):
        order.kl_order(power(2), torch.zeros(1), torch.ones(1), likelihood="poisson")


@pytest.mark.parametrize("size", [1e-6, 3e-3, 1.4e-2, 0.1])
def test_the_categorical_divergence_to_many_digits(size):
    """log E_p[e^d] − E_p[d] in fifty digits, beside the series that is used where d is small."""
    from decimal import Decimal, getcontext

    from netvitals.singular.orders.likelihood import Categorical

    getcontext().prec = 50
    truth = torch.tensor([[0.3, -1.0, 0.8]], dtype=torch.float64)
    d = size * torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)  # 1.4e-2 is just inside the series
    moved = truth + d
    exact = [Decimal(float(a)) for a in truth[0]]
    change = [Decimal(float(b)) - a for a, b in zip(exact, moved[0])]
    total = sum(a.exp() for a in exact)
    p = [a.exp() / total for a in exact]
    expected = sum(q * c.exp() for q, c in zip(p, change)).ln() - sum(q * c for q, c in zip(p, change))
    found = float(Categorical().kl(truth, moved))
    assert found == pytest.approx(float(expected), rel=max(1e-10, 1e-15 / size), abs=0), (found, float(expected))


def test_a_slope_without_the_ratio_is_no_order():
    """u²(2 + sin(3 log u)) falls like u² on the whole, but F t²/K runs from 0 to 28 and is not 8."""

    def waves(th):
        u = th[:1].abs() + 1e-300
        return (u.square() * (2 + torch.sin(3 * u.log()))).expand(4, 1)

    result = kl_order(waves, torch.zeros(1, **f64), torch.ones(1, **f64))
    assert result.order is None and "two measurements disagree" in result.note, str(result)


def test_the_ratio_is_read_from_the_singular_set_in_shift_mode():
    both = torch.ones(2, **f64)
    product = lambda th: (th[0] * th[1]).reshape(1, 1).expand(4, 1)
    for away in (1e-4, 1e-3, 5e-3):
        result = kl_order(product, away * both, both, shift=True)
        assert result.order == 2 and result.ratio == pytest.approx(8, rel=1e-3), str(result)


SLANTED = {  # two parameters; normals; orders, λ, m
    "t0²(t0 − t1)": (lambda t: t[0] ** 2 * (t[0] - t[1]), [(1, 0), (1, -1)], (2, 1), 0.25, 1),
    "t0(t0 − t1)": (lambda t: t[0] * (t[0] - t[1]), [(1, 0), (1, -1)], (1, 1), 0.5, 2),
    "(3 t0 + t1)(t0 + t1)³": (lambda t: (3 * t[0] + t[1]) * (t[0] + t[1]) ** 3, [(3, 1), (1, 1)], (1, 3), 1 / 6, 1),
    "a curved sheet": (lambda t: t[0] * (t[1] - 0.3 * t[0] ** 2), [(1, 0), (0, 1)], (1, 1), 0.5, 2),
}


@pytest.mark.parametrize("name", SLANTED)
def test_sheets_at_any_angle(name):
    f, normals, ks, lam, m = SLANTED[name]
    found = recover_crossing(
        lambda t: f(t)[None, None], torch.zeros(2, **f64), [torch.tensor(n, **f64) for n in normals]
    )
    assert found.consistent and found.ks == ks and (found.lam, found.m) == (pytest.approx(lam), m), str(found)


NONE = {  # what is no crossing of the two sheets named, and the reason
    "three lines": (lambda t: t[:1] * t[1:2] * (t[0] + t[1]), "do not add up"),
    "a cusp": (lambda t: t[:1] ** 2 - t[1:2] ** 3, "zero set|add up|whole number"),
}


@pytest.mark.parametrize("name", NONE)
def test_what_is_no_crossing_has_no_coefficient(name):
    f, why = NONE[name]
    axes = torch.eye(3, **f64)
    found = recover_crossing(lambda t: f(t)[None], torch.zeros(3, **f64), [axes[0], axes[1]])
    assert found.lam is None and found.m is None and not found.consistent
    assert re.search(why, str(found)) and str(found).startswith("λ not determined"), str(found)


@pytest.mark.parametrize(("power", "said"), [(1, "order 1"), (2, "order 2"), (0, "")])
def test_what_changes_beside_the_sheets_is_said(power, said):
    axes = torch.eye(3, **f64)
    found = recover_crossing(
        lambda t: torch.stack([t[0] * t[1], t[2] ** power])[None], torch.zeros(3, **f64), [axes[0], axes[1]]
    )
    assert (
        (found.lam, found.m) == (0.5, 2) and ("these sheets alone" in str(found)) == bool(said) and said in found.note
    )


def test_dependent_normals_are_refused():
    lines = [torch.tensor(n, **f64) for n in ((1, 0), (0, 1), (1, 1))]
    with pytest.raises(ValueError, match="linearly dependent"):
        recover_crossing(lambda t: (t[0] * t[1] * t.sum())[None, None], torch.zeros(2, **f64), lines)
