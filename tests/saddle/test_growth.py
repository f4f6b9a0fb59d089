"""The end of a plateau from how its slope grows: exact on the law, silent where the law does not hold."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from netvitals import saddle
from netvitals.saddle.measure.forecasting import SPREAD
from netvitals.saddle.measure.growth import Growth, last_drop, measure_growth, rate_left
from netvitals.saddle.measure.outlook import forecast_escape
from netvitals.saddle.measure.plateau import Snapshot, fall_speed


def path(p=1.0, x0=1e-3, rate=1.0, height=0.7, points=4000, end=14.0):
    """x' = c·x^p·(1 − x), integrated finely; ℓ = height·(1 − x)²."""
    tau = np.linspace(0, end, points)
    x = np.empty(points)
    x[0] = x0
    for i in range(1, points):
        h = tau[i] - tau[i - 1]
        f = lambda v: rate * v**p * (1 - v)
        k1 = f(x[i - 1])
        k2 = f(x[i - 1] + h * k1 / 2)
        x[i] = x[i - 1] + h * k2
    loss = height * (1 - x) ** 2
    speed = 2 * height * (1 - x) * rate * x**p * (1 - x)
    return tau, loss, speed


def looks(tau, loss, speed, until, every=60):
    pick = np.flatnonzero(tau <= until)[::every]
    return tau[pick], loss[pick], speed[pick]


@pytest.mark.parametrize("p", [2 / 3, 1.0, 4 / 3])
@pytest.mark.parametrize("share", [0.5, 0.75])
def test_the_law_finds_its_own_end(p, share):
    rate = {2 / 3: 0.35, 1.0: 1.0, 4 / 3: 3.5}[p]
    tau, loss, speed = path(p, rate=rate)
    true = float(np.interp(-0.35, -loss, tau))
    seen = looks(tau, loss, speed, share * true, every=25)
    growth = measure_growth(*seen, 0.7)
    assert not growth.reason, growth
    said = seen[0][-1] + rate_left(growth, 0.5, p)
    assert said == pytest.approx(true, rel=0.08), (p, share, said, true)


def test_leaving_is_earlier_than_falling_by_half():
    tau, loss, speed = path()
    growth = measure_growth(*looks(tau, loss, speed, 2.5), 0.7)
    assert 0 < rate_left(growth, 0.05, 1.0) < rate_left(growth, 0.5, 1.0)


def test_the_height_of_the_plateau_does_not_matter():
    """The same course at ten times the height ends at the same time."""
    low, high = (path(height=h) for h in (0.7, 7.0))
    times = [rate_left(measure_growth(*looks(*c, 4.0), h), 0.5, 1.0) for c, h in ((low, 0.7), (high, 7.0))]
    assert times[0] == pytest.approx(times[1], rel=1e-6)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda t, l, s: (t, l, s[::-1]), "does not grow|not significant"),
        (lambda t, l, s: (t, l, 10 * s), "more than one direction grows"),
        (lambda t, l, s: (t, l + np.linspace(0, 0.5, len(l)), s), "not below where this plateau began"),
        (lambda t, l, s: (t, l, np.where(np.arange(len(s)) == 5, np.nan, s)), "not finite"),
        (lambda t, l, s: (t[:3], l[:3], s[:3]), "does not grow"),
    ],
    ids=["falls", "too fast", "loss rises", "nan", "too few"],
)
def test_without_evidence_nothing_is_said(spoil, why):
    found = measure_growth(*spoil(*looks(*path(), 4.0)), 0.7)
    import re

    assert re.search(why, found.reason), found
    with pytest.raises(ValueError, match="slope of the loss cannot be extrapolated"):
        rate_left(found, 0.5, 1.0)


