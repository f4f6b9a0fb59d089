"""Effective draws, R̂ and the standard error on series whose answers are known."""

import math

import numpy as np
import pytest

from netvitals.singular.sampling.chains import effective_draws, examine, r_hat, ranked, split_r_hat, standard_error
from netvitals.singular.sampling.ladder import exchanges, first, respaced, top
from netvitals.singular.sampling.langevin import cooled
from netvitals.singular.sampling.minimum import judged
from netvitals.singular.sampling.observables import well


def autoregressive(rho, chains, draws, seed=0):
    rng = np.random.default_rng(seed)
    x = np.zeros((chains, draws))
    x[:, 0] = rng.normal(size=chains)
    for i in range(1, draws):
        x[:, i] = rho * x[:, i - 1] + np.sqrt(1 - rho**2) * rng.normal(size=chains)
    return x


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, -0.5])
def test_effective_draws_of_an_autoregressive_series(rho):
    x = autoregressive(rho, 4, 10_000)
    assert effective_draws(x) == pytest.approx(40_000 * (1 - rho) / (1 + rho), rel=0.15)


def test_the_standard_error_is_that_of_the_mean_over_repetitions():
    means, errors = [], []
    for seed in range(200):
        x = autoregressive(0.8, 4, 400, seed)
        means.append(x.mean())
        errors.append(standard_error(x, np.zeros((0, 0, 0))))
    # sd of the mean of 1600 draws worth a ninth each: 0.075
    assert np.std(means) == pytest.approx(0.075, rel=0.12)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(0.075, rel=0.15)
    assert np.mean(np.abs(means) < 3 * np.array(errors)) > 0.98


@pytest.mark.parametrize("rho", [0.0, 0.8, 0.95])
@pytest.mark.parametrize("power", [1, 2])
def test_errors_over_standard_errors_have_variance_one(rho, power):
    z = []
    for seed in range(250):
        x = autoregressive(rho, 4, 200, seed)
        z.append(((x**power).mean() - (power == 2)) / standard_error(x**power, x[None]))
    # 250 of them leave 0.045; squares are skewed, and 800 draws of ρ = 0.95 are worth 20
    assert np.sqrt(np.mean(np.square(z))) == pytest.approx(1.0, abs=0.12 if rho < 0.9 else 0.2)


def test_the_standard_error_has_the_spread_between_chains():
    x = np.random.default_rng(0).normal(size=(4, 500)) + np.array([[0.0], [0.0], [1.0], [1.0]])
    assert standard_error(x, np.zeros((0, 0, 0))) >= 0.8 * x.mean(1).std(ddof=1) / 2 > 0.2
    assert standard_error(x[:1], np.zeros((0, 0, 0))) > 0  # one chain has two halves: they are too few


def test_a_slow_observable_that_the_loss_follows_widens_its_error():
    slow, fast = autoregressive(0.98, 4, 1000), autoregressive(0.0, 4, 1000, 1)
    loss = 0.3 * slow + fast
    alone, beside = standard_error(loss, np.zeros((0, 0, 0))), standard_error(loss, slow[None])
    assert beside > 1.2 * alone or alone > 0.05
    assert standard_error(fast, slow[None]) == pytest.approx(standard_error(fast, np.zeros((0, 0, 0))), rel=0.2)


def test_r_hat_sees_chains_that_differ_in_place_or_in_spread():
    rng = np.random.default_rng(1)
    same = rng.normal(size=(4, 500))
    assert r_hat(same) < 1.02
    assert r_hat(same + np.array([[0.0], [0.0], [0.0], [3.0]])) > 1.3
    spread = same * np.array([[1.0], [1.0], [1.0], [8.0]])
    assert split_r_hat(ranked(spread)) < 1.05 < 1.1 < r_hat(spread)  # only the folded ranks see it
    assert r_hat(np.cumsum(same, 1)) > 1.1  # a drift shows between the halves


def test_heavy_tails_do_not_hide_a_chain_that_stands_elsewhere():
    x = np.random.default_rng(0).standard_cauchy(size=(4, 400))
    x[3] += 8
    assert r_hat(x) > 1.2 > split_r_hat(x)


def test_health_is_that_of_the_worst_observable():
    rng = np.random.default_rng(0)
    loss, distance = rng.normal(size=(4, 400)), rng.normal(size=(4, 400)) + np.array([[0], [0], [0], [2.0]])
    health, good = examine({"loss": loss, "distance": distance}, limit=100.0)
    assert health.worst == "distance" and not health.ok and health.r_hat > 1.2 and health.effective_draws < 50
    assert health.effective_of_loss > 1000 and good.all() and "do not agree" in str(health)
    assert examine({"loss": loss}, limit=100.0)[0].ok


