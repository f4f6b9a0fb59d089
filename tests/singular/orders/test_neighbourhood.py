"""λ, m and ν from the neighbourhood of a point, beside exact answers; what cannot be resolved is refused."""

import pytest
import torch

from netvitals.singular import nu
from netvitals.singular.orders.neighbourhood import local_coefficient
from netvitals.singular.orders.product import product_crossing
from netvitals.singular.orders.quadratic import defined_below, sheets_of

f64 = torch.float64
X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0), dtype=f64)
one = lambda value: value.reshape(1, 1).expand(4, 1)

RESOLVED = {
    "a·tanh(bx)": (lambda th: th[0] * torch.tanh(th[1] * X[:, :1]), 2, 0.5, 2, None),
    "square": (lambda th: one(th[0] ** 2), 1, 0.25, 1, nu(2)),
    "cube": (lambda th: one(th[0] ** 3), 1, 1 / 6, 1, nu(3)),
    "two squares and a line": (
        lambda th: torch.stack([th[0] ** 2, th[1] ** 2, th[2]])[None],
        3,
        1.0,
        1,
        0.5 + 2 * nu(2),
    ),
    "u² − v²": (lambda th: one(th[0] ** 2 - th[1] ** 2), 2, 0.5, 2, None),
    "a unit of 3 inputs and 2 outputs": (lambda th: torch.tanh(X[:, :3] @ th[:3])[:, None] * th[3:], 5, 1.0, 1, None),
    "a sum": (lambda th: one(th[0] + th[1]), 2, 0.5, 1, 0.5),
}


@pytest.mark.parametrize("name", RESOLVED)
def test_known_points(name):
    outputs, parameters, lam, m, fluctuation = RESOLVED[name]
    found = local_coefficient(outputs, torch.zeros(parameters, dtype=f64))
    assert (found.lam, found.m) == (pytest.approx(lam, abs=1e-12), m), str(found)
    if fluctuation is None:
        assert found.nu is None and "ν not determined" in str(found)
    else:
        assert found.nu == pytest.approx(fluctuation, abs=1e-9)


@pytest.mark.parametrize("factor", [1e-13, 1e13])
@pytest.mark.parametrize("name", RESOLVED)
def test_the_unit_of_the_outputs_does_not_matter(name, factor):
    outputs, parameters, lam, m, _ = RESOLVED[name]
    found = local_coefficient(lambda th: factor * outputs(th), torch.zeros(parameters, dtype=f64))
    assert (found.lam, found.m) == (pytest.approx(lam, abs=1e-12), m), str(found)


OPEN = {
    "two dead tanh units": (lambda th: th[2] * torch.tanh(th[0] * X[:, :1]) + th[3] * torch.tanh(th[1] * X[:, :1]), 4),
    "a²b³": (lambda th: one(th[0] ** 2 * th[1] ** 3), 2),
    "abc": (lambda th: one(th.prod()), 3),
    "orders 2 and 3": (lambda th: torch.stack([th[0] ** 2, th[1] ** 3, th[2]])[None], 3),
}


@pytest.mark.parametrize("name", OPEN)
def test_what_needs_a_resolution_is_refused(name):
    outputs, parameters = OPEN[name]
    found = local_coefficient(outputs, torch.zeros(parameters, dtype=f64))
    assert found.lam is None and found.m is None and str(found).startswith("λ not determined, because "), str(found)


def test_too_few_scores_and_no_clear_rank_are_said():
    found = local_coefficient(lambda th: th[None, :2] * 1.0, torch.zeros(3, dtype=f64))
    assert "3 parameters and only 2 scores" in str(found)
    weak = local_coefficient(lambda th: th[None] * torch.tensor([1.0, 1e-9], dtype=f64), torch.zeros(2, dtype=f64))
    assert "no clear rank" in str(weak)
    with pytest.raises(ValueError, match="gaussian or categorical"):
        local_coefficient(lambda th: th[None], torch.zeros(2, dtype=f64), "poisson")


def test_a_softmax_does_not_see_a_shift_of_its_logits():
    weights = torch.randn(12, generator=torch.Generator().manual_seed(1), dtype=f64)
    found = local_coefficient(lambda th: X @ th.reshape(4, 3), weights, "ce")
    assert (found.lam, found.rank, found.fibre) == (4.0, 8, 4)


def test_a_product_that_is_none_is_refused():
    zero, first = torch.zeros(2, dtype=f64), torch.tensor([True, False])
    assert "while one side" in str(product_crossing(lambda th: one(th[0] + th[0] * th[1]), zero, first))
    assert "square of each side" in str(product_crossing(lambda th: one(th[0] * th[1] ** 2), zero, first))


def test_the_zeros_of_a_quadratic_map():
    definite = torch.eye(3, dtype=f64)[:, :, None]
    assert sheets_of(definite) is None and defined_below(definite) > 0.5
    cone = torch.diag(torch.tensor([1.0, 1.0, -1.0], dtype=f64))[:, :, None]  # zero on a cone, not on planes
    assert sheets_of(cone) is None and defined_below(cone) < 1e-6


