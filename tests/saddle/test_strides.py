"""Strides of a look-ahead: steps, the law of the rest, one stride against the flow, the noise of a batch, renewals."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from netvitals.anatomy import chart
from netvitals.anatomy.ir import ParameterPart
from netvitals.capture import task_of
from netvitals.saddle.measure.forecasting import made_forecast
from netvitals.saddle.measure.growth import measure_growth, rate_left
from netvitals.saddle.measure.outlook import forecast_escape
from netvitals.saddle.measure.plateau import Snapshot
from netvitals.saddle.rollout import looks
from netvitals.saddle.rollout.looks import PlateauState, sampling
from netvitals.saddle.rollout.renewal import EscapeRollouts
from netvitals.saddle.rollout.strides import AdamFlow, EscapeRollout, Flow, _stride, path

G = torch.Generator().manual_seed(0)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("mean", [False, True])
def test_steps_are_those_of_an_exponential_under_momentum(momentum, mean):
    """A weight whose gradient is −a·w: steps until it has grown by e⁸, counted and by the formula; Adam's momentum is a
    mean of the gradients, and SGD's a sum."""
    a, lr, w, v, grown = 2.0, 0.02, 1.0, 0.0, []
    share = 1 - momentum if mean else 1.0
    while w < math.exp(12):
        v = momentum * v + share * a * w
        w = w + lr * v
        grown.append(math.log(w))
    steps = sum(4 < g < 12 for g in grown)  # after the first ones, in which the momentum builds up
    flow = AdamFlow(lr, 0.0, {}, momentum, 0.999, 1e-8, 1.0) if mean else Flow(lr, momentum)
    assert flow.steps(np.full(100, 8 / a / 100), np.full(100, a)) == pytest.approx(steps, abs=1)
    slow = (1 - momentum) / lr / share
    assert flow.steps(np.array([1.0, 2.0]), np.array([1e-6, 0.0])) == pytest.approx(3 * slow, rel=1e-3)
    cold = Flow(lr, momentum, cold=True).steps(np.array([1.0]), np.array([0.0]))
    assert cold == pytest.approx((1 - momentum) / lr + momentum / (1 - momentum))


@pytest.mark.parametrize("r", [2, 3, 4])
def test_the_law_is_integrated_to_its_end(r):
    """γ̇ = c (γ² + b²)^(1 − 1/r) (1 − γ/2R) from two looks that follow it, R a tenth of the resting loss."""
    from scipy.integrate import quad

    y = torch.tensor([[1.0], [3.0]], dtype=torch.float64)
    rest, up = torch.zeros_like(y), torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    task = task_of(nn.Identity(), "mse", (y, y))  # the output can become 1 of (1, 3): the loss falls from 5 to 4.5
    c, b, reach = 0.3, 0.02, 0.5
    speed = lambda g: c * (g * g + b * b) ** (1 - 1 / r) * (1 - g / (2 * reach))
    look = lambda g: PlateauState(
        g, 5 - g, g * up, rest, 5.0, {"w": torch.tensor([speed(g) ** 0.5], dtype=torch.float64)}
    )
    found = EscapeRollout([look(0.01), look(0.02), look(0.03)], [1.0, 2.0])
    taus, paces, supposed, why = path(found, task, r)
    end = 2 * reach * (1 - math.sqrt(1 - 0.05 * 5 / reach))
    assert not why and end > 0.25  # the output has gone a quarter of its way and more: the last factor counts
    assert supposed == pytest.approx(quad(lambda g: 1 / speed(g), 0.03, end)[0], rel=2e-3)
    assert float(taus.sum()) == pytest.approx(3 + supposed) and taus[:2].tolist() == [1.0, 2.0]
    grows = [math.log(speed(0.02) / speed(0.01)) / 2, math.log(speed(0.03) / speed(0.02)) / 4]
    assert paces[:2] == pytest.approx(grows, rel=1e-6)  # of the gradient, which is the root of the speed
    assert paces[-1] == pytest.approx((1 - 1 / r) * speed(end) / math.hypot(end, b), rel=0.01)


def test_what_cannot_take_enough_of_the_loss_away_does_not_end_the_plateau():
    y = torch.tensor([[0.5], [3.0]])
    out = torch.tensor([[0.1], [0.0]])
    seen = lambda g: PlateauState(g, 4.6, g * out, 0 * y, 4.625, {"w": torch.tensor([g])})
    *_, why = path(EscapeRollout([seen(0.01), seen(0.02)], [1.0]), task_of(nn.Identity(), "mse", (y, y)), 2)
    assert "takes at most 2.7 % of the loss away, which alone does not end" in why  # 0.125 of 4.625


