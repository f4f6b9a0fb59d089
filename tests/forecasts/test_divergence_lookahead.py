"""Danger that is lookahead: when a copy is trained ahead, what is said of it, and what a watch makes of that."""

import math
from collections import deque

import numpy as np
import pytest
import torch
from torch import nn

import netvitals as nv
from netvitals.forecasts import Lookahead, LookaheadRun
from netvitals.forecasts.divergence import Danger
from netvitals.forecasts.divergence_lookahead import (
    BELIEVED,
    BEYOND,
    CALM,
    CLIMB,
    DOUBTED,
    GRACE,
    LOOKAHEAD_SPREAD,
    ORDERS,
    RISES,
    SHARE,
    DivergenceLookahead,
)
from netvitals.forecasts.lookahead import STEPS

T = np.arange(200)
FALLING = 2 * np.exp(-T / 60) + 0.1
NOISE = 0.01 * np.random.default_rng(0).normal(size=200)
LEVEL = np.where(T < 100, FALLING, FALLING[100]) + NOISE  # has stopped to fall
CLIMBING = np.where(T < 150, FALLING, FALLING[150] * np.exp((T - 150) / 100)) + NOISE  # 1.5 times its lowest
STEADY = np.full(STEPS, 0.1)


def after(losses, **given):
    danger = Danger()
    lookahead = DivergenceLookahead(danger, **given)
    for t, loss in enumerate(losses):
        assert not danger.add(t, float(loss), 0.1)
    return lookahead


def lookahead_run(step, lost=None, steps=STEPS, climb=0.0, orders=2):
    """As it would come: one order where it is not lost."""
    lost_at = (None,) if lost is None else (lost,) * orders
    losses = tuple((1.0,) * (steps if at is None else at - step) for at in lost_at)
    return LookaheadRun(step=step, losses=losses, lost_at=lost_at, climb=climb, climb_stderr=0.01)


def test_the_rule_is_the_one_that_was_scored():
    """`docs/forecasts.md` has the scores of these constants: who changes one must score anew."""
    assert (STEPS, CLIMB, BEYOND, RISES, BELIEVED, DOUBTED, ORDERS) == (100, 0.1, 3.0, 1.2, 80, 40, 2)
    assert (LOOKAHEAD_SPREAD, SHARE, GRACE, CALM) == (0.35, 1.0, 400, 20)


def test_a_run_that_is_well_is_not_lookahead():
    assert after(FALLING + NOISE).due(200, STEADY) == ""
    assert after(LEVEL).due(200, STEADY) == ""
    assert after(FALLING[:10]).due(CALM - 1, 100 * STEADY) == "" != after(FALLING[:30]).due(CALM, 100 * STEADY)


def test_a_climb_beyond_its_error_is_lookahead():
    assert after(CLIMBING).due(200, STEADY).startswith("the loss is 1.")
    noisy = CLIMBING * np.exp(np.random.default_rng(1).normal(0, 2.0, 200))
    assert after(noisy).due(200, STEADY) == ""


def test_rates_beyond_all_that_is_known_are_lookahead():
    rising = STEADY * np.linspace(1, 2, STEPS)
    assert after(FALLING + NOISE).due(200, rising) == "the learning rate will be 2.0 times what it has been"
    assert after(FALLING + NOISE).due(200, 0.99 * RISES * STEADY) == "" == after(FALLING + NOISE).due(200, STEADY[:0])
    beyond = np.concatenate([STEADY, 100 * STEADY])  # after what is looked ahead
    assert after(FALLING + NOISE).due(200, beyond) == ""


def test_a_rehearsal_is_believed_for_some_steps_and_for_fewer_where_its_loss_climbed():
    for found, believed in ((lookahead_run(201), BELIEVED), (lookahead_run(201, climb=0.3), DOUBTED)):
        lookahead = after(CLIMBING)
        assert lookahead.take(200, lookahead.due(200, STEADY), found) is None
        assert lookahead.due(199 + believed, STEADY) == "" != lookahead.due(200 + believed, STEADY)
    half = LookaheadRun(step=201, losses=((1.0,),) * 2, lost_at=(250, None), climb=0.0, climb_stderr=0.01)
    lookahead = after(CLIMBING)
    assert lookahead.take(200, "", half) is None and lookahead.due(200 + DOUBTED, STEADY)


def test_rehearsals_take_at_most_their_share():
    lookahead = after(CLIMBING, budget=0.5)
    lookahead.spent = round(0.5 * 200 + GRACE) - STEPS
    assert lookahead.due(200, STEADY)
    lookahead.spent += 1
    assert not lookahead.due(200, STEADY) and lookahead.due(202, STEADY)


