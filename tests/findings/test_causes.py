"""A diagnosis is a tree: causes first, what follows below them, all of it dated."""

from __future__ import annotations

import numpy as np
import pytest

from netvitals.findings import REMEDIES, RULES, Finding, Remedy
from netvitals.findings.causes import EXACT, ORDER, diagnosed
from netvitals.findings.explanation import explain
from netvitals.findings.statistics import last_stretch, line, noise, smoothed


def finding(rule, severity="warning", since=0):
    return Finding(severity, "", f"{rule}.", rule=rule, since=since)


def test_what_a_rate_brings_about_stands_below_it():
    found = diagnosed(
        [finding("dead units", since=30), finding("learning rate too high", since=3), finding("loss rises")], 100
    )
    assert [f.rule for f in found] == ["learning rate too high"]
    assert [f.rule for f in found[0].below()] == ["dead units", "loss rises"]
    assert "→ dead units." in str(found[0])


def test_what_began_long_before_a_cause_is_not_its_consequence():
    found = diagnosed([finding("dead units", since=0), finding("learning rate too high", since=80)], 100)
    assert len(found) == 2


def test_a_cause_is_as_grave_as_the_gravest_thing_that_follows():
    (found,) = diagnosed([finding("gradients carried over"), finding("loss not finite", "critical")], 10)
    assert found.severity == "critical"


def test_what_the_data_are_follows_from_nothing():
    """Two softmaxes in a row do not make pixels run from 0 to 255."""
    found = diagnosed(
        [finding("double softmax", "critical"), finding("unnormalised input"), finding("dead units")], 100
    )
    assert [(f.rule, [c.rule for c in f.consequences]) for f in found] == [
        ("double softmax", ["dead units"]),
        ("unnormalised input", []),
    ]


def test_things_to_watch_cause_nothing():
    found = diagnosed([finding("learning rate too high", "note"), finding("loss rises")], 10)
    assert len(found) == 2


def test_that_nothing_is_learned_explains_units_that_die_unless_all_are_dead():
    (found,) = diagnosed([finding("at chance"), finding("dead units")], 10)
    assert found.rule == "at chance"
    (found,) = diagnosed([finding("at chance"), finding("dead units", "critical")], 10)
    assert found.rule == "dead units"


def test_every_rule_that_can_alarm_has_a_place_a_null_a_threshold_and_what_would_refute_it():
    placed = {name for group in ORDER for name in group} | set(EXACT)
    own = {r.name for r in RULES if r.null}
    assert own <= placed, own - placed
    for rule in RULES:
        if rule.null and rule.name not in EXACT:
            assert rule.threshold and rule.source and rule.refuted_by, rule.name
            text = explain(rule.name)
            assert rule.null in text and rule.threshold in text


def test_a_finding_goes_to_plain_values_and_back_with_its_tree():
    below = finding("loss rises", since=9)
    cause = Finding(
        "warning",
        "a",
        "A.",
        rule="x",
        since=3,
        until=9,
        remedy=Remedy("rate", 0.1, ("a",)),
        consequences=(below,),
    )
    assert Finding.from_dict(cause.to_dict()) == cause
    assert "(steps 3 to 9)" in str(cause)


def test_every_remedy_that_findings_name_can_be_done():
    from netvitals_lab.clinic import TREATMENTS

    assert set(TREATMENTS) == set(REMEDIES)


def test_the_slope_of_noise_is_not_sure_and_that_of_a_trend_is():
    rng = np.random.default_rng(1)
    ts = [abs(line(np.arange(40), rng.normal(size=40)).t) for _ in range(200)]
    assert np.mean(np.array(ts) > 3) < 0.03
    assert line(np.arange(40), 0.1 * np.arange(40) + rng.normal(size=40)).t > 5


def test_stretches_noise_and_smoothing():
    assert last_stretch(np.arange(5), np.zeros(5, bool)) is None
    assert last_stretch(np.arange(5) * 10, np.array([0, 1, 1, 0, 0], bool)).since == 10
    assert noise(np.random.default_rng(0).normal(size=4000)) == pytest.approx(1.0, abs=0.06)
    assert smoothed(np.r_[np.zeros(20), 9.0, np.zeros(20)]).max() == 0.0


def test_a_forecast_of_danger_follows_from_what_was_found():
    found = diagnosed([finding("divergence forecast", "critical", since=40), finding("weights shrink", since=16)], 100)
    assert [(f.rule, [c.rule for c in f.consequences]) for f in found] == [("weights shrink", ["divergence forecast"])]
    (alone,) = diagnosed([finding("divergence forecast", "critical", since=40)], 100)
    assert alone.rule == "divergence forecast"
