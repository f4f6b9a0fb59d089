"""One forecast object for all rooms: it is stored as it was made, and its score is what came."""

import math

import numpy as np
import pytest

from netvitals.forecasts import Forecast, by_method, score
from netvitals.forecasts.blend import FITTED, BlendedForecast, climb_of, half_widths, own_width
from netvitals.forecasts.series_history import SeriesHistory, effective, line


def made(value=1.0, **more):
    given = {"quantity": "gates/density@0.01", "site": "a", "made_at": 10, "for_step": 20, "method": "relaxation"}
    return Forecast(**{**given, "value": value, "interval50": (0.9, 1.1), "interval80": (0.8, 1.2), **more})


def test_a_forecast_comes_back_as_it_was_stored():
    one = made(horizon="25 %", conditions={"turning point": "near step 15"}, naive={"unchanged": 0.5})
    assert Forecast.from_dict(one.to_dict()) == one
    refused = Forecast(
        quantity="plateau/drop@0.5", site="model", made_at=3, for_step=3, refused="the slope does not grow"
    )
    back = Forecast.from_dict(refused.to_dict())
    assert back.refused == refused.refused and not back.known and math.isnan(back.value)
    assert "no forecast at step 3: the slope does not grow" in str(back)


def test_an_event_is_told_by_its_step():
    one = made(value=340.0, quantity="plateau/drop@0.5", interval80=(300, 400), horizon="event")
    assert "near step 340 (80 % interval 300 to 400" in str(one) and one.is_event


@pytest.mark.parametrize(
    ("truth", "inside50", "inside80"), [(1.05, True, True), (1.15, False, True), (1.3, False, False)]
)
def test_scores_say_how_far_off_and_whether_inside(truth, inside50, inside80):
    found = score(made(naive={"unchanged": 0.0, "per step": 2.0}), truth)
    assert found.error == pytest.approx(abs(truth - 1)) and (found.covered50, found.covered80) == (inside50, inside80)
    assert found.naive == {"unchanged": truth, "per step": pytest.approx(2 - truth)}


def test_a_refused_forecast_has_no_score():
    with pytest.raises(ValueError, match="has no score"):
        score(made(refused="silent"), 1.0)


def test_an_event_that_never_came_is_outside():
    found = score(made(horizon="event", value=100.0, interval50=(90, 110), interval80=(80, 120)), math.inf)
    assert not found.covered80 and found.error == math.inf


def test_skill_is_against_the_best_forecast_without_a_law_after_the_fact():
    scores = [score(made(naive={"unchanged": 0.0, "per step": 1.5}), 1.1) for _ in range(10)]
    (found,) = by_method(scores)
    assert found.best_naive == "per step" and found.skill == pytest.approx(1 - 0.1 / 0.4)
    assert not found.demoted and found.coverage80 == 1.0
    (worse,) = by_method([score(made(naive={"unchanged": 1.1, "per step": 3.0}), 1.1) for _ in range(10)])
    assert worse.demoted and "demoted: 'unchanged' was no worse" in str(worse)
    (few,) = by_method([score(made(naive={"unchanged": 1.1}), 1.1) for _ in range(3)])
    assert not few.demoted  # three days are no judgement


# ---------------------------------------------------------------- tracks


def followed(f, looks=40, every=10, rate=0.1, **options):
    tracks = SeriesHistory(["a"], **options)
    for t in range(looks):
        tracks.add(every * t, rate * every * t, [f(every * t)])
    return tracks


def test_naive_forecasts_are_exact_on_what_they_take_for_granted():
    line = followed(lambda t: 1 + 0.01 * t)
    found = line.naive(500, 50.0)
    truth = 1 + 0.01 * 500
    assert found["unchanged"][0] == pytest.approx(1 + 0.01 * 390)
    for name in ("goes on", "per step", "per learning rate"):
        assert found[name][0] == pytest.approx(truth), name


def test_naive_forecasts_in_learning_rate_time_stop_where_the_rate_does():
    line = followed(lambda t: 1 + 0.01 * t)
    assert line.naive(500, line.taus[-1])["per learning rate"][0] == pytest.approx(line.last[0])


def test_bounds_are_kept():
    steep = followed(lambda t: 0.5 + 0.002 * t, looks=24, low=0.0, high=0.98)
    assert steep.naive(5000, 500.0)["per step"][0] == 0.98
    value, _ = BlendedForecast("preactivations", steep).at("10 %", 5000, 500.0)
    assert value[0] == 0.98


def test_what_goes_on_is_the_change_over_as_many_steps_back():
    curve = followed(lambda t: (t / 100) ** 2, looks=41)
    assert curve.naive(500, 50.0)["goes on"][0] == pytest.approx(16 + (16 - 9))
    assert curve.naive(800, 80.0)["goes on"][0] == pytest.approx(16 + 16)


def test_a_line_is_that_of_least_squares():
    x, y = np.arange(15.0, 20), np.array([15.0 + 1, 16 - 1, 17 + 1, 18 - 1, 19 + 1])
    slope, spread, end = (float(v[0]) for v in line(x, y[:, None]))
    fitted = np.polyfit(x, y, 1)
    rest = y - np.polyval(fitted, x)
    assert slope == pytest.approx(fitted[0]) and end == pytest.approx(np.polyval(fitted, 19) - y[-1])
    assert spread == pytest.approx(math.sqrt((rest**2).sum() / 3))
    assert [float(v[0]) for v in line(np.ones(4), y[:4, None])] == [0.0, 0.0, y[:4].mean() - y[3]]


