"""Danger: a run that will be lost is called in time, and one that is well is left alone."""

import math

import numpy as np
import pytest

from netvitals.forecasts.divergence import NOTICE, SPREAD, Danger


def followed(losses, rates=None, ahead=False):
    """The calls of a run; with ``ahead`` its whole schedule is known."""
    found, calls = Danger(), []
    for t, loss in enumerate(losses):
        rate = math.nan if rates is None else float(rates[t])
        later = float(rates[min(t + 20, len(rates) - 1)]) if ahead else math.nan
        if ahead and t % 25 == 0:
            found.plan(t, np.asarray(rates[t:], dtype=float))
        if found.add(t, float(loss), rate, later):
            calls.append(t)
    return found, calls


def noisy(mean, sd, seed=0):
    return mean + np.random.default_rng(seed).normal(0, sd, len(mean))


T = np.arange(400)
FALLING = 2.3 * np.exp(-T / 80) + 0.05


def test_a_loss_that_falls_is_left_alone():
    for seed in range(5):
        found, calls = followed(noisy(FALLING, 0.05, seed))
        assert not calls and found.lost is None


def test_a_converged_noisy_loss_is_left_alone():
    """The lowest of many noisy medians is too low to be compared with: means with their errors are."""
    for seed in range(5):
        _, calls = followed(noisy(np.where(T < 60, 2.3 - T * 0.02, 1.1), 0.25, seed))
        assert not calls, calls


def test_a_loss_that_climbs_back_is_called_before_it_is_lost():
    climbing = np.where(T < 200, FALLING, np.minimum(FALLING[200] * np.exp((T - 200) / 25), 2.4))
    found, calls = followed(noisy(climbing, 0.02))
    assert found.lost is not None and calls and found.lost - calls[0] >= 20, (calls, found.lost)
    assert found.lost == pytest.approx(200 + 25 * math.log(0.9 * 2.3 / FALLING[200]), abs=20)


def test_a_small_gain_that_is_given_back_is_called_too():
    """From 2.3 to 1.9 and back: never three times its lowest, and lost all the same."""
    gain = np.where(T < 150, 2.3 - 0.4 * T / 150, np.minimum(1.9 + 0.4 * (T - 150) / 150, 2.35))
    found, calls = followed(noisy(gain, 0.03))
    assert found.lost is not None and calls and found.lost - calls[0] >= 20, (calls, found.lost)


def test_where_the_schedule_lowers_the_rate_nothing_is_called():
    climbing = np.where(T < 200, FALLING, np.minimum(FALLING[200] * np.exp((T - 200) / 25), 2.4))
    rates = np.where(T < 195, 0.1, 0.1 * 0.97 ** (T - 195.0))
    _, calls = followed(climbing, rates)
    assert not [c for c in calls if c < 260]


def test_a_loss_that_is_not_finite_is_lost():
    found, _ = followed([1.0] * 30 + [math.nan] * 10)
    assert found.lost is not None and found.lost <= 33


def test_the_date_is_that_of_the_climb_and_its_reason_is_told():
    climbing = np.where(T < 200, FALLING, np.minimum(FALLING[200] * np.exp((T - 200) / 25), 2.4))
    found = Danger()
    for t, loss in enumerate(climbing):
        if found.add(t, float(loss)):
            said = found.forecast(t, {"update ratio": "0.04"})
            break
    truth = 200 + 25 * math.log(2.3 / FALLING[200])
    assert said.interval80[0] <= truth <= said.interval80[1], (said.value, truth)
    assert said.quantity == "loss/lost" and said.conditions["update ratio"] == "0.04"
    assert "times its lowest" in said.conditions["loss"]


def test_a_long_run_is_followed_to_its_end():
    """What is kept of the losses is thinned, what is known of them is not."""
    t = np.arange(1500)
    loss = np.where(t < 1300, 2.3 * np.exp(-t / 150) + 0.05, 0.05 * np.exp((t - 1300) / 20))
    found, calls = followed(noisy(np.minimum(loss, 5.0), 0.005))
    assert calls and 1300 < calls[0] < 1345, calls
    assert found.lost is not None and found.lost - calls[0] >= 20


