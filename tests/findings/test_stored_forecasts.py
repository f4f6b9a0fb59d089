"""Findings of what is to come: stored forecasts while their day is ahead, and the law of shrinking variance."""

import numpy as np
import pytest

from netvitals.capture import ArrayMeasurement, Measurement
from netvitals.findings import diagnose
from netvitals.findings.drift import _outlook
from netvitals.findings.forecasts import push_sign
from netvitals.findings.series import Series, table_of
from netvitals.findings.sparsity import costly_level
from netvitals.forecasts import Forecast
from netvitals.gates import predict

STEPS = np.arange(0, 101, 10)


def site(sigma, mean, f="relu", density=None):
    """One site whose σ and mean take these courses; the arrays are those of the last step."""
    measurements = [
        Measurement(int(t), "preactivations", "act", metric, float(v))
        for metric, values in (("sigma", sigma), ("mean", mean))
        for t, v in zip(STEPS, values)
    ]
    now = float(predict(mean[-1], sigma[-1], f)) if density is None else density
    measurements += [Measurement(int(t), "gates", "act", "density@0.01", now) for t in STEPS]
    arrays = [
        ArrayMeasurement(100, "preactivations", "act", "mu", np.array([mean[-1]] * 4)),
        ArrayMeasurement(100, "preactivations", "act", "sigma", np.array([sigma[-1]] * 4)),
    ]
    meta = {"sites": [{"name": "act", "kind": "activation", "op": f}]}
    return table_of(measurements, arrays, meta)


def told(table):
    return [f for f in diagnose(table) if f.rule == "gate forecast"]


HALVED = 0.5 * 2.0 ** (1 - STEPS / 100)  # 1 → 0.5 in a hundred steps: another halving takes as long
STILL = np.full(len(STEPS), -0.2)


def test_sigma_is_halved_at_the_pace_it_has():
    start, end = np.median(HALVED[:1]), np.median(HALVED[-1:])
    (found,) = told(site(HALVED, STILL))
    steps = int(found.evidence[0].metric.rsplit("about ", 1)[1].split(" ")[0])
    assert steps == pytest.approx(100 * np.log(2) / np.log(start / end), abs=1)
    assert "Fewer units will be active" in found.what


def test_the_means_own_movement_must_not_turn_the_outcome_round():
    """The mean rises by 0.6 while σ halves: at that pace the gates open, and nothing is said."""
    assert told(site(HALVED, STILL))
    assert not told(site(HALVED, np.linspace(-0.8, -0.2, len(STEPS))))
    assert told(site(HALVED, np.linspace(0.4, -0.2, len(STEPS))))  # it falls: the outcome is the same


def test_a_law_that_does_not_explain_the_present_is_silent():
    assert not told(site(HALVED, STILL, density=0.9))


# ---------------------------------------------------------------- stored forecasts


def with_forecasts(*made, steps=60):
    measurements = [Measurement(t, "loss", "model", "loss", 1.0 + 0.001 * t) for t in range(steps)]
    measurements += [Measurement(t, "gates", "act", "density@0.01", 0.5 - 0.002 * t) for t in range(0, steps, 5)]
    return table_of(measurements, (), {"forecasts": [f.to_dict() for f in made]})


def event(quantity, value, made_at=50, **more):
    given = {"site": "model", "interval80": (value - 10, value + 10)}
    return Forecast(quantity=quantity, made_at=made_at, for_step=int(value + 10), value=value, **{**given, **more})


def rules(table):
    return {f.rule: f for f in diagnose(table)}


def test_danger_is_critical_and_says_the_step_the_interval_and_the_reason():
    found = rules(
        with_forecasts(event("loss/lost", 90.0, made_at=55, conditions={"update ratio": "0.05"}, method="climb"))
    )
    told = found["divergence forecast"]
    assert told.severity == "critical" and "near step 90" in told.what and "step 80 to step 100" in told.what
    assert "update ratio: 0.05" in told.why and "Divide the learning rate by 3" in told.advice