def test_the_lever_of_a_relaxing_slope():
    assert effective(3.0, 0.0) == 3.0 and effective(1e9, 2.0) == pytest.approx(0.5)


# ---------------------------------------------------------------- the blend


def parts_of(tracks, day, rest, law=None, climb=(0.0, 0.0), vital="gates"):
    """The changes that a blend is made of, one by one, by weights that are 1 in one place."""
    out = []
    for i in range(9):
        blend = BlendedForecast(vital, tracks)
        blend.rows = {"end": (tuple(float(i == k) for k in range(9)), (1.0, 1.0))}
        value, unit = blend.at("end", day, rest, law, climb)
        out.append(float(value[0] - tracks.last[0]))
    return out, float(unit[0])


def test_the_parts_of_a_blend_are_what_they_are_called():
    """A parabola, 41 looks ten steps apart at the rate 0.1: every part by hand, in float64."""
    curve = followed(lambda t: (t / 400) ** 2 / 2, looks=41)
    t, y = np.arange(0.0, 401, 10), (np.arange(0.0, 401, 10) / 400) ** 2 / 2
    quarter = np.polyfit(t[-11:], y[-11:], 1)
    lever = (1 - math.exp(-2 / 400 * 100)) * 400 / 2
    (three, end, slope, before, mean, left, law, climb, again), unit = parts_of(
        curve, 500, 20.0, np.array([0.07]), (0.5, 4.0)
    )
    assert three == pytest.approx(y[-3:].mean() - y[-1])
    assert end == pytest.approx(np.polyval(quarter, 400) - y[-1])
    assert slope == pytest.approx(quarter[0] * lever)
    assert before == pytest.approx(y[-1] - y[-11])
    assert mean == pytest.approx(y.mean() - y[-1])
    assert left == pytest.approx(quarter[0] * lever * 20 / 60)
    assert law == pytest.approx(0.07)
    assert climb == pytest.approx(0.5 * 0.5 * 0.5) and again == pytest.approx(3 * climb)
    rest = y[-11:] - np.polyval(quarter, t[-11:])
    moves = np.abs(np.diff(y[-21:])).mean()
    parts = ((rest**2).sum() / 9, (1 + 4 * 100 / 400) * moves**2, (0.5 * slope) ** 2, (0.3 * climb) ** 2)
    assert unit == pytest.approx(math.sqrt(sum(parts)))


def test_what_happened_before_is_carried_on_to_one_and_a_half_times_the_age():
    line_ = followed(lambda t: t / 1000, looks=41)
    assert parts_of(line_, 800, 0.0)[0][3] == pytest.approx(0.4)
    assert parts_of(line_, 4000, 0.0)[0][3] == pytest.approx(0.6)
    assert parts_of(line_, 435, 0.0)[0][3] == pytest.approx(0.035)  # between two looks


def test_units_close_when_the_rate_climbs_beyond_what_the_network_has_known():
    still = followed(lambda t: 0.4, low=0.0, high=1.0)
    for vital, way in (("gates", -1), ("sparsity", 1)):
        calm, _ = BlendedForecast(vital, still).at("end", 800, 1.0)
        steep, unit = BlendedForecast(vital, still).at("end", 800, 1.0, None, (2.0, 1.0))
        assert calm[0] == pytest.approx(0.4) and way * (steep[0] - 0.4) > 0.05 and unit[0] > 0.1
    assert BlendedForecast("preactivations", still).at("end", 800, 1.0, None, (2.0, 1.0))[0][0] == pytest.approx(0.4)
    assert BlendedForecast("attention", followed(lambda t: 0.01 * t)).at("end", 800, 1.0)[0][0] == pytest.approx(3.9)


def test_a_law_that_is_silent_at_a_site_adds_nothing_there():
    still = followed(lambda t: 0.4)
    assert BlendedForecast("gates", still).at("10 %", 430, 1.0, np.array([math.nan]))[0][0] == pytest.approx(0.4)


def test_a_climb_is_measured_against_the_highest_rate_so_far():
    rates = np.array([1.0, 2.0, 8.0])
    assert climb_of(rates, 1, 0.5, 4.0) == (0.0, 0.0)
    assert climb_of(rates, 2, 0.5, 4.0) == pytest.approx((math.log(2), 0.0))
    assert climb_of(rates, 2, 0.5, 1.0) == pytest.approx((math.log(8), math.log(2)))
    assert climb_of(None, 2, 0.5, 1.0) == (0.0, 0.0)


# ---------------------------------------------------------------- intervals


def test_intervals_are_those_of_the_corpus_moved_by_what_came_true():
    narrow, wide = FITTED["gates"]["50 %"][1]
    assert own_width([], 0) == 1 and half_widths("50 %", "gates") == (narrow, wide)
    assert half_widths("50 %", "gates", 1.5) == pytest.approx((1.5 * narrow, 1.5 * wide))
    assert [own_width([ratio] * 50, 12) for ratio in (0.5, 3.0)] == pytest.approx([0.75, 2.0])
    assert own_width([100.0] * 50, 10**6) == pytest.approx(4.0, rel=1e-3)
    assert own_width([0.5] * 70 + [2.0] * 30, 12) == pytest.approx(1.5)  # the 80 % quantile counts
