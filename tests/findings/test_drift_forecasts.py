"""Which way drift and sparsity move: told where the trend is sure, without a date."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import linregress

import netvitals as nv
from netvitals.capture import Measurement
from netvitals.findings import Series, diagnose
from netvitals.findings.trends import trend, turned
from netvitals_lab import data, models

STEPS = np.arange(0, 300, 10)


def series(values) -> Series:
    return Series("drift", "output", "euler", STEPS, np.asarray(values, dtype=float))


def measurements(**by_metric) -> list[Measurement]:
    places = {
        "push": ("drift", "output", "euler"),
        "sink": ("preactivations", "a.act", "preact_drift"),
        "zeros": ("sparsity", "a.act", "hard"),
    }
    return [
        Measurement(int(t), *places[name][:1], *places[name][1:], float(v))
        for name, values in by_metric.items()
        for t, v in zip(STEPS, values)
    ]


def text(source) -> list:
    return [f for f in diagnose(source) if f.rule == "drift direction"]


@pytest.mark.parametrize(
    ("values", "way"),
    [
        (1.0 - STEPS / 400 + np.random.default_rng(0).normal(0, 0.02, len(STEPS)), -1),
        (np.linspace(0.5, 1.0, 30), 1),
        (np.ones(30), 0),
        (np.random.default_rng(1).normal(1.0, 0.5, 30), 0),
        (np.full(30, np.nan), 0),
        (np.r_[np.linspace(0, 1, 20), np.linspace(1, 0.5, 10)], -1),  # the last third counts
    ],
    ids=["falls", "rises", "flat", "noise", "nothing", "turned"],
)
def test_a_trend_is_told_where_it_is_sure(values, way):
    assert trend(series(values)) == way


def test_a_trend_is_that_of_least_squares_over_the_last_third():
    g, ways = np.random.default_rng(2), []
    for n in (18, 20, 60):
        for slope in np.linspace(-0.05, 0.05, 60):
            y = slope * np.arange(n) * (np.arange(n) >= n // 2) + g.normal(0, 0.1, n)
            size = max(6, math.ceil(n / 3))
            fit = linregress(10 * np.arange(n)[-size:], y[-size:])
            ways.append(int(np.sign(fit.slope)) * (abs(fit.slope) > 2 * fit.stderr))
            assert trend(Series("drift", "o", "euler", 10 * np.arange(n), y)) == ways[-1]
    assert {-1, 0, 1} == set(ways)
    five, six = (Series("drift", "o", "euler", np.arange(n), np.arange(n) / 7) for n in (5, 6))
    assert (trend(five), trend(six)) == (0, 1)


def test_drift_that_slows_down_and_drift_that_has_turned():
    sink = np.linspace(0.0, -0.3, len(STEPS))
    (soon,) = text(measurements(push=1.0 - STEPS / 400, sink=sink))
    assert "slows down" in soon.what and "near step" not in soon.what and "euler" in {e.metric for e in soon.evidence}
    assert not text(measurements(push=1.0 - STEPS / 4000, sink=sink))  # hardly begun
    (past,) = text(measurements(push=1.0 - STEPS / 150, sink=sink))
    assert "stopped drifting negative at step 160" in past.what
    assert turned(series(1.0 - STEPS / 150)) == 160
    assert not text(measurements(push=1.0 - STEPS / 150, sink=np.zeros(len(STEPS))))  # nothing has drifted


def test_sparsity_on_its_way_to_the_cliff():
    (found,) = text(measurements(zeros=0.5 + STEPS / 2000))
    assert found.severity == "note" and "accuracy falls beyond 70 %" in found.what and "a.act" in found.what
    assert "near step" not in found.what and "norm layer" in found.advice
    (outlook,) = text(measurements(zeros=0.5 + STEPS / 2000, push=np.full(len(STEPS), -0.2)))
    assert "may stop" in outlook.why
    assert not text(measurements(zeros=np.full(len(STEPS), 0.8)))  # past it: another rule speaks
    assert not text(measurements(zeros=np.full(len(STEPS), 0.65)))
    assert not text(measurements(zeros=0.3 + STEPS / 2000))  # far from it


def test_a_spike_names_layer_channel_and_position():
    source = [
        Measurement(int(t), "spikes", "blocks.3.act", m, v)
        for t in STEPS
        for m, v in (("max_over_mean", 250.0), ("max_abs", 40.0), ("p999", 2.5), ("channel", 17.0), ("token", 5.0))
    ]
    (found,) = [f for f in diagnose(source) if f.rule == "spikes"]
    assert all(word in found.what for word in ("blocks.3.act", "channel 17", "position 5"))
    assert "99.9 % quantile: x.clamp(max=2.5)" in found.advice


def test_a_watched_run_on_random_data_is_told_of_the_cliff():
    """Drift on random labels with a large rate drives the last layer's zeros up, and a finding says so."""
    torch.manual_seed(0)
    net = models.build("mlp:64-64x3-10,bias=false,init=he", seed=0)
    optimizer = torch.optim.SGD(net.parameters(), 0.02, momentum=0.9)
    noise = data.load("noise,inputs=64,classes=10")
    generator = torch.Generator().manual_seed(0)
    heard = set()
    with nv.watch(net, optimizer=optimizer, every=2, vitals=["sparsity", "drift", "preactivations"]) as vitals:
        for step in range(60):
            x, y = noise.draw(128, generator)
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            vitals.step(loss)
            if step % 10 == 9:
                heard |= {f.what for f in vitals.findings() if f.rule == "drift direction"}
    assert any("accuracy falls beyond 70 %" in h for h in heard), heard