def test_noise_around_a_constant_is_no_growth():
    g = np.random.default_rng(0)
    spoken = 0
    for _ in range(50):
        tau = np.arange(40.0)
        speed = np.exp(g.normal(0, 0.3, 40))
        spoken += not measure_growth(tau, 1 - 0.001 * np.cumsum(speed), speed / 1000, 1.0).reason
    assert spoken <= 2, spoken


def test_a_second_plateau_is_told_from_its_own_level():
    """Two directions, one after the other: after the first drop the rest is re-based."""
    tau = np.linspace(0, 40, 400)
    a, b = (1 / (1 + np.exp(-(tau - at))) for at in (6.0, 28.0))
    loss = 0.5 * (1 - a) ** 2 + 0.2 * (1 - b) ** 2
    speed = 0.5 * 2 * (1 - a) * a * (1 - a) + 0.2 * 2 * (1 - b) * b * (1 - b)
    assert 40 < last_drop(speed[:200]) < 80
    pick = slice(0, 240)
    growth = measure_growth(tau[pick][::4], loss[pick][::4], speed[pick][::4], 0.7)
    assert not growth.reason and not growth.first and growth.level == pytest.approx(0.2, rel=0.02), growth
    said = tau[pick][::4][-1] + rate_left(growth, 0.05, 1.0)
    true = float(np.interp(-0.95 * growth.level, -loss, tau))
    assert said == pytest.approx(true, rel=0.05), (said, true)


@pytest.mark.parametrize("clock", [0.2, 1.0, 5.0])
def test_the_clock_of_a_second_plateau_may_run_at_any_pace(clock):
    """The same course in another unit of learning rate, and a power that is not one."""
    tau = np.linspace(0, 40, 400)
    a = 1 / (1 + np.exp(-(tau - 6.0)))
    b = np.clip(60 / np.maximum(45 - tau, 0.1) ** 3 - 60 / 45**3, 0, 0.9)  # s' ∝ s^(4/3): a cube of a hyperbola
    loss = 0.5 * (1 - a) ** 2 + 0.2 * (1 - b)
    speed = 0.5 * 2 * (1 - a) * a * (1 - a) + 0.2 * np.gradient(b, tau)
    pick = slice(0, 330, 4)
    growth = measure_growth(clock * tau[pick], loss[pick], speed[pick] / clock, 0.7)
    assert not growth.reason and not growth.first, growth
    said = tau[pick][-1] + rate_left(growth, 0.05, 4 / 3) / clock
    true = float(np.interp(-0.95 * growth.level, -loss, tau))
    assert said == pytest.approx(true, rel=0.06), (said, true)


def test_growth_by_little_is_not_enough_and_four_looks_are_too_few():
    tau = np.linspace(0, 1, 30)
    for factor, speaks in ((1.2, False), (1.5, True)):
        speed = 0.01 * factor**tau
        loss = 1 - np.concatenate([[0], np.cumsum((speed[1:] + speed[:-1]) / 2 * np.diff(tau))])
        assert (measure_growth(tau, loss, speed, math.nan).reason == "") is speaks, factor
    for looks_, speaks in ((4, False), (6, True)):
        t, l, s = (v[::5][:looks_] for v in path(x0=1e-2, points=100))
        assert (measure_growth(t, l, s, 0.7).reason == "") is speaks, looks_


def test_what_is_learnt_is_measured_where_there_is_enough_of_it():
    """Half of the way by the measured loss counts half; a tenth of the amplitude and more counts wholly."""
    base = measure_growth(*looks(*path(), 3.5), 0.7)
    seen = 0.05
    half = replace(base, loss=0.7 * (1 - seen) ** 2)
    pace = base.speed * (1 - seen) / 1.4
    x = pace / base.rate
    x = x + 0.5 * (seen - x)
    end = 1 - math.sqrt(0.5)
    grid = np.geomspace(x, end, 200)
    assert rate_left(half, 0.5, 1.0) == pytest.approx(np.trapezoid(x / (pace * grid * (1 - grid)), grid), rel=1e-9)


# ---------------------------------------------------------------- looks at a network