def test_a_copy_that_is_lost_is_a_call_with_its_date_and_a_later_one_takes_it_back():
    lookahead = after(CLIMBING)
    said = lookahead.take(200, "the loss climbs", lookahead_run(201, lost=260))
    assert said.value == 260 and said.made_at == 200 and said.method == "look-ahead" and said.quantity == "loss/lost"
    assert math.log((said.interval80[1] - 200) / 60) == pytest.approx(1.282 * LOOKAHEAD_SPREAD)
    assert said.conditions["looked ahead"] == "diverged at step 260" and said.conditions["because"] == "the loss climbs"
    assert lookahead.spent == 2 * 59 and lookahead.lookaheads == [(200, True)]
    assert lookahead.take(240, "", lookahead_run(241, lost=262)) is None  # it stands
    again = lookahead.take(250, "", lookahead_run(251, lost=340))
    assert again.value == 340 and lookahead.called == 200  # at another date
    back = lookahead.take(280, "", lookahead_run(281, steps=90))
    assert not back.known and "look-ahead at step 280 did not diverge within 90 steps" in back.refused
    assert lookahead.withdrawn == [280] and lookahead.called is None


def test_where_nothing_can_be_rehearsed_the_rule_of_the_losses_calls_again():
    lookahead = after(FALLING)
    assert lookahead.danger.silent
    assert lookahead.take(200, "", LookaheadRun(step=201, refused="it cannot be copied")) is None
    assert lookahead.due(300, 100 * STEADY) == ""
    assert any(lookahead.danger.add(200 + t, 0.2 * math.exp(t / 25), 0.1) for t in range(100))


# ---------------------------------------------------------------- in a watch


def trained(lookahead, ramp=1.0, steps=140, probe=False, watched=True, **options):
    """A small network whose rate grows by ``ramp`` a step."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1))
    x = torch.randn(64, 6)
    y = x[:, :1] * x[:, 1:2] + x[:, 2:3]
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda t: ramp**t)
    recent = deque(maxlen=4)
    plan = Lookahead(batches=recent, loss_fn="mse") if lookahead == "batches" else lookahead
    fixed = (x, y, nn.functional.mse_loss) if probe else None
    options = {"every": 10, "vitals": ["optimizer"], "total_steps": steps, "probe": fixed, "lookahead": plan, **options}
    seen = nv.watch(net, opt, **options) if watched else None
    losses = []
    for t in range(steps):
        rows = slice(16 * (t % 4), 16 * (t % 4) + 16)
        recent.append((x[rows], y[rows]))
        loss = nn.functional.mse_loss(net(x[rows]), y[rows])
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(float(loss.detach()))
        if seen is not None:
            seen.step(loss)
        sched.step()
    return seen, losses, net


def calls(seen):
    return [f for f in seen._forecasts.made if f.quantity == "loss/lost" and f.known]


def test_a_run_that_will_be_lost_is_called_and_training_is_the_same(tmp_path, every_kind):
    seen, losses, net = trained("batches", ramp=1.05, run=tmp_path / "run")
    lost, made = seen._forecasts.forecaster.danger.lost, calls(seen)
    assert lost is not None and made and lost - made[0].made_at >= 20, (lost, made)
    assert (
        made[0].method == "look-ahead" and made[0].conditions["looked ahead"] == f"diverged at step {made[0].value:.0f}"
    )
    seen.close()
    assert nv.open_run(tmp_path / "run").forecasts()[0]["method"] == "look-ahead"
    _, plain, bare = trained(False, ramp=1.05, watched=False)
    np.testing.assert_array_equal(losses, plain)
    torch.testing.assert_close(dict(net.state_dict()), dict(bare.state_dict()), rtol=0, atol=0, equal_nan=True)


def test_the_finding_says_that_a_copy_diverged(tmp_path, every_kind):
    seen, *_ = trained("batches", ramp=1.05, steps=50, total_steps=140, run=tmp_path / "run")
    made = calls(seen)
    seen.close()
    found = [f for f in seen.findings() if "forecast to diverge" in f.what]
    assert made and found and found[0].what.startswith("The run is forecast to diverge near step")
    assert f"looked ahead: diverged at step {made[0].value:.0f}" in found[0].why


def test_a_run_at_a_steady_rate_is_not_called_and_hardly_lookahead():
    seen, *_ = trained(True, probe=True)
    assert not calls(seen) and seen._forecasts.lookahead.spent <= STEPS
    seen.close()


def test_what_is_missing_is_said_at_once_or_noted():
    with pytest.raises(ValueError, match=r"but none was given: pass probe=\(x, y, loss_fn\)"):
        trained(True)
    with pytest.raises(ValueError, match="leave out one of the two"):
        trained(True, probe=True, forecasts=False)
    with pytest.raises(TypeError, match=r"True or a netvitals\.forecasts\.Lookahead, got a list"):
        trained([1])
    net = nn.Linear(6, 1)
    net.kept = net.weight * 2  # no leaf of the graph: it cannot be copied
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    x = torch.randn(8, 6)
    plan = Lookahead(batches=[(x, x[:, :1])], loss_fn="mse")
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda t: 1.1**t)
    with nv.watch(net, opt, every=10, vitals=["optimizer"], lookahead=plan) as seen:
        for _ in range(40):
            loss = nn.functional.mse_loss(net(x), x[:, :1])
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen.step(loss)
            sched.step()
    assert "could not be copied" in seen.skipped["look-ahead"] and not seen._forecasts.forecaster.danger.silent
