"""The local learning coefficient on posteriors whose answer is known, and the manners of the sampler."""

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

import reader_models
from netvitals.anatomy import Replicas, plain_kernels
from netvitals.capture import mapped
from netvitals.singular import learning_coefficient, rlct_deep_linear
from netvitals.singular.networks.posteriors import catalogue, half_square
from netvitals.singular.sampling.data import Data, gathered
from netvitals.singular.sampling.langevin import Langevin
from netvitals.singular.sampling.noise import NoiseSource

f64 = {"dtype": torch.float64}


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def estimate(name, seed=0, **options):
    p = catalogue()[name]()
    options = {"nbeta": p.nbeta, "localization": p.gamma, "batch_size": p.batch_size, "seed": seed} | options
    return p, learning_coefficient(p.model, half_square, p.batch, **options)


# what the exact answer is, and what chains at one temperature gave for it with a small error and no word of doubt
MISREAD = {
    "a⁴": (0.1242, 0.0765),
    "(ab)²": (0.2003, 0.161),
    "a²b³": (0.1524, 0.110),
    "ab at nβ = 2e5": (0.4271, 0.309),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MISREAD)
def test_sharp_singularities_are_reached(name):
    exact, wrong = MISREAD[name]
    p, llc = estimate(name, draws=400)
    assert p.exact == pytest.approx(exact, abs=1e-4)
    assert llc.ok and len(llc.rungs) > 4, llc
    assert abs(llc.mean - exact) < 3 * llc.stderr and abs(llc.mean - exact) < 0.5 * abs(wrong - exact), llc


@pytest.mark.parametrize(
    "name",
    [
        "ab², turned, at nβ = 1e5",
        "tanh unit, dead",
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in ("a², b³, c", "two tanh units, equal", "linear 2-2-5, rank 0")
        ),
    ],
)
def test_the_error_bar_holds_the_exact_answer(name):
    p, llc = estimate(name)
    assert llc.ok and abs(llc.mean - p.exact) < 3 * llc.stderr, (p.exact, llc)


def test_a_regular_model_counts_half_its_parameters():
    x = torch.randn(300, 6, **f64)
    model = nn.Linear(6, 2, bias=False).double()
    batch = (x, model(x).detach())
    llc = learning_coefficient(model, half_square, batch, chains=8, draws=200, localization=0.0)
    assert llc.parameters == 12 and llc.rungs == (llc.nbeta,) and llc.ok
    assert abs(llc.mean - 6) < 3 * llc.stderr < 0.6
    # of a Gamma(6) energy the spread is √6; the error must be that of as many draws as were worth it
    assert llc.stderr == pytest.approx(math.sqrt(6 / llc.health.effective_of_loss), rel=0.35)


def overs(name, seeds, **options):
    p = catalogue()[name]()
    options = {"nbeta": p.nbeta, "localization": p.gamma} | options
    runs = [learning_coefficient(p.model, half_square, p.batch, seed=s, **options) for s in range(seeds)]
    return [(r.mean - p.exact) / r.stderr for r in runs]


@pytest.mark.slow
def test_errors_over_standard_errors_have_variance_one():
    """``bench/models/learning_coefficient.py errors`` has 25 targets; test_chain_health.py has series."""
    names = ("three tanh units, all dead", "linear 2-1-2-2, rank 0", "linear 2-2-2-2, rank 0")
    z = [v for name in names for v in overs(name, 8)]
    assert 0.65 < np.sqrt(np.mean(np.square(z))) < 1.4, z


def test_the_temperature_is_that_of_n_over_the_natural_logarithm():
    x = torch.randn(300, 2, **f64)
    model = nn.Linear(2, 1, bias=False).double()
    llc = learning_coefficient(model, half_square, (x, model(x).detach()), chains=1, draws=4)
    assert llc.nbeta == pytest.approx(300 / math.log(300), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(3, 3, 4, 2), (3, 2, 2, 1)])  # multiplicity 1