def test_diverged_chains_are_counted_never_averaged():
    trace = np.random.default_rng(0).normal(1.0, 0.1, (4, 100))
    trace[2, 50:] = np.inf
    health, good = examine({"loss": trace}, limit=1e6)
    assert health.diverged == (2,) and good.tolist() == [True, True, False, True]
    assert "left out" in str(health) and not health.ok


def test_few_draws_are_not_believed():
    health, _ = examine({"loss": np.random.default_rng(0).normal(size=(2, 10))}, limit=100.0)
    assert not health.ok and "more draws" in str(health)


def test_exchanges_keep_the_joint_law_of_two_rungs():
    """Two replicas with energies Gamma(λ)/b on each rung: after exchanges the means are λ/b still."""
    rng = np.random.default_rng(0)
    rungs, lam = np.array([10.0, 2.0]), 1.5
    losses = rng.gamma(lam, size=(2, 200_000)) / rungs[:, None]
    places, lower, chance = exchanges(rungs, losses, False, rng.uniform(size=losses.shape))
    after = np.take_along_axis(losses, places, 0)
    assert lower.tolist() == [0] and 0.05 < chance[0] < 0.6
    assert after.mean(1) == pytest.approx(lam / rungs, rel=0.02)
    assert (places[0] != 0).mean() == pytest.approx(chance[0], abs=0.01)


def test_a_ladder_has_its_ends_and_equal_refusals():
    rungs = first(1e4, 1.0, parameters=4)
    assert rungs[0] == 1e4 and rungs[-1] == pytest.approx(1.0) and (np.diff(rungs) < 0).all()
    refused = np.linspace(0.1, 0.9, len(rungs) - 1)
    new = respaced(rungs, refused)
    assert new[0] == pytest.approx(1e4) and new[-1] == pytest.approx(1.0) and (np.diff(new) < 0).all()
    assert np.log(new[0] / new[1]) > np.log(new[-2] / new[-1])  # denser where it was refused
    assert first(10.0, 10.0, parameters=4).tolist() == [10.0] and top(5.0, np.zeros(3)) == 5.0


def test_the_virial_takes_the_heat_of_a_quadratic_loss_away():
    """At temperature T energies are T times as large; λ̂ = D/2 whatever T, and the share is 1 − 1/T of what was seen."""
    rng = np.random.default_rng(0)
    for hot in (1.0, 1.05, 1.2):
        squares = hot * rng.normal(size=(4, 2000, 20)) ** 2
        mean, error, heat = cooled(squares.sum(2) / 2, squares.sum(2) - 20, np.zeros((0, 0, 0)))
        assert mean == pytest.approx(10.0, abs=1e-9) and heat == pytest.approx(hot - 1, abs=0.02), (hot, mean, heat)
        assert error < 0.5 and (hot == 1.0 or error > (hot - 1) ** 2), (hot, error)


def test_heat_that_the_virial_cannot_take_away_is_in_the_error():
    rng = np.random.default_rng(0)
    virial = rng.normal(size=(4, 1000))
    loss = 2 + 0.5 * virial + rng.normal(size=(4, 1000))  # a fifth of its variance is the virial's
    none = np.zeros((0, 0, 0))
    cold, error, _ = cooled(loss, virial - virial.mean(), none)
    hot, wider, heat = cooled(loss + 0.4, virial + 0.8, none)
    assert cold == pytest.approx(loss.mean()) and hot == pytest.approx(loss.mean() + 0.4)
    assert wider > 0.3 > 5 * error and heat == pytest.approx(0.4 / hot, rel=0.15)


def test_the_well_of_a_quadratic_loss():
    """With s = γ/(h + γ) in each of D directions: share s, sensitivity −D s (1 − s)/2."""
    rng = np.random.default_rng(0)
    h, gamma, dimensions = 3.0, 1.0, 5
    w = rng.normal(size=(dimensions, 4, 50_000)) / math.sqrt(h + gamma)
    found = well((h / 2 * w**2).sum(0), (w**2).sum(0), gamma, dimensions)
    assert found.share == pytest.approx(0.25, rel=0.02) and found.ok
    assert found.sensitivity == pytest.approx(-5 * 0.25 * 0.75 / 2, rel=0.03)
    assert found.relative == pytest.approx(0.25, rel=0.05)


@pytest.mark.parametrize(
    ("gain", "shift", "ok"), [(0.0, 0.0, True), (0.5, 0.0, False), (0.0, -1.0, False), (0.05, 0.0, True)]
)
def test_a_minimum_is_judged_by_descent_and_by_draws_below(gain, shift, ok):
    draws = np.random.default_rng(0).gamma(2.0, size=(4, 500)) + shift
    found = judged(gain, 0.1, draws, 0.05, noisy=False)
    assert found.ok is ok and (found.below > 0.02) is (shift < 0)
    assert math.isnan(judged(gain, 0.1, draws, 0.05, noisy=True).below)