def test_a_plateaus_end_is_told_until_its_day():
    ahead = rules(with_forecasts(event("plateau/drop@0.5", 80.0, method="saddle")))
    assert "have fallen by half near step 80" in ahead["plateau forecast"].what
    leaves = rules(with_forecasts(event("plateau/leaves", 80.0, method="saddle")))
    assert "leave its plateau" in leaves["plateau forecast"].what
    assert "At step 50 the loss was falling faster and faster" in leaves["plateau forecast"].why
    copied = rules(with_forecasts(event("plateau/leaves", 80.0, method="saddle", conditions={"law": "look-ahead"})))
    assert "trained ahead from step 50, left the plateau" in copied["plateau forecast"].why
    assert "plateau forecast" not in rules(with_forecasts(event("plateau/drop@0.5", 30.0, made_at=10)))


def test_a_later_refusal_takes_a_forecast_back():
    silent = Forecast(quantity="plateau/drop@0.5", site="model", made_at=55, for_step=55, refused="it recedes")
    assert "plateau forecast" not in rules(with_forecasts(event("plateau/drop@0.5", 80.0), silent))


# ---------------------------------------------------------------- forces with errors


def push(*last):
    values = np.array([1.0] * 6 + list(last))
    return Series("drift", "output", "euler", np.arange(len(values)), values)


def test_a_push_smaller_than_its_error_has_no_sign():
    assert push_sign(push(0.000991, -0.004, 0.006)) == 0  # +0.000991 ± more than that
    assert push_sign(push(0.5, 0.52, 0.48)) == 1 and push_sign(push(-0.5, -0.52, -0.48)) == -1


def test_drift_does_not_claim_to_persist_on_a_push_that_is_none():
    sink = np.linspace(0.0, -0.5, 12)
    noise = np.array([0.5] * 8 + [0.004, -0.003, 0.005, -0.004])
    measurements = [
        Measurement(10 * t, "preactivations", "a.act", "preact_drift", float(v)) for t, v in enumerate(sink)
    ]
    measurements += [Measurement(10 * t, "drift", "output", "euler", float(v)) for t, v in enumerate(noise)]
    (found,) = [f for f in diagnose(measurements) if f.rule == "negative drift"]
    assert "not clearly different from zero" in found.why and "will persist" not in found.why


def test_a_push_is_told_with_its_error_and_judged_by_its_mean():
    assert "+0.5 ± 0.02. A positive product" in _outlook(push(0.5, 0.54, 0.46))
    assert "-0.5 ± 0.02. A negative product" in _outlook(push(-0.5, -0.54, -0.46))
    assert "A positive product" in _outlook(push(1.0, 1.0, 0.9, 1.1, 1.0, -0.01))  # one measurement turns nothing round


# ---------------------------------------------------------------- what sparsity cost this very run


def sparse_run():
    """Sparsity rose from 40 to 70 % between steps 100 and 200, and with it the loss; then both came back."""
    t = np.arange(400)
    zeros = np.interp(t, [0, 100, 200, 300, 399], [0.4, 0.5, 0.7, 0.45, 0.45])
    loss = np.interp(t, [0, 100, 200, 300, 399], [2.0, 1.0, 1.6, 0.9, 0.8])
    measurements = [Measurement(int(i), "loss", "model", "loss", float(v)) for i, v in zip(t, loss)]
    measurements += [Measurement(int(i), "sparsity", "act", "hard", float(zeros[i])) for i in t[::10]]
    return table_of(measurements, ())


def test_the_level_at_which_this_run_lost_is_found():
    table = sparse_run()
    loss, zeros = table.loss, table.get("sparsity", "act", "hard")
    assert costly_level(loss, zeros) == pytest.approx(0.5, abs=0.03)


def test_a_run_that_never_lost_has_no_such_level():
    t = np.arange(300)
    loss = Series("loss", "model", "loss", t, 2.0 - 0.005 * t)
    assert np.isnan(costly_level(loss, Series("sparsity", "act", "hard", t, 0.3 + 0.001 * t)))