def linear(n_in, hidden, n_out, inputs=X):
    """A linear network at zero, the first layer before the crossing."""
    cut = n_in * hidden

    def outputs(th):
        return inputs[:, :n_in] @ th[:cut].reshape(hidden, n_in).T @ th[cut:].reshape(n_out, hidden).T

    return outputs, cut, cut + hidden * n_out


def hidden_units(units, act, bias=False):
    def outputs(th):
        shift = th[units : 2 * units] if bias else 0.0
        return act(X[:, :1] * th[:units] + shift) @ th[-units:, None]

    return outputs, units * (1 + bias), units * (2 + bias)


PAIRED = {  # two sheets, or more: the truth of what no random ray tells apart
    "linear 3-3-3": (linear(3, 3, 3), None),  # 3.5 and not 4.5
    "linear 1-2-2": (linear(1, 2, 2), None),
    "linear 2-1-3": (linear(2, 1, 3), (1.0, 1)),
    "tanh 1-2-1": (hidden_units(2, torch.tanh), None),  # 2/3
    "tanh 1-3-1": (hidden_units(3, torch.tanh), None),  # 5/6
    "tanh 1-1-1": (hidden_units(1, torch.tanh), (0.5, 2)),
    "tanh 1-1-1 with bias": (hidden_units(1, torch.tanh, bias=True), (0.5, 1)),
    "ReLU 1-2-1": (hidden_units(2, torch.relu), None),
    "ReLU 1-1-1": (hidden_units(1, torch.relu), (0.5, 2)),
    "ReLU 1-1-1 with bias": (hidden_units(1, torch.relu, bias=True), (0.0, 1)),  # an open cone of weights is dead
    "GELU 1-1-1": (hidden_units(1, torch.nn.functional.gelu), (0.5, 2)),
    "GELU 1-2-1": (hidden_units(2, torch.nn.functional.gelu), None),
    "a square beside": ((lambda th: (X[:, :1] * th[0] + X[:, 1:2] * th[1] ** 2) * th[2], 2, 3), None),
    "leaky ReLU 1-1-1 with bias": (
        hidden_units(1, torch.nn.functional.leaky_relu, bias=True),
        (0.5, 1),
    ),
}


@pytest.mark.parametrize("name", PAIRED)
def test_a_product_is_two_sheets_only_where_no_pair_changes_nothing(name):
    (outputs, cut, count), answer = PAIRED[name]
    found = product_crossing(outputs, torch.zeros(count, dtype=f64), torch.arange(count) < cut)
    if answer is None:
        assert not found.resolved and "λ not determined" in str(found), str(found)
    else:
        assert (found.lam, found.m) == answer, str(found)
        assert ("open cone" in str(found)) == (answer[0] == 0)


def test_a_relu_on_inputs_of_one_side_is_dead_in_an_open_cone():
    away = torch.tensor([2.0, -1.0, 0.5], dtype=f64)
    inputs = X[:, :3] - 0.9 * (X[:, :3] @ away - 0.3).clamp_min(0)[:, None] * away / (0.9 * away @ away)
    for data, answer in ((inputs - 0.2 * away, (0.0, 1)), (X[:, :3], (1.0, 1))):
        unit = lambda th, data=data: torch.relu(data @ th[:3])[:, None] * th[3:]
        found = product_crossing(unit, torch.zeros(5, dtype=f64), torch.arange(5) < 3)
        assert (found.lam, found.m) == answer, str(found)


GROWING = {  # the rank grows along what is flat at second order
    "w1(w1 − w2²)": (lambda th: one(th[0] * (th[0] - th[1] ** 2)), 2),  # 3/8 and not 1/4
    "w1(w1 − w2³)": (lambda th: one(th[0] * (th[0] - th[1] ** 3)), 2),
    "w1(w1 − w2²), and a line": (lambda th: torch.stack([th[0] * (th[0] - th[1] ** 2), th[2]])[None], 3),
    "w1 w2, w1 w3²": (lambda th: torch.stack([th[0] * th[1], th[0] * th[2] ** 2, 0 * th[0]])[None], 3),  # m = 1, not 2
}


@pytest.mark.parametrize("name", GROWING)
def test_a_rank_that_grows_along_the_fibre_is_refused(name):
    outputs, count = GROWING[name]
    found = local_coefficient(outputs, torch.zeros(count, dtype=f64))
    assert found.lam is None and "λ not determined" in str(found), str(found)


def test_a_crossing_with_a_curved_fibre_is_kept():
    found = local_coefficient(
        lambda th: torch.stack([th[0] * (th[1] + th[2] ** 2), 0 * th[0], 0 * th[0]])[None], torch.zeros(3, dtype=f64)
    )
    assert (found.lam, found.m) == (0.5, 2), str(found)
