"""Fisher spectra along paths into a singularity, and the zoo of known answers."""

import pytest
import torch

from netvitals.singular.networks import zoo
from netvitals.singular.orders import spectrum
from netvitals.singular.orders.order import directional_fisher

f64 = {"dtype": torch.float64}
TS = (1e-3, 3e-3, 1e-2)


@pytest.mark.parametrize("specimen", zoo.specimens(), ids=lambda s: s.name)
def test_zoo(specimen):
    found = zoo.examine(specimen)
    assert found.agrees, f"{specimen.name}: order {found.order}, λ {found.lam}, m {found.m}"
    if specimen.order is not None:
        assert found.ratio == pytest.approx(2 * specimen.order**2, rel=0.02)
        assert found.estimate == pytest.approx(specimen.order, abs=0.025)  # a Fisher slope within 0.05


def net(theta):
    x = torch.linspace(-1, 1, 12, **f64).reshape(6, 2)
    return torch.tanh(x @ theta[:4].reshape(2, 2)) @ theta[4:].reshape(2, 3)


@pytest.mark.parametrize("family", ["gaussian", "categorical"])
def test_matrix_agrees_with_directional_products(family):
    theta, v = torch.randn(10, **f64), torch.randn(10, **f64)
    matrix = spectrum.fisher_matrix(net, theta, family)
    assert float(v @ matrix @ v) == pytest.approx(float(directional_fisher(net, theta, v, family)), rel=1e-10)
    values, vectors = spectrum.fisher_spectrum(net, theta, family)
    assert torch.allclose(values, torch.linalg.eigvalsh(matrix), atol=1e-12)
    assert torch.allclose(matrix @ vectors, vectors * values, atol=1e-10)


def test_lanczos_agrees_with_the_dense_spectrum(monkeypatch):
    theta = torch.randn(10, **f64)
    dense, _ = spectrum.fisher_spectrum(net, theta)
    monkeypatch.setattr(spectrum, "DENSE_LIMIT", 5)
    values, vectors = spectrum.fisher_spectrum(net, theta, k=4)
    assert float(values[-1]) == pytest.approx(float(dense[-1]), rel=1e-9)
    assert float(values[-2]) == pytest.approx(float(dense[-2]), rel=1e-7)
    assert vectors.shape[0] == 10


@pytest.mark.parametrize(("shape", "q", "expected"), [((4, 3, 4), 1, (9, 12, 3)), ((6, 4, 5), 1, (16, 24, 4))])
def test_reduced_rank_partition(shape, q, expected):
    d, h, o = shape
    gen = torch.Generator().manual_seed(0)
    x = torch.randn(60, d, generator=gen, **f64)
    a, b = torch.randn(h, d, generator=gen, **f64), torch.randn(o, h, generator=gen, **f64)
    a[h - q :], b[:, h - q :] = 0, 0
    row, column = torch.zeros(h, d, **f64), torch.zeros(o, h, **f64)
    row[-1], column[:, -1] = torch.randn(d, generator=gen, **f64), torch.randn(o, generator=gen, **f64)

    def outputs(theta):
        return x @ theta[: h * d].reshape(h, d).T @ theta[h * d :].reshape(o, h).T

    found = spectrum.classify_spectrum(
        outputs, torch.cat([a.flatten(), b.flatten()]), torch.cat([row.flatten(), column.flatten()]), TS
    )
    assert (found.count("zero"), found.count("constant"), found.count("transversal")) == expected


def family(k, j):
    return lambda theta: torch.stack([theta[0] ** k, theta[0] ** j * theta[1]])[None]


@pytest.mark.parametrize(("k", "j"), [(2, 2), (3, 1)])
def test_tangential_and_transversal_are_told_apart(k, j):
    found = spectrum.classify_spectrum(family(k, j), torch.zeros(2, **f64), torch.tensor([1.0, 0.0]), TS)
    (transversal,), (tangential,) = found.of("transversal"), found.of("tangential")
    assert (transversal.order, tangential.order) == (k, j) and found.separable
    assert transversal.exponent == pytest.approx(2 * (k - 1), abs=0.05) and transversal.angle < 1
    assert tangential.exponent == pytest.approx(2 * j, abs=0.05) and tangential.angle > 89


@pytest.mark.parametrize(("k", "j"), [(2, 2), (3, 1), (2, 3)])
def test_classes_survive_a_cross_term_that_turns_the_eigenvectors(k, j):
    turned = lambda theta: torch.stack([theta[0] ** k, theta[0] ** j * theta[1] + theta[0] ** (j + k)])[None]
    found = spectrum.classify_spectrum(turned, torch.zeros(2, **f64), torch.tensor([1.0, 0.0]), TS)
    assert [d.order for d in found.of("transversal")] == [k] and [d.order for d in found.of("tangential")] == [j]


def test_failed_genericity_is_said():
    found = spectrum.classify_spectrum(family(2, 1), torch.zeros(2, **f64), torch.tensor([1.0, 0.0]), TS)
    assert not found.separable and "genericity" in found.note


def test_operational_selection_matches_or_refuses():
    rank, words = spectrum.operational_selection([0.0, 1.97, 6.2], [1.0, 1e-4, 1e-30], predicted=2)
    assert rank == 1 and "1.970" in words
    rank, words = spectrum.operational_selection([0.0, 1.4], [1.0, 1e-4], predicted=2)
    assert rank is None and "theorem reach exceeded" in words
    assert spectrum.operational_selection([2.0], [0.0], predicted=2)[0] is None


def test_mixture_of_size_zero_is_refused():
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        zoo.SplitMixture(0.0)
