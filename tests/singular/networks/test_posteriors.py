"""The exact answers that the sampler is held against, found in two ways each."""

import math

import numpy as np
import pytest
import torch

from netvitals.singular.networks.posteriors import (
    catalogue,
    half_square,
    of_linear_product,
    of_linear_readout,
    of_monomial,
    of_regular,
    white,
)

AWAY = (0.03, 0.1, 0.2, 0.3, 0.5)


def on_a_grid(loss, nbeta, gamma, reach, points=1601, at=0.0):
    """nβ E[L] of a loss of two parameters with a well about (at, at), by the midpoint rule on a grid dense about 0."""
    t = np.linspace(-1, 1, points)
    u = np.sinh(9 * t) / math.sinh(9) * reach
    cell = np.gradient(u)
    a, b = np.meshgrid(u, u, indexing="ij")
    energy = nbeta * loss(a, b)
    weight = np.exp(-energy - gamma / 2 * ((a - at) ** 2 + (b - at) ** 2)) * np.outer(cell, cell)
    return float((energy * weight).sum() / weight.sum())


@pytest.mark.parametrize(("p", "q", "nbeta", "gamma"), [(1, 1, 1e3, 1.0), (2, 2, 1e3, 0.1), (2, 3, 1e2, 1.0)])
def test_monomials_agree_with_a_plain_grid(p, q, nbeta, gamma):
    grid = on_a_grid(lambda a, b: (a**p * b**q) ** 2 / 2, nbeta, gamma, reach=7 / math.sqrt(gamma))
    assert of_monomial((p, q), nbeta, gamma) == pytest.approx(grid, rel=2e-3)


def test_one_power_alone_has_the_limit_of_its_order():
    for k in (1, 2, 3, 4):
        assert of_monomial([k], 1e12, 1e-3) == pytest.approx(1 / (2 * k), rel=1e-3)


def test_a_product_of_matrices_agrees_with_the_monomial_and_with_its_readout():
    assert of_linear_product(1, 1, 1, 1e3) == pytest.approx(of_monomial((1, 1), 1e3), rel=1e-3)
    x = white(4, 1).numpy()
    readout = of_linear_readout(lambda th: th[:, None, :] * x[None], [0.0], np.zeros((3, 1)), 1e3)
    assert of_linear_product(1, 1, 3, 1e3) == pytest.approx(readout, rel=1e-3)
    assert of_linear_product(2, 1, 3, 1e3) == pytest.approx(of_linear_product(1, 2, 3, 1e3), rel=1e-9)
    # transposing the network changes nothing
    assert of_linear_product(2, 2, 3, 1e3) == pytest.approx(of_linear_product(3, 2, 2, 1e3), rel=5e-3)


def test_a_dead_tanh_unit_agrees_with_a_plain_grid():
    p = catalogue()["tanh unit, dead"]()
    x = p.x[:, 0].numpy()

    def loss(a, b):
        return sum((a * np.tanh(b * v)) ** 2 for v in x) / len(x) / 2

    assert p.exact == pytest.approx(on_a_grid(loss, p.nbeta, 1.0, reach=7.0, points=801), rel=3e-3)


@pytest.mark.parametrize("a", [0.1, 0.3])
def test_off_the_singular_point_agrees_with_a_plain_grid(a):
    p = catalogue()[f"ab, a = b = {a}"]()
    second = float(p.x.square().mean())
    grid = on_a_grid(lambda u, v: second * (u * v - a * a) ** 2 / 2, p.nbeta, 1.0, reach=7.0, at=a)
    assert p.exact == pytest.approx(grid, rel=2e-3)


def test_between_singular_and_regular_the_coefficient_rises():
    exact = [catalogue()[name]().exact for name in ["tanh unit, dead", *(f"tanh unit, a = {a}" for a in AWAY)]]
    assert exact == sorted(exact) and exact[0] < 0.4 and 0.7 < exact[-1] < catalogue()["tanh unit, alive"]().exact


def test_noise_that_a_unit_cannot_fit_changes_little_and_agrees_with_a_plain_grid():
    p = catalogue()["minibatches of 64, tanh unit, dead"]()
    x, y = (t[:, 0].numpy() for t in p.batch)
    assert y.std() > 0.4

    def loss(a, b):
        return sum((a * np.tanh(b * v) - t) ** 2 - t * t for v, t in zip(x, y)) / len(x) / 2

    assert p.exact == pytest.approx(on_a_grid(loss, p.nbeta, 1.0, reach=7.0, points=301), rel=5e-3)


def test_a_regular_model_is_half_its_parameters_less_what_the_well_holds():
    assert of_regular(np.ones(6), 1e9) == pytest.approx(3.0)
    assert of_regular(np.ones(4), 141.0, 1000.0) == pytest.approx(0.247, abs=1e-3)


def test_every_posterior_of_the_catalogue_stands_at_its_minimum():
    cheap = [n for n in catalogue() if not any(word in n for word in ("rank 1", "two", "minibatches of 64, a"))]
    assert len(catalogue()) >= 25 and len(cheap) > 20
    for name in cheap:
        p = catalogue()[name]()
        x, y = p.batch
        loss = half_square(p.model(x), y)
        gradients = torch.autograd.grad(loss, list(p.model.parameters()), allow_unused=True)
        assert p.name == name and 0 < p.exact < 100
        assert all(g is None or float(g.abs().max()) < 1e-7 for g in gradients), name