def snapshots(until, **course):
    tau, loss, speed = looks(*path(**course), until)
    return [
        Snapshot(
            step=round(100 * t), signal=math.nan, loss=float(l), resting=0.7, names=(), grads=(), signs=(), gains=(),
            scales=(), reason="no chain", speed=float(s),
        )
        for t, l, s in zip(tau, loss, speed)
    ], tau.tolist()  # fmt: skip


def outlook(until, *, when=None, lr=0.01, **options):
    history, taus = snapshots(until)
    return forecast_escape(history, taus, when=when or (lambda rate: history[-1].step + rate / lr), lr=lr, **options)


TRUE = 100 * float(np.interp(-0.35, -path()[1], path()[0]))


def test_networks_without_a_chain_are_told_too_and_the_interval_is_as_wide_as_it_says():
    found = outlook(4.0)
    assert found.method == "growth" and found.step == pytest.approx(TRUE, rel=0.05)
    left = found.step - found.at
    assert math.log((found.high - found.at) / left) == pytest.approx(1.2816 * 0.22, rel=1e-3)
    assert found.low < TRUE < found.high


def test_over_is_said_from_the_measured_loss_alone():
    assert "over" in outlook(0.999 * TRUE / 100 + 0.15).reason
    assert outlook(0.95 * TRUE / 100).known


def test_a_schedule_moves_the_date():
    """Half of the learning rate from here on takes twice as long; none of it never comes."""
    plain = outlook(4.0)
    history, _ = snapshots(4.0)
    halved = outlook(4.0, when=lambda rate: history[-1].step + 2 * rate / 0.01)
    assert halved.step - halved.at == pytest.approx(2 * (plain.step - plain.at))
    never = outlook(4.0, when=lambda rate: math.inf)
    assert not never.known and "too small to reach its end" in never.reason


@pytest.mark.parametrize(("step", "drop", "silent"), [(-5.0, 0.5, True), (50.0, 0.5, False), (-5.0, 1e-9, False)])
def test_a_forecast_whose_step_has_passed_without_the_drop_silences_the_method(step, drop, silent):
    first = outlook(4.0)
    earlier = replace(first, at=first.at - 100, step=first.at + step, high=first.at + 900.0, drop=drop)
    found = outlook(4.0, earlier=[earlier])
    assert found.known is not silent
    if silent:
        assert f"said step {earlier.step:.0f}, which passed without the drop: no more forecasts" in found.reason


def chain(signals, **more):
    given = {"loss": 0.19, "resting": 0.2, "names": ("a", "b"), "signs": (1.0, 1.0), "gains": (0.1, 0.1),
             "scales": (0.1, 0.1), "speed": 1e-6}  # fmt: skip
    grads = more.pop("grads", (0.1, 0.1))
    return [Snapshot(step=10 * i, signal=s, grads=grads, **{**given, **more}) for i, s in enumerate(signals)]


def told(history, **options):
    taus = [0.1 * s.step for s in history]
    return forecast_escape(history, taus, when=lambda r: history[-1].step + r / 0.1, lr=0.1, **options)


RISING = [0.001 + 0.02 * i for i in range(4)]  # as the gradients say: 0.1 · 10 steps · 2 · 0.1²


@pytest.mark.parametrize(
    ("history", "why"),
    [
        (chain(RISING[:3]), "too few to see the signal grow"),
        (chain([-0.01, 0.01, 0.03, 0.05]), "not positive and rising"),
        (chain([0.05, 0.06, 0.05, 0.07]), "not positive and rising"),
        (chain(RISING, loss=0.21), "not below its resting value"),
        (chain(RISING, loss=0.2), "not below its resting value"),
        ([*chain(RISING)[:3], *chain(RISING, loss=0.21)[3:]], "not below its resting value"),
        (chain([0.001 + 0.1 * i for i in range(4)]), "of what the gradients predict"),
        (chain([0.001 + 0.001 * i for i in range(4)]), "of what the gradients predict"),
    ],
)
def test_the_chains_law_wants_a_signal_that_grows_as_it_says(history, why):
    found = told(history)
    assert not found.known and why in found.reason, found


