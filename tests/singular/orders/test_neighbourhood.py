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