def test_deep_linear_networks(shape):
    *widths, rank = shape
    layers = [nn.Linear(a, b, bias=False, **f64) for a, b in itertools.pairwise(widths)]
    for layer in layers:
        with torch.no_grad():
            layer.weight.copy_(torch.eye(*layer.weight.shape) * (torch.arange(layer.in_features) < rank))
    model = nn.Sequential(*layers)
    x = torch.linalg.qr(torch.randn(widths[0], widths[0], **f64))[0] * math.sqrt(
        widths[0]
    )  # inputs enter by their covariance
    lam, m = rlct_deep_linear(widths, rank)
    llc = learning_coefficient(model, half_square, (x, model(x).detach()), draws=400, localization=0.1, nbeta=1e4)
    assert m == 1 and abs(llc.mean - lam) < 3 * llc.stderr < 0.15 * lam, llc


def test_the_refined_coefficient_of_one_layer():
    x = torch.randn(300, 5, **f64)
    model = nn.Sequential(nn.Linear(5, 4, bias=False), nn.Linear(4, 3, bias=False)).double()
    nn.init.orthogonal_(model[0].weight)
    batch = (x, model(x).detach())
    llc = learning_coefficient(model, half_square, batch, only="1.*", chains=8, draws=200, localization=0.0)
    assert llc.parameters == 12
    assert abs(llc.mean - 6) < 3 * llc.stderr < 1.0  # with the first layer fixed the second is regular


def quadratic(localization, **options):
    """Four parameters of unit curvature at nβ = 141: λ̂ = 2 (1 − s), s = γ/(nβ + γ)."""
    x = torch.linalg.qr(torch.randn(8, 4, generator=torch.Generator().manual_seed(0), **f64))[0] * math.sqrt(8)
    model = nn.Linear(4, 1, bias=False).double()
    options = {"nbeta": 141.0, "draws": 200, "rungs": 1, "chains": 8} | options
    batch = (x, model(x).detach())
    return learning_coefficient(model, half_square, batch, localization=localization, **options)


@pytest.mark.slow
@pytest.mark.parametrize(("gamma", "exact"), [(1.0, 1.986), (10.0, 1.868), (100.0, 1.170), (1000.0, 0.247)])
def test_what_the_well_holds_is_said(gamma, exact):
    llc = quadratic(gamma)
    share = gamma / (141 + gamma)
    assert exact == pytest.approx(2 * (1 - share), abs=1e-3)
    assert abs(llc.mean - exact) < 3.5 * llc.stderr, llc  # a doubled pull would give 2 (1 − 2γ/(nβ + 2γ))
    assert llc.well.share == pytest.approx(share, rel=0.15)
    assert llc.well.sensitivity == pytest.approx(-2 * share * (1 - share), abs=0.25 * 2 * share + 0.02)
    assert llc.ok is (gamma < 100), llc
    assert ("higher with half the localization" in str(llc)) is (gamma >= 10), llc
    assert ("lower localization" in str(llc)) is (gamma >= 100), llc


@pytest.mark.slow
def test_a_doubled_pull_would_be_seen():
    """At γ = nβ the exact answers for γ and 2γ are 1 and 2/3."""
    llc = quadratic(141.0, draws=400)
    assert abs(llc.mean - 1) < 3 * llc.stderr < 0.15, llc
    noisy = quadratic(141.0, draws=800, batch_size=4, step_size=0.02, thin=1)
    assert 0.45 < noisy.well.share < 0.58, noisy  # exactly 1/2 but for the step; 1/3 with twice the pull


def test_an_untrained_net_is_no_minimum():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    x = torch.randn(100, 6)
    llc = learning_coefficient(net, "ce", (x, x[:, :3].argmax(1)), chains=2, draws=40)
    assert not llc.ok and llc.minimum.gain > 1 and llc.minimum.below > 0.5 and llc.minimum.gradient > 0
    assert "not a minimum" in str(llc) and "raise localization" not in str(llc) and "train further" in str(llc)


