"""Values that a finding advises to set follow from what was measured, just beyond each threshold and far beyond it."""

import re

import numpy as np
import pytest

from netvitals.capture import Measurement
from netvitals.findings import diagnose

STEPS = range(0, 400, 4)


class Run:
    """Measurements of one weight matrix and the loss; a value is a number or a function of progress from 0 to 1."""

    def __init__(self, **optimizer):
        self.measurements, self.arrays = [], []
        self.meta = {"optimizer": [{"name": "SGD", "lr": 0.1, **optimizer}], "shapes": {"w.weight": [8, 8]}}

    def add(self, vital, metric, value, site="w.weight"):
        self.measurements += [
            Measurement(t, vital, site, metric, float(value(i / (len(STEPS) - 1)) if callable(value) else value))
            for i, t in enumerate(STEPS)
        ]
        return self

    def loss(self, value):
        return self.add("loss", "loss", value, "model")

    def of(self, rule):
        result = diagnose(self)
        assert not [c.trouble for c in result.checked if c.trouble]
        return next((f for f in result.all if f.rule == rule), None)


def value(text, name):
    """What a sentence says to set ``name`` to, and what it says it is now."""
    found = re.search(rf"Set {name}=(\S+) \(now (\S+?)\)", text)
    assert found, text
    return float(found[1]), float(found[2])


def first_update(ratio):
    return Run().add("gradients", "update_ratio", lambda t: ratio if t == 0 else 1e-3).of("learning rate too high")


def test_an_early_update_below_the_threshold_is_no_finding():
    assert first_update(0.199) is None


@pytest.mark.parametrize("ratio", [0.201, 0.7, 2.1, 14.0, 400.0])
def test_the_advised_rate_brings_the_first_update_into_the_healthy_range(ratio):
    found = first_update(ratio)
    new, now = value(found.advice, "lr")
    assert now == 0.1
    assert 0.005 <= ratio * new / now <= 0.17  # one digit may round up by a seventh
    assert found.remedy.amount == pytest.approx(new / now, rel=0.35)


@pytest.mark.parametrize("ratio", [1.1e-7, 1e-6, 4e-5])
def test_the_advised_rate_brings_short_updates_to_about_a_thousandth(ratio):
    run = Run(name="Adam", lr=1e-6).add("gradients", "update_ratio", ratio).loss(lambda t: 2.3 + 1e-3 * np.sin(99 * t))
    new, now = value(run.of("learning rate too low").advice, "lr")
    assert now == 1e-6 and 1e-3 <= ratio * new / now <= 2e-2


def test_updates_that_add_up_to_a_fifth_of_the_weights_are_no_finding():
    loss = lambda t: 2.3 + 1e-3 * np.sin(99 * t)
    low, enough = (Run(name="Adam").add("gradients", "update_ratio", r / 396).loss(loss) for r in (0.19, 0.21))
    assert low.of("learning rate too low") is not None and enough.of("learning rate too low") is None


@pytest.mark.parametrize(("name", "lr", "limit"), [("SGD", 0.1, 0.05), ("AdamW", 1e-3, 5.0)])
def test_a_decay_that_is_too_strong_is_lowered_for_sgd_and_for_adamw(name, lr, limit):
    below, above = (
        Run(name=name, lr=lr, weight_decay=limit * f).add("gradients", "weight_norm", 1.0).of("weights shrink")
        for f in (0.98, 1.02)
    )
    assert below is None
    new, now = value(above.advice, "weight_decay")
    assert new < now == pytest.approx(1.02 * limit) and lr * new == pytest.approx(1e-4, rel=0.5)
    assert above.remedy.amount * now == pytest.approx(new, rel=0.5)


@pytest.mark.parametrize("left", [0.57, 0.2, 0.01])
@pytest.mark.parametrize(("name", "decay"), [("SGD", 0.005), ("AdamW", 0.5)])
def test_the_advised_decay_leaves_the_weights_their_size(left, name, decay):
    run = Run(name=name, lr=1e-3, weight_decay=decay).add("gradients", "weight_norm", lambda t: left**t)
    new, now = value(run.of("weights shrink").advice, "weight_decay")
    assert new < now == decay
    assert (left ** (new / now)) > 0.9  # after as many steps


def test_weights_that_keep_most_of_their_norm_are_no_finding():
    run = Run(weight_decay=0.005, lr=1e-3).add("gradients", "weight_norm", lambda t: 0.65**t)
    assert run.of("weights shrink") is None


@pytest.mark.parametrize("ratio", [0.101, 0.5, 30.0])
def test_the_advised_rate_shortens_late_updates_to_a_hundredth(ratio):
    found = Run().add("gradients", "update_ratio", lambda t: 0.01 if t < 0.5 else ratio).of("update ratio")
    new, now = value(found.advice, "lr")
    assert 0.004 <= ratio * new / now <= 0.016
    quiet = Run().add("gradients", "update_ratio", lambda t: 0.01 if t < 0.5 else 0.099).of("update ratio")
    assert quiet is None


@pytest.mark.parametrize("sharpness", [1.01, 2.0, 12.0])
def test_the_advised_rate_is_below_the_edge_of_stability(sharpness):
    run = Run().loss(lambda t: 2.0 - t).add("curvature", "sharpness_edge", sharpness, "model")
    new, now = value(run.of("edge of stability").advice, "lr")
    assert sharpness * new / now < 1
    calm = Run().loss(lambda t: 2.0 - t).add("curvature", "sharpness_edge", 0.99, "model")
    assert calm.of("edge of stability") is None


@pytest.mark.parametrize(("grown", "speaks"), [(99.0, False), (102.0, True), (1e6, True)])
def test_the_advised_clip_is_three_times_the_first_gradient_norm(grown, speaks):
    course = lambda t: 0.2 if t < 0.4 else 0.2 * grown
    run = Run().add("gradients", "grad_norm", course, "model").add("gradients", "grad_norm", course)
    found = run.loss(1.0).of("exploding gradients")
    assert ("Gradients explode" in (found.what if found else "")) is speaks
    if speaks:
        assert "clip_grad_norm_(model.parameters(), 0.6)" in found.advice and found.remedy.amount == pytest.approx(0.6)


def test_without_a_known_rate_the_factor_is_named():
    run = Run().add("gradients", "update_ratio", lambda t: 2.0 if t == 0 else 1e-3)
    run.meta["optimizer"] = []
    assert "Divide the learning rate by" in run.of("learning rate too high").advice