def test_a_rate_that_was_lowered_long_ago_is_no_excuse():
    climbing = np.where(T < 200, FALLING, np.minimum(FALLING[200] * np.exp((T - 200) / 25), 2.4))
    rates = np.where(T < 150, 0.1, 0.01)
    _, calls = followed(climbing, rates)
    assert calls and calls[0] < 250
    falling = np.where(T < 215, 0.1, 0.01)  # just now
    _, later = followed(climbing, falling)
    assert not [c for c in later if 215 <= c < 230]


def test_the_interval_of_the_date_is_lognormal():
    climbing = np.where(T < 200, FALLING, np.minimum(FALLING[200] * np.exp((T - 200) / 25), 2.4))
    found = Danger()
    for t, loss in enumerate(climbing):
        if found.add(t, float(loss)):
            break
    said = found.forecast(t, {})
    left = said.value - t
    for (low, high), z in ((said.interval80, 1.282),):
        assert math.log((high - t) / left) == pytest.approx(SPREAD * z) == pytest.approx(-math.log((low - t) / left))


def test_a_gain_within_the_noise_is_not_lost():
    """Random labels at first: nothing was gained, so that nothing can be given back."""
    for seed in range(4):
        found, _ = followed(noisy(np.full(400, 2.3), 0.6, seed))
        assert found.lost is None


def test_one_spike_of_the_loss_is_not_lost():
    losses = noisy(FALLING, 0.02)
    losses[250:252] = 50.0
    found, calls = followed(losses)
    assert found.lost is None and not calls


def test_a_rate_that_has_risen_makes_a_climb_dangerous_that_a_steady_one_does_not():
    """A quarter of the gain given back, by many standard errors."""
    back = noisy(2 + np.where(T < 200, FALLING, FALLING[200] + np.minimum((T - 200) / 100, 1) * 0.25 * 2.1), 0.02)
    rising = 0.01 * 1.01**T
    assert followed(back, rising)[1] and not followed(back, np.full(400, 0.01))[1]
    assert not followed(noisy(FALLING, 0.02), rising)[1]


def test_a_climb_within_the_noise_is_not_called_whatever_the_rate():
    for seed in range(4):
        loss = noisy(np.where(T < 60, 2.3 - T * 0.02, 1.1), 0.3, seed)
        assert not followed(np.maximum(loss, 0.01), 0.01 * 1.01**T)[1]


def test_where_the_schedule_will_lower_the_rate_nothing_is_called():
    climbing = np.where(T < 200, FALLING, np.minimum(FALLING[200] * np.exp((T - 200) / 25), 2.4))
    rates = np.where(T < 240, 0.1, 0.01)  # twenty steps before it falls nobody calls any more
    assert [c for c in followed(climbing, rates)[1] if c < 240]
    assert not [c for c in followed(climbing, rates, ahead=True)[1] if 220 <= c < 240]


def test_a_leap_of_the_rate_that_lasts_is_called_before_it_comes():
    leap, pulse = np.where(T < 250, 0.1, 1.0), np.where((T < 250) | (T > 270), 0.1, 1.0)
    small, ramp = np.where(T < 250, 0.1, 0.7), 0.001 * 200 ** (T / 400)
    (call, *_) = followed(noisy(FALLING, 0.02), leap, ahead=True)[1]
    assert 250 - NOTICE <= call <= 250 - NOTICE + 10
    for rates in (pulse, small, ramp, np.minimum(0.1, (T + 1) * 0.001)):  # the last one: a warm-up
        assert not followed(noisy(FALLING, 0.02), rates, ahead=True)[1]


def test_a_leap_is_told_with_its_date_and_taken_back_where_nothing_came_of_it():
    rates = np.where(T < 250, 0.1, 1.0)
    found = Danger()
    found.plan(0, rates)
    for t in range(300):
        if found.add(t, float(FALLING[t]), float(rates[t]), float(rates[t + 20])):
            said = found.forecast(t, {})
    assert said.method == "schedule" and "step 250" in said.conditions["learning rate"]
    assert 250 < said.value < 260
    assert found.called is None and len(found.withdrawn) == 1 and found.withdrawn[0] >= 269