def test_the_last_stride_counts_up_to_the_level():
    """The fall of the loss doubles in the stride, and the twentieth of 5 is reached at its square root of two."""
    y = torch.ones(2, 1)
    seen = lambda fallen, g, rest=5.0: PlateauState(fallen, rest - fallen, y, y, rest, {"w": torch.tensor([g])})
    once = 0.25 / math.sqrt(2)
    found = EscapeRollout([seen(0.1, 1.0, 4.0), seen(once, 2.0, 4.5), seen(2 * once, 4.0)], [1.0, 3.0])
    taus, paces, supposed, why = path(found, None, 2)
    assert taus == pytest.approx([1.0, 1.5], rel=1e-6) and supposed == 0 and not why
    assert paces == pytest.approx([math.log(2), math.log(2) / 3], rel=1e-6)


def test_a_stride_is_the_flow_for_its_time():
    """Gradient descent by very small steps, and Adam's with its moments, against one stride: a tenth of a weight."""
    x = torch.eye(2, dtype=torch.float64)
    start = torch.tensor([[0.3, -0.2], [0.1, 0.4]], dtype=torch.float64)
    for adam in (False, True):
        net = nn.Linear(2, 2, bias=False).double()
        net.weight.data = start.clone()
        task = task_of(net, "mse", (x, torch.ones_like(x)))
        seen = looks.look(net, task, 0)
        seconds = {"weight": seen.grads["weight"].square() * 0.1}
        flow = AdamFlow(4e-3, 0.2, seconds, 0.9, 0.99, 0.5, 10.0, 1.5) if adam else Flow(1e-3, decay=0.2)
        found = EscapeRollout([seen])
        whole = ParameterPart(parameter="weight")
        _stride(net, task, [whole], flow, found, 0)
        w, h, n = start.clone(), found.strides[0], 4000
        v, taken = seen.grads["weight"].square() * 0.1, 10.0
        for _ in range(n):
            g = (x @ w.T - 1).T @ x / 2
            if adam:
                root = (v / (1 - 0.99**taken)).sqrt()
                kept = 0.99 ** (h / n / 4e-3)
                v, taken = kept * v + (1 - kept) * (g.square() + 0.5 * g.square().mean()), taken + h / n / 4e-3
            w = w - h / n * ((g / (root + 0.5) if adam else g) + 0.2 * w)
        moved = (w - start).norm()
        assert float(moved) == pytest.approx(0.1 * float(start.norm()), rel=0.3 if adam else 0.1)
        assert float((net.weight.detach() - w).norm() / moved) < (0.02 if adam else 0.005)


def test_the_signal_is_what_the_first_order_takes_of_the_loss_at_rest():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    x, y = (torch.randn(8, n, generator=G, dtype=torch.float64) for n in (3, 2))
    out, rest = net(x).detach(), net(torch.zeros_like(x)).detach()
    seen = looks.look(net, task_of(net, "mse", (x, y)), 0)
    assert seen.signal == pytest.approx(-float(((out - rest) * 2 * (rest - y) / 16).sum()), rel=1e-12)
    assert seen.resting == pytest.approx(float((rest - y).square().mean())) and rest.abs().max() > 0.01


@pytest.mark.parametrize(("size", "why"), [(0.9, ""), (1.1, "11 % of the fall")])
def test_at_most_a_tenth_of_the_fall_is_beside_the_factors(size, why):
    """Two layers that pull as the signal does, and a bias with a tenth of the squared gradient or so."""
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1, bias=False)).double()
    parts = [ParameterPart(parameter=n) for n in ("0.weight", "1.weight")]
    grads = {n: -net.get_parameter(n).detach() for n in ("0.weight", "1.weight")}
    for g in grads.values():
        g /= g.norm()
    pulls = {n: -float((net.get_parameter(n).detach() * g).sum()) for n, g in grads.items()}
    grads = {n: g / pulls[n] * max(pulls.values()) for n, g in grads.items()}  # equal pulls
    total = sum(float(g.square().sum()) for g in grads.values())
    share = 0.1 * size
    grads["0.bias"] = torch.full((2,), math.sqrt(total * share / (1 - share) / 2), dtype=torch.float64)
    seen = PlateauState(max(pulls.values()), 1.0, torch.zeros(1), torch.zeros(1), 1.0, grads)
    anatomy = chart(net, torch.zeros(1, 2, dtype=torch.float64))
    factors, said = looks.factors_of(net, seen, anatomy, parts)
    assert said.startswith(why) and bool(said) == bool(why) and len(factors) == (0 if why else 2)


