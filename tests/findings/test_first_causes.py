"""The cause stands first: orders that were once wrong, each from the measurements that showed it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import netvitals as nv
from netvitals.capture import ArrayMeasurement, Measurement
from netvitals.findings import diagnose
from netvitals.findings.causes import diagnosed
from netvitals.forecasts.forecast import Forecast
from netvitals.runs import Finding

STEPS = range(0, 160, 2)


def act(name, op="ReLU"):
    return {"name": name, "kind": "activation", "op": op, "module": name, "role": "hidden activation"}


class Source:
    """Measurements in memory; a value is a number or a function of the step."""

    def __init__(self, *ops, **meta):
        first = {"name": "in", "kind": "linear", "op": "Linear", "module": "in", "follows": "input"}
        self.acts = [f"{i}.act" for i in range(len(ops))]
        self.measurements, self.arrays = [], []
        self.meta = {"sites": [first, *(act(n, op) for n, op in zip(self.acts, ops))], **meta}

    def add(self, vital, site, metric, value, steps=STEPS):
        self.measurements += [
            Measurement(t, vital, site, metric, float(value(t) if callable(value) else value)) for t in steps
        ]
        return self

    def first(self):
        found = diagnose(self)
        assert not [c.trouble for c in found.checked if c.trouble]
        return next(iter(found.alarming), None)


def finding(rule, severity="warning", since=0):
    return Finding(severity, "", f"{rule}.", rule=rule, since=since)


# ---------------------------------------------------------------- what was forecast


def losing(loss, made_at=60, **more):
    called = Forecast(
        quantity="loss/lost", site="model", made_at=made_at, for_step=400, value=200.0,
        interval80=(100.0, 400.0),
    )  # fmt: skip
    return Source("ReLU", forecasts=[called.to_dict()], **more).add("loss", "model", "loss", loss, range(160))


def test_a_forecast_has_the_date_of_its_call_and_stands_below_what_brought_it_about():
    source = losing(lambda t: 1.0 if t < 50 else 1.8)
    (told,) = [f for f in diagnose(source).all if f.rule == "divergence forecast"]
    assert told.since == 60
    source.add("sparsity", "0.act", "dead_units", lambda t: 0.0 if t < 54 else 0.9)
    assert source.first().rule == "dead units"
    assert "divergence forecast" in [f.rule for f in source.first().below()]


@pytest.mark.parametrize(("end", "speaks"), [(1.2, False), (1.8, True), (math.nan, False)])
def test_danger_is_not_told_of_a_run_that_came_back_or_is_lost_already(end, speaks):
    rules = [f.rule for f in diagnose(losing(lambda t: 1.0 if t < 50 else 4.0 if t < 70 else end)).all]
    assert ("divergence forecast" in rules) is speaks


@pytest.mark.parametrize(("guessing", "speaks"), [(2.3, False), (0.05, True)])
def test_the_loss_of_a_converged_run_may_move_by_factors(guessing, speaks):
    source = losing(lambda t: 0.01 if t < 50 else 0.04).add("outputs", "output", "chance", guessing)
    assert ("divergence forecast" in [f.rule for f in diagnose(source).all]) is speaks


# ---------------------------------------------------------------- what came in with the data


def until(last, value):
    return lambda t: value if t <= last else math.nan


def broken(weights=60, updates=40, batch=None):
    """A loss and a first layer that break at step 60; weights and updates that were last seen finite at these steps."""
    source = Source("ReLU").add("loss", "model", "loss", until(59, 1.0), range(160))
    source.add("preactivations", "0.act", "mean", until(59, 0.1))
    source.add("gradients", "model", "weight_norm", until(weights, 9.0), range(0, 160, 4))
    source.add("gradients", "model", "update_norm", until(updates, 0.1), range(3, 160, 4))
    seen = {} if batch is None else {60: batch}
    source.add("inputs", "in", "mean", 0.0, range(4, 160, 8))
    return source.add("inputs", "in", "max_abs", lambda t: seen.get(t, 2.0), sorted({*range(0, 60, 8), *seen}))


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ({}, True),  # the weights were finite on that step
        ({"weights": 56, "updates": 59}, True),  # the update before it was
        ({"weights": 56, "updates": 55}, False),  # nobody knows what broke first
        ({"batch": 2.0}, False),  # the batch was measured, and was finite
        ({"weights": 56, "batch": math.inf}, True),  # the batch was measured, and was not
    ],
)
def test_a_batch_that_nobody_looked_at_is_known_by_the_layer_it_broke(given, cause):
    told = broken(**given).first()
    assert told.rule == ("input not finite" if cause else "loss not finite")
    if cause:
        assert told.since == 60 and told.site == "in" and told.remedy.kind == "drop_not_finite"
        assert [f.rule for f in told.below()] == ["loss not finite"]


def test_a_loss_that_broke_before_the_first_layer_did_is_not_laid_to_the_data():
    source = broken()
    source.measurements = [
        Measurement(r.step, r.vital, r.site, r.metric, math.nan) if (r.vital, r.step) == ("loss", 59) else r
        for r in source.measurements
    ]
    assert source.first().rule == "loss not finite"


def test_a_batch_that_was_odd_explains_only_what_came_after_it():
    after = diagnosed([finding("learning rate too high", "critical", 93), finding("odd batches", since=20)], 160)
    assert [(f.rule, [c.rule for c in f.consequences]) for f in after] == [("odd batches", ["learning rate too high"])]
    before = diagnosed([finding("learning rate too high", "critical", 12), finding("odd batches", since=20)], 160)
    assert [f.rule for f in before] == ["learning rate too high", "odd batches"]


def test_what_began_long_before_stands_before_what_would_otherwise_be_its_cause():
    late = diagnosed([finding("gate density falls", since=76), finding("plateau")], 160)
    assert [f.rule for f in late] == ["plateau", "gate density falls"]
    grave = diagnosed([finding("gate density falls", "critical", since=76), finding("plateau")], 160)
    assert [f.rule for f in grave] == ["gate density falls", "plateau"]


# ---------------------------------------------------------------- precision


def test_a_gradient_that_is_not_finite_is_not_counted_as_zero():
    net = nn.Linear(8, 4)
    opt = torch.optim.SGD(net.parameters(), lr=0.0)
    with nv.watch(net, opt, every=1, vitals=["training"]) as seen:
        for factor in (1.0, 1.0, math.nan):  # it looks at the first and the third
            opt.zero_grad()
            (net(torch.randn(16, 8)).square().mean() * factor).backward()
            opt.step()
            seen.step(1.0)
    shares = [r.value for r in seen.measurements if r.metric == "zero_share"]
    assert len(shares) == 2 and max(shares) == 0.0


def overflowing(before):
    source = Source("ReLU").add("loss", "model", "loss", lambda t: 2.0 if t <= 20 else math.nan, range(160))
    return source.add("gradients", "model", "grad_norm", lambda t: before(t) if t < 20 else math.inf)


def test_gradients_that_ran_away_before_they_overflowed_do_not_blame_the_precision():
    usual, growing = overflowing(lambda t: 1.0), overflowing(lambda t: 10.0 ** max(0, t - 8))
    assert usual.first().rule == "gradient overflow"
    assert "gradient overflow" not in [f.rule for f in diagnose(growing).all]


# ---------------------------------------------------------------- units and depth


def shut(op):
    source = Source(op, op).add("loss", "model", "loss", lambda t: 2.3 - 0.01 * t, range(160))
    for name in source.acts:
        source.add("gates", name, "density@0.01", 0.1)
        shares = np.concatenate([np.zeros(90), np.ones(10)]).astype(np.float32)
        source.arrays.append(ArrayMeasurement(158, "gates", name, "density@0.01", shares))
    return [f.rule for f in diagnose(source).all]


def test_units_that_leak_are_not_dead():
    """A leaky ReLU has a slope on either side: what is shut for every row still learns."""
    assert "dead units" in shut("ReLU") and "dead units" in shut("GELU")
    assert "dead units" not in shut("LeakyReLU")


def faded(sigmas, dead):
    source = Source(*["ReLU"] * len(sigmas)).add("loss", "model", "loss", 2.3, range(160))
    for name, sigma, share in zip(source.acts, sigmas, dead):
        source.add("preactivations", name, "sigma", sigma)
        source.add("sparsity", name, "dead_units", share)
    return source


def test_a_signal_that_one_dead_layer_cuts_off_does_not_vanish_with_depth():
    cut = faded((0.5, 0.2, 0.1, 1e-9), (0.1, 0.2, 1.0, 0.5)).first()
    assert cut.rule == "dead units"
    thin = faded((0.5, 1e-3, 2e-6, 4e-9), (0.5, 0.5, 0.6, 0.5)).first()
    assert thin.rule == "vanishing signal"
    thin_and_dead = faded((0.5, 1e-3, 2e-6, 4e-9), (0.5, 0.5, 1.0, 0.5)).first()
    assert thin_and_dead.rule == "vanishing signal"  # it had faded before it came to the dead layer


def test_units_that_died_are_counted_among_those_that_lived():
    """Of a layer that begins with 40 % dead units, 56 % are dead: that is a quarter of the others."""
    grave = lambda begin, end: faded((1.0,), (lambda t: begin if t < 80 else end,)).first()
    assert grave(0.4, 0.56).rule == "dead units" and grave(0.0, 0.31).rule == "dead units"
    assert grave(0.4, 0.54) is None and grave(0.1, 0.3) is None


def test_a_layer_that_never_varied_did_not_collapse():
    """The inputs of a layer above a dead one are a constant from the start, up to its last digits."""
    cut = faded((0.5, lambda t: 7e-9 - 1e-11 * t), (1.0, 0.5)).first()
    assert cut.rule == "dead units" and "variance collapse" not in [f.rule for f in cut.below()]
    fell = faded((0.5, lambda t: 7e-4 if t < 80 else 7e-9), (0.0, 0.0)).first()
    assert fell.rule == "variance collapse"


# ---------------------------------------------------------------- loops and labels


def learning(right, classes=10.0, cost=2.23):
    source = Source("ReLU").add("loss", "model", "loss", lambda t: 2.25 - 0.01 * math.sin(t), range(160))
    source.add("gradients", "w", "update_ratio", 0.01).add("gradients", "w", "grad_rms", 1.0)
    given = {"chance": cost, "misfit": 0.0, "rows": 400.0, "classes": classes, "accuracy": right}
    for metric, value in given.items():
        source.add("outputs", "output", metric, value)
    return [f.rule for f in diagnose(source).all]


def test_who_is_right_more_often_than_any_guess_has_learned_something():
    """Labels of entropy 2.23 in ten classes: no guess is right more often than 23 % of the time."""
    assert "at chance" in learning(0.12) and "at chance" in learning(0.25)
    assert "at chance" not in learning(0.52)
    assert "at chance" in learning(0.52, classes=60.0)  # one of sixty labels may be as common as that


def fed(std=1.0, mean=0.0, varying=0.8):
    source = Source("ReLU").add("loss", "model", "loss", lambda t: 2.0 - 0.01 * t, range(160))
    for metric, value in (("std", std), ("mean", mean), ("varying", varying)):
        source.add("inputs", "in", metric, value)
    return {f.rule: f for f in diagnose(source).all}


def test_what_the_first_layer_is_given_is_judged_by_its_scale_its_offset_and_its_spread():
    assert not fed() and not fed(std=7.9)
    assert "unnormalised input" in fed(std=8.1) and "unnormalised input" in fed(mean=-8.1)
    assert "constant input" in fed(varying=0.019) and "constant input" not in fed(varying=0.021)
    assert "constant input" not in fed(varying=lambda t: 0.0 if t < 100 else 0.5)  # not on most measurements


def test_single_batches_that_are_far_larger_than_the_others_are_dated():
    odd = fed(std=lambda t: 5.1 if t in (40, 80, 120) else 1.0)["odd batches"]
    assert (odd.since, odd.until) == (40, 120) and "3 batches" in odd.what and "5 times the median" in odd.what
    assert "odd batches" not in fed(std=lambda t: 4.9 if t in (40, 80) else 1.0)
    assert "odd batches" not in fed(std=lambda t: 6.0 if t > 100 else 1.0)  # a change that stays


def test_no_finding_says_infinity_or_a_negative_multiple():
    from netvitals.capture import Measurement

    steps = range(0, 200, 10)
    grads = [0.0 if s == 0 else 1e-3 * 1.5**i for i, s in enumerate(steps)]
    losses = [0.3, -0.1, -0.2, *(1.0 + i for i in range(37))]
    said = [
        *(Measurement(s, "gradients", "model", "grad_norm", g) for s, g in zip(steps, grads)),
        *(Measurement(s, "gradients", "fc.weight", "grad_norm", g) for s, g in zip(steps, grads)),
        *(Measurement(s, "gradients", "fc.weight", "update_ratio", 0.2) for s in steps),
        *(Measurement(i * 5, "loss", "model", "loss", v) for i, v in enumerate(losses)),
    ]
    words = " ".join(f.what for f in diagnose(said).all)
    assert (
        "grew from" in words
        and "from 0 " not in words
        and "inf" not in words
        and "−" not in words
        and "-0" not in words
    )
