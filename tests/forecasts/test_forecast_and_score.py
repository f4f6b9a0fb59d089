"""Forecasts are stored as they were made; their score is what came; the log says whether they were worth anything."""

import math

import numpy as np
import pytest

from netvitals.capture import StepColumns
from netvitals.forecasts import Forecast, Forecaster, by_method, log_of, score, skill
from netvitals.optim.schedules import RatePlan

SKILLED = "squared error, mlp"


@pytest.fixture(autouse=True)
def known_skills(monkeypatch):
    monkeypatch.setattr(skill, "skills", lambda: {"losses": {SKILLED: {"skill": 0.5}}})


def made(value=100.0, **more):
    given = {"quantity": "plateau/drop@0.5", "made_at": 50, "for_step": 120, "method": "saddle"}
    return Forecast(**{**given, "value": value, "interval80": (80, 120), **more})


def test_a_forecast_comes_back_as_it_was_stored():
    one = made(conditions={"below": "0.5"}, naive={"as long again": 100.0})
    assert Forecast.from_dict(one.to_dict()) == one
    back = Forecast.from_dict(made(math.nan, refused="the slope does not grow").to_dict())
    assert back.refused == "the slope does not grow" and not back.known and math.isnan(back.value)
    assert "no forecast at step 50: the slope does not grow" in str(back)


@pytest.mark.parametrize(("truth", "inside"), [(105, True), (120, True), (130, False)])
def test_scores_say_how_far_off_and_whether_inside(truth, inside):
    found = score(made(naive={"as long again": 60.0}), truth)
    assert found.error == truth - 100 and found.covered80 is inside
    assert found.naive == {"as long again": truth - 60}


def test_a_refused_forecast_has_no_score():
    with pytest.raises(ValueError, match="has no score"):
        score(made(refused="silent"), 1.0)


def test_an_event_that_never_came_is_outside():
    found = score(made(), math.inf)
    assert not found.covered80 and found.error == math.inf and "it did not come" in str(found)


def test_skill_is_against_the_best_baseline_after_the_fact():
    (found,) = by_method([score(made(naive={"a": 60.0, "b": 150.0}), t) for t in (110.0, 110.0, 112.0)])
    assert found.best_naive == "b" and found.skill == pytest.approx(1 - 10 / 40) and found.coverage80 == 1.0
    assert "skill +0.75 against 'b', 80 % intervals held 100%" in str(found)
    exact = [
        score(made(naive={"b": 110.0}), 110.0),
        score(made(110.0, naive={"b": 110.0}), 110.0),
    ]
    assert [m.skill for e in exact for m in by_method([e])] == [-math.inf, 0.0]
    (never,) = by_method([score(made(naive={"a": 60.0}), math.inf)])
    assert math.isnan(never.skill) and "most did not come true" in str(never)


# ---------------------------------------------------------------- was it worth anything?

FALLS = [1 / (1 + t / 20) for t in range(100)]
RUNS_AWAY = [*np.geomspace(2.0, 0.1, 60), *np.geomspace(0.1, 20.0, 40)]


def a_log(losses, *forecasts, plateau=None):
    t = np.arange(len(losses))
    series = {("loss", "model", "loss"): (t, np.array(losses))}
    if plateau is not None:
        series["plateau", "model", "loss"] = (np.arange(len(plateau)), np.array(plateau))
    return log_of(forecasts, series)


def call(at):
    return made(
        at + 20, quantity="loss/lost", method="climb", made_at=at, for_step=at + 30, interval80=(at + 10, at + 30)
    )


def test_the_log_says_first_whether_the_calls_of_divergence_were_worth_anything():
    diverged = a_log(RUNS_AWAY).diverged_at
    assert 60 < diverged < 100
    first = lambda book: str(book).splitlines()[0]
    assert first(a_log(RUNS_AWAY, call(62))).startswith("Divergence: worth it. It was called at step 62")
    assert first(a_log(RUNS_AWAY)).startswith("Divergence: worth nothing. The run diverged at step")
    assert "worth nothing" in first(a_log(RUNS_AWAY, call(99)))  # too late
    assert "worth less than nothing" in first(a_log(FALLS, call(40)))  # a false alarm
    assert "not known yet" in first(a_log(FALLS, call(80)))
    assert "nothing was called" in first(a_log(FALLS))


@pytest.mark.parametrize(("value", "word"), [(30.0, "worth it. 1 of 1 intervals"), (70.0, "worth nothing. 0 of 1")])
def test_the_log_says_whether_the_forecasts_of_plateaus_were_worth_anything(value, word):
    curve = [1.0 - 0.5 * t / 31 for t in range(90)]  # at step 31 the loss has halved
    f = made(
        value, made_at=10, for_step=int(value + 5), interval80=(value - 5, value + 5), conditions={"below": "0.5"},
        naive={"as long again": 20.0},
    )  # fmt: skip
    assert f"Plateaus: {word}" in a_log(FALLS, f, plateau=curve).worth


# ---------------------------------------------------------------- the forecaster


def look(step, values):
    layout = tuple((vital, (site,), (metric,)) for vital, site, metric in values)
    return StepColumns(step, layout, np.array([float(v) for v in values.values()]))


def test_divergence_is_called_from_the_losses_on_a_kind_of_run_where_that_has_skill():
    losses = [*np.geomspace(2.3, 0.1, 100), *np.geomspace(0.1, 2.3, 100)]
    for kind, speaks in ((SKILLED, True), ("cross-entropy, quantum", False)):
        found = Forecaster()
        found.kind = kind
        told = [f for i, v in enumerate(losses) for f in found.losses([i], [v])]
        assert len(told) == 1 and told[0].quantity == "loss/lost" and 100 < told[0].made_at < 160
        assert told[0].known is speaks
    assert "no method beats the baseline for this kind of run (cross-entropy, quantum)" in str(told[0])


def test_a_schedule_that_leaps_is_told_before():
    rates = np.where(np.arange(800) < 600, 0.1, 2.0)[:, None]
    plan = lambda step: RatePlan(step=step, lr=rates[step:], gain=(1.0,), decay=(0.0,), end=800)
    found, told = Forecaster(plan), []
    found.kind = SKILLED
    for i in range(80):
        found.observe(look(10 * i, {("gradients", "model", "update_ratio"): 0.25}))
        told += found.losses(range(10 * i, 10 * i + 10), [math.exp(-0.01 * t) for t in range(10 * i, 10 * i + 10)])
    assert [f.method for f in told] == ["schedule"] and 570 <= told[0].made_at < 600
    assert told[0].conditions["update ratio"] == "0.25"


def test_what_a_forecaster_remembers_does_not_grow_with_the_run():
    found = Forecaster()
    for t in range(3000):
        found.observe(look(t, {("plateau", "model", "loss"): 1.0}))
    assert len(found.plateaus._steps) == len(found.plateaus._losses) <= 512
    assert found.plateaus._steps[0] == 0 and found.plateaus._steps[-100:] == list(range(2900, 3000))
