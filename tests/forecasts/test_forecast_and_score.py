"""One forecast object for all rooms: it is stored as it was made, and its score is what came."""

import math

import numpy as np
import pytest

from netvitals.forecasts import Forecast, by_method, score
from netvitals.forecasts.calibration import half_widths, past_errors
from netvitals.forecasts.tracks import Tracks, effective


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
    tracks = Tracks(["a"], **options)
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


def test_a_slope_relaxes_with_decay_and_with_age():
    line = followed(lambda t: 1 + 0.01 * t)
    young, _ = line.relaxed(len(line) - 1, 10.0, 0.0)
    forgetful, _ = line.relaxed(len(line) - 1, 10.0, 0.5)
    whole, _ = line.relaxed(len(line) - 1, 10.0, 0.0, slowing=0.0)
    assert line.last[0] < forgetful[0] < young[0] < whole[0] == pytest.approx(line.last[0] + 1.0)
    k = 4.0 / 39.0
    assert young[0] == pytest.approx(line.last[0] + 0.1 * (1 - math.exp(-k * 10)) / k)


def test_bounds_are_kept():
    line = followed(lambda t: 0.5 + 0.002 * t, looks=24, low=0.0, high=1.0)
    assert line.relaxed(len(line) - 1, 1000.0, 0.0, slowing=0.0)[0][0] == 1.0
    assert line.naive(5000, 500.0)["per step"][0] == 1.0


def test_a_noisy_quantity_goes_part_of_the_way_to_its_line():
    noisy = followed(lambda t: 1.0 + (0.5 if t == 390 else 0.0), slope=0.0, level=1.0)
    value, _ = noisy.relaxed(len(noisy) - 1, 1.0, 0.0)
    assert value[0] < 1.3 < noisy.last[0]


def test_the_slope_is_that_of_the_last_quarter_and_the_naive_ones_of_the_last_third():
    """Flat until the 30th of 41 looks, then a line: the last ten looks are the line alone."""
    bent = followed(lambda t: 0.02 * max(0, t - 300), looks=41)
    assert bent.slopes[-1][0] == pytest.approx(0.2) and bent.noises[-1][0] == pytest.approx(0.0, abs=1e-9)
    assert bent.naive(500, 50.0)["per step"][0] < 2.0 + 0.02 * 100  # thirteen looks see the bend
    assert bent.offsets[-1][0] == pytest.approx(0.0, abs=1e-9)


def test_what_goes_on_is_the_change_over_as_many_steps_back():
    curve = followed(lambda t: (t / 100) ** 2, looks=41)
    assert curve.naive(500, 50.0)["goes on"][0] == pytest.approx(16 + (16 - 9))
    assert curve.naive(800, 80.0)["goes on"][0] == pytest.approx(16 + 16)


def test_noise_is_the_spread_around_the_line():
    tracks = Tracks(["a"])
    for t in range(20):
        tracks.add(t, float(t), [t + (1.0 if t % 2 else -1.0)])
    x, y = np.arange(15.0, 20), np.array([15.0 + 1, 16 - 1, 17 + 1, 18 - 1, 19 + 1])
    rest = y - np.polyval(np.polyfit(x, y, 1), x)
    assert tracks.noises[-1][0] == pytest.approx(math.sqrt((rest**2).sum() / 3))


def test_the_lever_of_a_relaxing_slope():
    assert effective(3.0, 0.0) == 3.0 and effective(1e9, 2.0) == pytest.approx(0.5)


# ---------------------------------------------------------------- intervals


def test_intervals_cover_what_they_say_on_a_random_walk():
    """Conformal: the quantiles of past errors in units, whatever the unit is."""
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(60):
        walk = np.cumsum(rng.normal(0, 1, 90))
        tracks = Tracks(["a"])
        for t in range(60):
            tracks.add(10 * t, float(t), [walk[t]])
        value, unit = tracks.relaxed(59, 14.75, 0.0)
        wide = half_widths(past_errors(tracks, 0.25, 0.0), "25 %")[1]
        inside.append(abs(value[0] - walk[74]) <= wide * unit[0])
    assert 0.65 <= np.mean(inside) <= 0.97, np.mean(inside)


def test_a_run_that_is_always_wrong_by_much_gets_wide_intervals():
    calm, wild = half_widths(np.full(500, 0.1), "50 %"), half_widths(np.full(500, 9.0), "50 %")
    assert calm[1] < 0.5 and wild[1] > 8.0 and wild[0] < wild[1]
