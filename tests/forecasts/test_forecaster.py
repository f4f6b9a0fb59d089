"""The forecaster, fed with looks: relaxation, demotion, conditions, and days that come."""

import math

import numpy as np
import pytest

from netvitals.capture import StepColumns
from netvitals.forecasts import Forecaster
from netvitals.optim.schedules import RatePlan


def look(step, values):
    layout = tuple((vital, (site,), (metric,)) for vital, site, metric in values)
    return StepColumns(step, layout, np.array([float(v) for v in values.values()]))


def fed(course, looks=80, every=10, plan_of=lambda step: None, more=lambda step: {}):
    found = Forecaster(dict, plan_of)
    for i in range(looks):
        step = every * i
        values = {("sparsity", "act", "hard"): course(step), **more(step)}
        found.observe(look(step, values))
    return found


def test_a_line_is_carried_on_and_scored_when_its_day_comes():
    found = fed(lambda t: 0.2 + 0.0005 * t)
    days = {s.forecast.horizon for s in found.scores}
    assert days == {"10 %", "25 %", "50 %", "100 %"}
    near = [s for s in found.scores if s.forecast.horizon == "10 %"]
    assert all(s.truth == pytest.approx(0.2 + 0.0005 * s.forecast.for_step, abs=1e-9) for s in near)
    assert all(s.forecast.interval80[0] <= s.forecast.value <= s.forecast.interval80[1] for s in found.scores)


def test_a_method_that_does_not_beat_the_naive_ones_on_this_run_is_demoted_and_says_so():
    """On a straight line the slope per step is exact, and a slope that relaxes is not."""
    found = fed(lambda t: 0.2 + 0.0003 * t, looks=150)
    late = [f for f in found.made if f.made_at > 900 and f.horizon == "10 %"]
    assert late and all("which is told instead" in f.conditions["demoted"] for f in late)
    for f in late:
        assert f.value == pytest.approx(0.2 + 0.0003 * f.for_step, abs=1e-6)
    assert not any("demoted" in f.conditions for f in found.made if f.made_at < 150)


def test_noise_around_a_level_is_forecast_as_that_level():
    g = np.random.default_rng(0)
    found = fed(lambda t: 0.5 + g.normal(0, 0.01))
    errors = [s.error for s in found.scores if s.forecast.horizon == "25 %"]
    assert np.mean(errors) < 0.03
    assert 0.6 <= np.mean([s.covered80 for s in found.scores]) <= 1.0


def test_the_end_is_forecast_where_the_length_of_training_is_known_and_the_schedule_counts():
    """The rate falls to nothing at half: what moves with the rate stops there."""
    rates = np.where(np.arange(800) < 400, 0.1, 0.0)[:, None]
    plan = lambda step: RatePlan(step=step, lr=rates[step:], gain=(1.0,), decay=(0.0,), end=800)
    course = lambda t: 0.2 + 0.0005 * min(t, 400)
    found = fed(course, plan_of=plan)
    ends = [f for f in found.made if f.horizon == "end" and 200 < f.made_at < 400]
    assert ends and all(f.for_step >= 780 for f in ends)
    assert max(abs(f.value - 0.4) for f in ends) < 0.08
    assert max(abs(f.naive["per step"] - 0.4) for f in ends) > 0.1


def test_a_force_is_told_with_its_error():
    noisy = np.random.default_rng(1)
    for force, word in ((lambda: 0.5 + noisy.normal(0, 0.05), "down"), (lambda: noisy.normal(0, 0.5), "not surely")):
        found = fed(
            lambda t: 0.3,
            more=lambda t, force=force: {
                ("preactivations", "act", "preact_drift"): -0.001 * t + 0.01 * math.sin(t),
                ("drift", "act", "g_all"): force(),
            },
        )
        told = [f.conditions["force"] for f in found.made if f.quantity == "preactivations/preact_drift"]
        assert word in told[-1] and "±" in told[-1]


def test_a_constant_has_no_forecast_and_values_that_are_no_numbers_none_either():
    assert not fed(lambda t: 0.0).made
    assert not fed(lambda t: math.nan).made


def test_danger_is_called_from_the_losses():
    found = Forecaster()
    losses = [*np.geomspace(2.3, 0.1, 100), *np.geomspace(0.1, 2.3, 100)]
    told = [f for i, v in enumerate(losses) for f in found.losses([i], [v])]
    assert len(told) == 1 and told[0].quantity == "loss/lost" and 100 < told[0].made_at < 160


def test_a_schedule_that_leaps_is_told_before():
    rates = np.where(np.arange(800) < 600, 0.1, 2.0)[:, None]
    plan = lambda step: RatePlan(step=step, lr=rates[step:], gain=(1.0,), decay=(0.0,), end=800)
    found, told = Forecaster(dict, plan), []
    for i in range(80):
        found.observe(look(10 * i, {("sparsity", "act", "hard"): 0.3}))
        told += found.losses(range(10 * i, 10 * i + 10), [math.exp(-0.01 * t) for t in range(10 * i, 10 * i + 10)])
    assert [f.method for f in told] == ["schedule"] and 570 <= told[0].made_at < 600


def test_a_stream_goes_on_between_its_two_lines():
    """The rate falls to a tenth at half: per step it goes on, per learning rate it slows down."""
    rates = np.where(np.arange(800) < 400, 0.1, 0.01)[:, None]
    plan = lambda step: RatePlan(step=step, lr=rates[step:], gain=(1.0,), decay=(0.0,), end=800)
    found = fed(lambda t: 0.3, plan_of=plan, more=lambda t: {("stream", "block", "rms"): 1 + 0.01 * t})
    ends = [f for f in found.made if f.quantity == "stream/rms" and f.horizon == "end" and 150 < f.made_at < 350]
    assert ends and "demoted" not in ends[0].conditions
    assert ends[0].value == pytest.approx(0.5 * (ends[0].naive["per step"] + ends[0].naive["per learning rate"]))


def test_intervals_widen_on_a_run_whose_forecasts_are_further_off_than_the_corpus():
    """Still for half of the run, then jumps from look to look: what came true widens what is said."""
    g = np.random.default_rng(0)
    jumps = {10 * i: 0.5 + (0.2 if g.random() < 0.5 else -0.2) * (i > 60) for i in range(200)}
    found = fed(lambda t: jumps[t] + 0.001 * math.sin(t), looks=200)
    late = [s for s in found.scores if s.forecast.made_at > 1200]
    assert late and np.mean([s.covered80 for s in late]) > 0.5


@pytest.mark.parametrize(("top", "silent"), [(0.015, False), (0.08, True)])
def test_nothing_is_said_of_open_shares_for_rates_that_the_run_has_never_known(top, silent):
    """A rate that will climb eightfold: the days after it are refused with the reason; half as much again is told."""
    rates = np.array([[0.01 if t < 500 else top] for t in range(801)])
    plan = lambda step: RatePlan(step=step, lr=rates[step:], gain=(1.0,), decay=(0.0,), end=800)
    found = fed(lambda t: 0.5 + 0.0002 * t, looks=40, plan_of=plan)
    ends = [f for f in found.made if f.quantity == "sparsity/hard" and f.horizon == "end"]
    near = [f for f in found.made if f.quantity == "sparsity/hard" and f.for_step < 500]
    assert ends and near and all(f.known for f in near)
    assert all((not f.known) == silent for f in ends if f.made_at < 450)
    if silent:
        assert "climbs to 8 times the highest that this run has known" in str(ends[0])
