"""The local learning coefficient on models whose λ is known, and the manners of the sampler."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from netvitals.singular import learning_coefficient, rlct_reduced_rank
from netvitals.singular.sampling.chains import effective_draws, examine, split_r_hat

pytestmark = pytest.mark.slow

f64 = {"dtype": torch.float64}


def half_square(outputs, targets):
    return 0.5 * (outputs - targets).square().sum(1).mean()


class Power(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.w, self.k = nn.Parameter(torch.zeros(1, **f64)), k

    def forward(self, x):
        return x * self.w**self.k


class DeepLinear(nn.Module):
    def __init__(self, n_in, hidden, n_out, rank):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.eye(hidden, n_in, **f64)), nn.Parameter(torch.eye(n_out, hidden, **f64))
        with torch.no_grad():
            self.a[rank:] = 0
            self.b[:, rank:] = 0

    def forward(self, x):
        return x @ self.a.T @ self.b.T


@pytest.mark.parametrize("k", [1, 2, 3])
def test_power_law_model(k):
    x = torch.ones(4, 1, **f64)
    llc = learning_coefficient(
        Power(k),
        half_square,
        (x, torch.zeros_like(x)),
        chains=128,
        draws=400,
        burn_in=400,
        localization=0.0,
        nbeta=300.0,
    )
    assert abs(llc.mean - 1 / (2 * k)) < 3 * llc.stderr
    assert llc.mean == pytest.approx(1 / (2 * k), rel=0.1)


def test_regular_model_counts_half_its_parameters():
    x = torch.randn(2000, 6, **f64)
    model = nn.Linear(6, 2, bias=False).double()
    llc = learning_coefficient(model, half_square, (x, model(x).detach()), chains=16, draws=300, localization=0.0)
    assert llc.parameters == 12
    assert llc.mean == pytest.approx(6, rel=0.05)


@pytest.mark.parametrize("shape", [(3, 3, 4, 2), (3, 2, 2, 1), (4, 3, 4, 1)])  # multiplicity 1
def test_deep_linear_networks(shape):
    model = DeepLinear(*shape)
    x = torch.randn(2000, shape[0], **f64)
    llc = learning_coefficient(
        model, half_square, (x, model(x).detach()), chains=24, draws=500, burn_in=300, localization=0.1, seed=1
    )
    lam, m = rlct_reduced_rank(*shape)
    assert m == 1
    assert abs(llc.mean - lam) < 3 * llc.stderr
    assert llc.mean == pytest.approx(lam, rel=0.1)
    assert 0.4 < llc.acceptance < 0.85 and llc.searched


def test_a_deep_linear_network_of_multiplicity_two():
    """At finite n the expectation is about (m − 1)/log(nβ) below λ."""
    model = DeepLinear(5, 3, 4, 1)
    x = torch.randn(2000, 5, generator=torch.Generator().manual_seed(0), **f64)
    llc = learning_coefficient(
        model, half_square, (x, model(x).detach()), chains=24, draws=500, burn_in=500, localization=0.1, seed=1
    )
    lam, m = rlct_reduced_rank(5, 3, 4, 1)
    assert (lam, m) == (7, 2)
    assert abs(llc.mean - (lam - (m - 1) / math.log(llc.nbeta))) < 3 * llc.stderr
    assert llc.mean == pytest.approx(lam, rel=0.1)


def test_refined_coefficient_of_one_layer():
    x = torch.randn(1000, 5, **f64)
    model = nn.Sequential(nn.Linear(5, 4, bias=False), nn.Linear(4, 3, bias=False)).double()
    llc = learning_coefficient(
        model, half_square, (x, model(x).detach()), only="1.*", chains=8, draws=300, localization=0.0
    )
    assert llc.parameters == 12
    assert llc.mean == pytest.approx(6, rel=0.15)  # with the first layer fixed the second is regular


def test_minibatch_sgld_agrees_within_its_bias():
    x = torch.randn(1000, 5, **f64)
    model = nn.Linear(5, 1, bias=False).double()
    targets = model(x).detach() + 0.01 * torch.randn(1000, 1, **f64)
    loader = DataLoader(TensorDataset(x, targets), batch_size=100)
    llc = learning_coefficient(model, half_square, loader, chains=16, draws=400, batch_size=200, localization=0.0)
    assert math.isnan(llc.acceptance)
    assert llc.mean == pytest.approx(2.5, rel=0.25)


def test_preconditioned_chains_stay_exact():
    x = torch.randn(1500, 4, **f64) * torch.tensor([1.0, 3.0, 0.3, 1.0], **f64)
    model = nn.Linear(4, 1, bias=False).double()
    llc = learning_coefficient(
        model, half_square, (x, model(x).detach()), chains=16, draws=600, localization=0.0, preconditioned=True
    )
    assert llc.mean == pytest.approx(2, rel=0.1)


def test_same_seed_same_chains_and_chains_do_not_depend_on_each_other():
    x = torch.randn(200, 3, **f64)
    model = nn.Linear(3, 1).double()
    run = lambda chains, seed: (
        learning_coefficient(
            model, half_square, (x, model(x).detach()), chains=chains, draws=20, step_size=1e-3, seed=seed
        ).trace
    )
    assert np.array_equal(run(2, 0), run(2, 0))
    assert np.allclose(run(4, 0)[:2], run(2, 0), rtol=1e-9)
    assert not np.allclose(run(2, 1), run(2, 0))


def test_the_model_is_left_as_it_was():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2))
    x, y = torch.randn(50, 3), torch.randint(0, 2, (50,))
    model(x).sum().backward()
    before, grads = copy.deepcopy(model.state_dict()), [p.grad.clone() for p in model.parameters()]
    rng = torch.get_rng_state()
    learning_coefficient(model, nn.functional.cross_entropy, (x, y), chains=2, draws=5)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert all(torch.equal(a, p.grad) for a, p in zip(grads, model.parameters()))
    assert model.training and torch.equal(rng, torch.get_rng_state())


def test_diverged_chains_are_counted_never_averaged():
    trace = np.random.default_rng(0).normal(1.0, 0.1, (4, 100))
    trace[2, 50:] = np.inf
    health, good = examine(trace, limit=1e6)
    assert health.diverged == (2,) and good.shape == (3, 100)
    assert "left out" in str(health) and not health.ok


def test_every_chain_diverging_is_said():
    x = torch.randn(200, 3, **f64)
    model = nn.Linear(3, 1).double()
    llc = learning_coefficient(
        model, half_square, (x, model(x).detach()), chains=2, draws=60, step_size=10.0, batch_size=50
    )
    assert math.isnan(llc.mean) and "smaller step size" in llc.note


def test_half_precision_is_promoted_with_a_note():
    model = nn.Linear(3, 1).half()
    x = torch.randn(100, 3)
    llc = learning_coefficient(model, half_square, (x, torch.zeros(100, 1)), chains=1, draws=4)
    assert "promoted" in llc.note and model.weight.dtype == torch.float16


def test_chain_statistics_on_known_series():
    rng = np.random.default_rng(1)
    x = np.zeros(20000)
    for i in range(1, x.size):
        x[i] = 0.8 * x[i - 1] + rng.normal()
    assert effective_draws(x) == pytest.approx(20000 * (1 - 0.8) / (1 + 0.8), rel=0.15)
    min_steps = rng.normal(size=(2, 500)) + np.array([[0.0], [3.0]])
    assert split_r_hat(min_steps) > 1.5


@pytest.mark.parametrize(("kwargs", "words"), [({"only": "nope*"}, "no parameter"), ({"chains": 0}, "at least 1")])
def test_wrong_input(kwargs, words):
    with pytest.raises(ValueError, match=words):
        learning_coefficient(nn.Linear(2, 1), half_square, (torch.randn(10, 2), torch.randn(10, 1)), **kwargs)


def test_nan_data_is_refused():
    with pytest.raises(ValueError, match="NaN"):
        learning_coefficient(nn.Linear(2, 1), half_square, (torch.full((10, 2), math.nan), torch.zeros(10, 1)))