def test_a_point_beside_the_minimum_loses_what_descent_would_gain():
    """Beside the minimum by 0.1 of unit curvature at nβ = 141: λ̂ is 141 · 0.01/2 too low, and the gain says it."""
    x = torch.linalg.qr(torch.randn(8, 4, generator=torch.Generator().manual_seed(0), **f64))[0] * math.sqrt(8)
    model = nn.Linear(4, 1, bias=False).double()
    target = model(x).detach()
    with torch.no_grad():
        model.weight[0, 0] += 0.1
    llc = learning_coefficient(model, half_square, (x, target), nbeta=141.0, draws=100, rungs=1)
    assert llc.minimum.gain == pytest.approx(0.705, rel=0.02) and not llc.ok  # the well keeps the rest


MINIBATCHES = [n for n in catalogue() if n.startswith("minibatches")]


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n.endswith(("10 parameters", "γ = 10")) else pytest.mark.slow) for n in MINIBATCHES],
)
def test_minibatches_of_64_give_the_exact_answer(name):
    p, llc = estimate(name)
    assert abs(llc.mean - p.exact) < max(4 * llc.stderr, 1e-3 * p.exact) or not llc.ok, (p.exact, llc)
    assert abs(llc.mean - p.exact) < 0.1 * p.exact or llc.stderr > 0.03 * p.exact, (p.exact, llc)
    if "regular" in name:
        assert llc.ok and abs(llc.mean - p.exact) < 0.01 * p.exact, (p.exact, llc)


def noisy(batch, noise=2.0):
    """Ten parameters at nβ = 300; the exact answer is 4.983."""
    x = torch.linalg.qr(torch.randn(512, 10, generator=torch.Generator().manual_seed(0), **f64))[0] * math.sqrt(512)
    left = noise * torch.randn(512, 1, generator=torch.Generator().manual_seed(1), **f64)
    model = nn.Linear(10, 1, bias=False).double()
    data = Data(model, half_square, x, model(x).detach() + left - x @ (x.T @ left) / 512)
    copies = Replicas(data.model, data.loss_fn)
    streams = [NoiseSource(0, c) for c in range(4)]
    return Langevin(copies, (data.x, data.y), streams=streams, nbeta=300.0, gamma=1.0, batch=batch)


def test_the_anchor_takes_the_noise_of_the_labels_out():
    """Beside w* by δ, gradients of a batch of 64 scatter by x(xᵀδ) alone and not by x · noise."""
    torch.manual_seed(0)
    chain = noisy(64)
    away = 0.01 * torch.randn_like(chain.w)
    forces = torch.stack([chain.batch()(chain.w + away)[1].mean(1) for _ in range(200)])
    exact = 300 * away + away  # x has unit covariance; the well is 1
    error = (forces.mean(0) - exact).norm() / exact.norm()
    scatter = forces.std(0).square().sum(1)
    expected = 300**2 * 11 * away.square().sum(1) / 64  # of x(xᵀδ) in ten dimensions: (D + 1)|δ|²
    assert error < 0.1 and 0.7 < float((scatter / expected).mean()) < 1.3, (error, scatter / expected)
    at_minimum, still = chain.batch()(chain.copies.start.expand_as(chain.w))
    assert float(still.abs().max()) < 1e-9 and float(at_minimum.abs().max()) < 1e-9


def test_the_noise_of_batches_is_left_out_of_the_momentum():
    """Without that, batches of four heat ten parameters by a sixth at this step; the virial sees either."""
    warm = {}
    for keeps in (True, False):
        torch.manual_seed(0)
        chain = noisy(4, noise=0.0)
        chain.scales /= math.sqrt(300.0)
        if not keeps:
            chain.gradients = lambda w, rows, own=chain.gradients: mixed(*own(w, rows))
        chain.burn(300, 0.12, False, lambda: None)
        losses, virials = chain.sample(300, 5, lambda w: torch.zeros(1, len(w), dtype=torch.float64), lambda: None)
        warm[keeps] = losses[0].mean() / 4.983 - 1
        assert virials.mean() / 10 == pytest.approx(warm[keeps], abs=0.05)
    assert abs(warm[True]) < 0.05 and warm[False] > warm[True] + 0.06, warm