def test_the_noise_of_a_batch_is_the_spread_of_its_examples():
    x, y = (torch.randn(8, n, generator=G, dtype=torch.float64) for n in (6, 1))
    net = nn.Linear(6, 1, bias=False).double()
    each = 2 * (net(x).detach() - y) * x  # gradients of the eight examples
    mean = each.mean(0)
    found = sampling(net, "mse", (x, y), 8, 0)
    assert found.share == pytest.approx(float(each.var(0).sum() / 8 / mean.square().sum()), rel=1e-9)
    along = each @ mean / mean.square().sum()
    assert float(along.mean()) == pytest.approx(1.0) and found.stderr == pytest.approx(float(along.std() / 8**0.5))


def lookahead(at, left=100.0, r=3):
    return made_forecast(at, left, 0.8, r, 0.05, "look-ahead", 0.2)


def test_rehearsals_are_few_and_carried_on_along_the_schedule():
    """A rate of 0.1 a step up to step 50, and of 0.05 from there on: what is left takes twice the steps."""
    seen, made = EscapeRollouts(), []
    spent = lambda first, last: 0.1 * (last - first)
    for step in range(0, 3000, 5):
        if seen.due(step):
            seen.keep(lookahead(step), tau=0.1 * step, spent=spent)
            made.append(step)
    assert made == [0, 20, 60, 180]
    seen = EscapeRollouts()
    assert seen.at(0, tau=0.0, when=spent) is None
    first = lookahead(0)
    seen.keep(first, tau=0.0, spent=spent)
    assert seen.at(0, tau=0.0, when=lambda rate: 0.0) == first
    later = seen.at(50, tau=5.0, when=lambda rate: 50 + rate / 0.05)
    assert (later.at, later.r, later.method) == (50, 3, "look-ahead")
    assert [later.low, later.step, later.high] == pytest.approx(
        [50 + 2 * (d - 50) for d in (first.low, 100, first.high)]
    )
    late = seen.at(110, tau=11.0, when=lambda rate: 110 + rate / 0.1)
    assert late.low == late.step == 110 and late.high == pytest.approx(first.high)  # due now, or soon
    assert "has passed" in seen.at(200, tau=20.0, when=lambda rate: 200 + rate / 0.1).reason
    assert "does not reach its end" in seen.at(50, tau=5.0, when=lambda rate: math.inf).reason


def test_the_slope_takes_over_when_the_plateau_is_left_with_the_order_that_was_counted():
    def looked(x):
        return [
            Snapshot(
                step=10 * i, signal=math.nan, loss=(1 - v) ** 2, resting=1.0, names=(), grads=(), signs=(), gains=(),
                scales=(), speed=2 * (1 - v) ** 2 * v ** (4 / 3), reason="the layers do not form one chain",
            )
            for i, v in enumerate(x)
        ]  # fmt: skip

    def ask(history, said, rule="sgd"):
        taus = [0.03 * s.step for s in history]
        when = lambda rate: history[-1].step + rate / 0.03
        return forecast_escape(history, taus, when=when, lr=0.03, lookahead=said, rule=rule)

    x = np.array([0.001])
    while x[-1] < 0.1:
        x = np.append(x, x[-1] + 0.3 * x[-1] ** (4 / 3))
    on, off = looked(x[x < 0.02]), looked(x)
    said = made_forecast(on[-1].step, 40.0, 0.8, 3, 0.05, "look-ahead", 0.2)
    said = replace(said, rest=1.0)
    assert ask(on, said) == said
    left = ask(off, said)
    assert left.method == "growth" and left.r == 3 and ask(off, None).r == 2
    grown = measure_growth([0.03 * s.step for s in off], [s.loss for s in off], [s.speed for s in off], 1.0)
    for rule, power in (("sgd", 4 / 3), ("adam", 2 / 3)):
        wait = ask(off, said, rule).step - off[-1].step
        assert wait == pytest.approx(rate_left(grown, 0.5, power) / 0.03, rel=1e-9)
    silent = ask(on[:2], replace(said, reason="a norm"))
    assert not silent.known and silent.reason.endswith("; a norm")