def test_the_chains_law_speaks_where_its_evidence_is_there_and_momentum_counts():
    assert told(chain(RISING)).known
    fast = told(chain([0.001 + 0.04 * i for i in range(4)]), momentum=0.5)
    assert fast.known  # twice the speed is what half a momentum makes of the same gradients
    assert not told(chain(RISING, grads=(0.3, 0.3)), momentum=0.0).known


def test_a_schedule_stretches_date_and_interval_of_the_chains_law_alike():
    """Half the learning rate from here on: everything that is left takes twice as long."""
    history = chain(RISING)
    taus, now = [0.1 * s.step for s in history], history[-1].step
    plain, slow = (forecast_escape(history, taus, when=lambda r, k=k: now + k * r / 0.1, lr=0.1) for k in (1, 2))
    for name in ("step", "low", "high"):
        assert getattr(slow, name) - now == pytest.approx(2 * (getattr(plain, name) - now)), name
    assert (plain.low - now) * (plain.high - now) == pytest.approx((plain.step - now) ** 2)  # even in ln(time left)
    assert (plain.high - now) / (plain.step - now) == pytest.approx(math.exp(1.2816 * SPREAD), rel=1e-3)


def test_decay_that_holds_the_layers_down_silences_the_chains_law():
    found = told(chain(RISING), decay=1.0)
    assert not found.known and "weight decay" in found.reason


# ---------------------------------------------------------------- what is read off a network


def test_the_speed_is_the_fall_of_the_loss_per_learning_rate():
    torch.manual_seed(0)
    x, y = torch.randn(64, 4).double(), torch.randn(64, 1).double()
    for make in (
        lambda p: torch.optim.SGD(p, lr=1e-7),
        lambda p: torch.optim.Adam(p, lr=1e-9, betas=(0.0, 0.999)),
    ):
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()
        opt = make(net.parameters())
        loss = lambda net=net: (net(x) - y).square().mean()
        for _ in range(3):
            opt.zero_grad()
            loss().backward()
            opt.step()
        before = loss()
        params = list(net.parameters())
        speed = float(fall_speed(opt, params, torch.autograd.grad(before, params)))
        opt.zero_grad()
        loss().backward()
        opt.step()
        fell = float(before.detach() - loss().detach()) / opt.param_groups[0]["lr"]
        assert speed == pytest.approx(fell, rel=2e-3), type(opt).__name__


def test_momentum_and_groups_count_in_the_speed():
    p, q = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    grads = [torch.ones(2), torch.ones(2)]
    opt = torch.optim.SGD([{"params": [p]}, {"params": [q], "lr": 0.3}], lr=0.1, momentum=0.9)
    assert float(fall_speed(opt, [p, q], grads)) == pytest.approx((2 + 3 * 2) / (1 - 0.9))
    assert float(fall_speed(None, [p, q], grads)) == 4.0


@pytest.mark.parametrize(("scale", "small"), [(1.0, ()), (0.1, (0, 1, 2))])
def test_smallness_is_judged_against_the_layers_own_initialiser(scale, small):
    """torch's default for nn.Linear is 0.41 of He-normal, and no bottleneck."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    with torch.no_grad():
        for m in net:
            if isinstance(m, nn.Linear):
                m.weight.mul_(scale)
    seen = saddle.measure_plateau(net, "mse", (torch.randn(64, 8), torch.randn(64, 1)))
    assert seen.small == small, seen.scales


def test_growth_says_itself_in_words():
    assert "per unit of learning rate" in str(measure_growth(*looks(*path(), 4.0), 0.7))
    assert str(Growth(since=0, reason="silent")) == "silent"