@pytest.mark.parametrize("name", reader_models.NAMES)
def test_minibatches_of_any_architecture(name):
    """Beside w* by so little that the loss is its slope, ∇L(w*)ᵀδ, whatever rows a batch has."""
    model, loss_fn, batch = reader_models.make(name)
    batch = mapped(batch, lambda t: t.double() if t.is_floating_point() else t)
    data = gathered(model.double().eval(), loss_fn or "cross_entropy", batch)
    with plain_kernels():
        chain = Langevin(
            Replicas(data.model, data.loss_fn),
            (data.x, data.y),
            streams=[NoiseSource(0, c) for c in range(2)],
            nbeta=1.0,
            gamma=0.0,
            batch=4,
        )
        away = 3e-4 * torch.randn_like(chain.w)  # far enough for models that compute in single precision inside
        rise, forces = chain.batch()(chain.w + away)
    slope = chain.slope.expand_as(away)
    assert torch.allclose(rise, (away * slope).sum(1), rtol=0.05, atol=5e-6), (rise, (away * slope).sum(1))
    assert float((forces.mean(1) - slope).norm() / slope.norm()) < 0.1


def mixed(loss, gradient):
    """Both halves of a batch with the mean of their gradients, so that they show no noise."""
    return loss, gradient.view(-1, 2, gradient.shape[1]).mean(1).repeat_interleave(2, 0)


@pytest.mark.slow
def test_a_warm_start_takes_tuning_and_places_along():
    cold = quadratic(1.0)
    x = torch.linalg.qr(torch.randn(8, 4, generator=torch.Generator().manual_seed(0), **f64))[0] * math.sqrt(8)
    model = nn.Linear(4, 1, bias=False).double()
    batch = (x, model(x).detach())
    options = {"nbeta": 141.0, "draws": 200, "chains": 8, "burn_in": 0, "localization": 1.0}
    warm = learning_coefficient(model, half_square, batch, after=cold, **options)
    assert warm.step_size == cold.step_size and warm.trace[:, 0].mean() > 0.5  # not at w* any more
    assert abs(warm.mean - 1.986) < 3 * warm.stderr
    assert learning_coefficient(model, half_square, batch, **options).trace[0, 0] == 0


def test_same_seed_same_chains_and_chains_do_not_depend_on_each_other():
    x = torch.randn(200, 3, **f64)
    model = nn.Linear(3, 1).double()
    run = lambda chains, seed: (
        learning_coefficient(
            model, half_square, (x, model(x).detach()), chains=chains, draws=20, step_size=0.05, seed=seed
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


def test_chains_that_never_move_are_said():
    x = torch.randn(200, 3, **f64)
    model = nn.Linear(3, 1).double()
    llc = learning_coefficient(
        model, half_square, (x, model(x).detach()), chains=2, draws=60, step_size=10.0, batch_size=50
    )
    assert math.isnan(llc.mean) and "smaller step size" in llc.note and not llc.ok
    assert llc.summary()["lambda"] is None and llc.acceptance < 1e-6


def test_half_precision_is_promoted_with_a_note():
    model = nn.Linear(3, 1).half()
    x = torch.randn(100, 3)
    llc = learning_coefficient(model, half_square, (x, torch.zeros(100, 1)), chains=1, draws=4)
    assert "promoted" in llc.note and model.weight.dtype == torch.float16


def test_the_summary_has_the_health_of_the_chains():
    row = quadratic(100.0).summary()
    assert row["ok"] is False and "lower localization" in row["note"] and 0.9 < row["r_hat"] < 1.1
    assert row["effective_draws"] > 50 and 0.3 < row["well"] < 0.5 and row["below"] == 0 and row["worst"]


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"only": "nope*"}, "no parameter"),
        ({"chains": 0}, "at least 1"),
        ({"rungs": 0}, "rungs= .* must be at least 1"),
        ({"rungs": 3, "localization": 0.0}, "localization= must be positive"),
    ],
)
def test_wrong_input(kwargs, words):
    with pytest.raises(ValueError, match=words):
        learning_coefficient(nn.Linear(2, 1), half_square, (torch.randn(10, 2), torch.randn(10, 1)), **kwargs)


def test_nan_data_is_refused():
    with pytest.raises(ValueError, match="NaN"):
        learning_coefficient(nn.Linear(2, 1), half_square, (torch.full((10, 2), math.nan), torch.zeros(10, 1)))
