"""The optimizer's settings on each measured step, and the schedule that a copy of the user's scheduler foresees."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as lrs

import netvitals as nv
from netvitals.optim.schedules import FutureRates, RatePlan, find_scheduler

TOTAL = 40

SCHEDULERS = {
    "cosine": lambda o: lrs.CosineAnnealingLR(o, TOTAL),
    "one cycle": lambda o: lrs.OneCycleLR(o, 0.2, total_steps=TOTAL, cycle_momentum=False),
    "step": lambda o: lrs.StepLR(o, 10, 0.3),
    "lambda": lambda o: lrs.LambdaLR(o, lambda t: min(1.0, (t + 1) / 8)),
    "sequence": lambda o: lrs.SequentialLR(
        o, [lrs.LinearLR(o, 0.1, 1.0, 6), lrs.CosineAnnealingLR(o, TOTAL - 6)], milestones=[6]
    ),
}


def trained(kind=torch.optim.SGD, scheduler=None, steps=TOTAL, every=5, groups=1, given=True, epoch=1, **options):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    parts = [net.parameters()] if groups == 1 else [net[0].parameters(), net[2].parameters()]
    arguments = {"lr": 0.1, **{k: options.pop(k) for k in ("weight_decay", "momentum") if k in options}}
    opt = kind([{"params": list(p)} for p in parts], **arguments)
    sched = None if scheduler is None else SCHEDULERS[scheduler](opt)
    used = []
    x, y = torch.randn(16, 3), torch.randn(16, 1)
    with nv.watch(
        net, opt if given else None, every=every, vitals=["optimizer"], total_steps=options.pop("total", TOTAL)
    ) as seen:
        for t in range(steps):
            used.append([g["lr"] for g in opt.param_groups])
            loss = (net(x) - y).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen.step(loss)
            if sched is not None and (t + 1) % epoch == 0:
                sched.step()
    found = {}
    for r in seen.measurements:
        if r.vital == "optimizer":
            found.setdefault((r.site, r.metric), {})[r.step] = r.value
    return found, np.array(used), seen, opt


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("given", [True, False])
def test_what_is_left_of_the_learning_rate_is_foreseen_from_the_first_look(name, given):
    found, used, _, _ = trained(scheduler=name, weight_decay=0.01, given=given)
    for step, rest in found["group 0", "lr_rest"].items():
        truth = used[step:].sum()
        assert rest == pytest.approx(truth, rel=1e-9), f"at {step}: {rest} for {truth}"
        assert found["group 0", "decay_rest"][step] == pytest.approx(0.01 * truth, rel=1e-9)
        assert found["group 0", "lr_past"][step] == pytest.approx(used[:step].sum(), rel=1e-9)
        assert found["group 0", "lr"][step] == used[step][0]


def test_decay_is_what_a_step_takes_of_a_weight():
    """Without a gradient a weight must shrink by exp(−S), whoever the optimizer is."""
    for kind, options, momentum in (
        (torch.optim.SGD, {"momentum": 0.9}, 0.9),
        (torch.optim.SGD, {}, 0.0),
        (torch.optim.AdamW, {}, 0.0),
    ):
        w = nn.Parameter(torch.ones(1, dtype=torch.float64))
        opt = kind([w], lr=0.01, weight_decay=0.02, **options)
        future = FutureRates(opt, None, 2000)
        decay = 0.02 / (1 - momentum)
        plan = future.plan(opt, 0, [1.0], [decay])
        for _ in range(2000):
            w.grad = torch.zeros(1, dtype=torch.float64)
            opt.step()
        s = float(plan.decays(0, 2000)[0])
        assert -math.log(w.item()) == pytest.approx(s, rel=0.03), (kind.__name__, momentum, s, w.item())


def test_adams_effective_rate_is_the_mean_over_its_second_moments():
    found, _, _, opt = trained(kind=torch.optim.Adam, steps=21, every=5, weight_decay=0.01)
    sizes = []
    for group in opt.param_groups:
        for p in group["params"]:
            state = opt.state[p]
            v = state["exp_avg_sq"] / (1 - 0.999 ** float(state["step"]))
            sizes.append(1 / (v.sqrt() + 1e-8))
    truth = 0.1 * float(torch.cat([s.reshape(-1) for s in sizes]).mean())
    assert found["group 0", "effective_lr"][20] == pytest.approx(truth, rel=1e-5)
    assert found["group 0", "decay"][20] == pytest.approx(0.01 * truth, rel=1e-5)
    assert found["group 0", "momentum"][20] == 0.9 and found["group 0", "beta2"][20] == 0.999


def test_groups_are_told_apart_and_named_in_the_run(tmp_path):
    found, _, _, _ = trained(groups=2, momentum=0.8)
    assert {site for site, _ in found} == {"group 0", "group 1"}
    assert found["group 1", "effective_lr"][10] == pytest.approx(0.5)
    net = nn.Linear(2, 1)
    opt = torch.optim.SGD([{"params": [net.weight]}, {"params": [net.bias], "lr": 0.5}], lr=0.1)
    with nv.watch(net, opt, run=tmp_path / "a"):
        pass
    assert [g["parameters"] for g in nv.open_run(tmp_path / "a").meta["groups"]] == [["weight"], ["bias"]]


def test_a_scheduler_that_steps_once_an_epoch_is_followed_at_its_own_pace():
    found, used, _, _ = trained(scheduler="step", epoch=4, steps=120, total=120, every=4)
    late = found["group 0", "lr_rest"][80]
    assert late == pytest.approx(used[80:].sum(), rel=0.1)


def test_what_nobody_can_foresee_is_said_and_taken_as_constant():
    net = nn.Linear(2, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    plateau = lrs.ReduceLROnPlateau(opt)
    future = FutureRates(opt, plateau, 10)
    plan = future.plan(opt, 0, [1.0], [0.0])
    assert "future learning rates are unknown" in plan.skipped["scheduler"] and plan.source == "constant"
    assert plan.rates(0, 10)[0] == pytest.approx(1.0)


def test_rates_that_change_without_a_known_scheduler_are_said_to():
    """ReduceLROnPlateau leaves no mark on its optimizer: it is looked for when a rate has changed."""
    opt = torch.optim.SGD(nn.Linear(2, 1).parameters(), lr=0.1)
    plateau, future = lrs.ReduceLROnPlateau(opt, patience=0), FutureRates(opt)
    assert future.plan(opt, 0, [1.0], [0.0]).skipped == {}
    for _ in range(3):
        plateau.step(1.0)
    assert "ReduceLROnPlateau depends on a metric" in future.plan(opt, 1, [1.0], [0.0]).skipped["scheduler"]
    by_hand, hand = torch.optim.SGD(nn.Linear(2, 1).parameters(), lr=0.1), None
    for step in range(2):
        future = FutureRates(by_hand) if hand is None else future
        by_hand.param_groups[0]["lr"] = 0.1 / (1 + step)
        hand = future.plan(by_hand, step, [1.0], [0.0])
    assert "no scheduler is known" in hand.skipped["scheduler"] and hand.lr.tolist() == [[0.05]]


def test_a_copy_that_is_wrong_three_times_is_not_believed_any_more():
    opt = torch.optim.SGD(nn.Linear(2, 1).parameters(), lr=0.1)
    future = FutureRates(opt, lrs.LambdaLR(opt, lambda t: 1.0))
    assert len(future.plan(opt, 0, [1.0], [0.0]).lr) == 102  # how far it looks where nobody knows the end
    for step, believed in ((1, True), (2, True), (3, False)):
        opt.param_groups[0]["lr"] *= 0.5
        plan = future.plan(opt, step, [1.0], [0.0])
        assert (plan.skipped == {}) is believed and plan.lr[0, 0] == opt.param_groups[0]["lr"]
    assert "gave other learning rates" in plan.skipped["scheduler"]


@pytest.mark.parametrize("look", [13, 14, 20, 23])
def test_an_epoch_that_has_begun_counts_up_to_its_end(look):
    """Halved every sixth step; looks in the middle of an epoch foresee the next turn and those after it."""
    opt = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)
    scheduler = lrs.ExponentialLR(opt, 0.5)
    future = FutureRates(opt, scheduler, total_steps=60)
    for step in range(look + 1):
        if step and step % 6 == 0:
            opt.step()
            scheduler.step()
        plan = future.plan(opt, step, (1.0,), (0.0,))
    assert plan.lr[:20, 0].tolist() == [0.5 ** ((look + i) // 6) for i in range(20)]


def test_unknown_length_has_no_end_and_a_schedule_that_dies_has_one():
    net = nn.Linear(2, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    assert FutureRates(opt).plan(opt, 0, [1.0], [0.0]).end is None
    lrs.LambdaLR(opt, lambda t: max(0.0, 1 - t / 20))
    found = find_scheduler(opt)
    assert found is None  # nobody holds it
    held = lrs.LambdaLR(opt, lambda t: max(0.0, 1 - t / 20))
    assert find_scheduler(opt) is held
    assert FutureRates(opt).plan(opt, 0, [1.0], [0.0]).end == 20


def test_the_copy_never_touches_the_users_scheduler_or_generators():
    net = nn.Linear(2, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    noisy = lrs.LambdaLR(opt, lambda t: float(1 + 0.1 * torch.rand(())))
    before, state = dict(noisy.state_dict()), torch.get_rng_state()
    FutureRates(opt, noisy, 100).plan(opt, 0, [1.0], [0.0])
    assert torch.equal(state, torch.get_rng_state()) and opt.param_groups[0]["lr"] == noisy.get_last_lr()[0]
    assert noisy.state_dict()["last_epoch"] == before["last_epoch"]


def test_fractions_of_a_step_and_steps_beyond_the_plan_count():
    plan = RatePlan(step=4, lr=np.array([[1.0], [3.0]]), gain=(1.0,), decay=(0.5,))
    assert plan.rates(4, 4.5)[0] == 0.5 and plan.rates(4, 8)[0] == 1 + 3 * 3 and plan.decays(5, 6)[0] == 1.5


def test_a_plan_says_by_which_step_so_much_rate_is_spent():
    plan = RatePlan(step=10, lr=np.array([[0.1], [0.3], [0.2]]), gain=(1.0,), decay=(0.0,))
    assert [plan.when(rate) for rate in (0.05, 0.1, 0.25, 0.6, 0.7)] == pytest.approx([10.5, 11, 11.5, 13, 13.5])
    dead = RatePlan(step=10, lr=np.array([[0.1], [0.0]]), gain=(1.0,), decay=(0.0,))
    assert dead.when(0.2) == math.inf


def test_a_step_of_the_scheduler_every_fourth_step_is_planned_four_times():
    opt = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)
    scheduler = lrs.ExponentialLR(opt, 0.5)
    future = FutureRates(opt, scheduler, total_steps=40)
    for step in range(9):
        if step and step % 4 == 0:
            opt.step()
            scheduler.step()
        plan = future.plan(opt, step, (1.0,), (0.0,))
    assert plan.lr[:12, 0].tolist() == [0.25] * 4 + [0.125] * 4 + [0.0625] * 4
