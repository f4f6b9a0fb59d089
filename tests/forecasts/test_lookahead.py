"""A look-ahead is the training that would come, on a copy: the same numbers, no trace, or a sentence why not."""

import copy
import math
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from netvitals.forecasts import look_ahead
from netvitals.forecasts.divergence import Danger
from netvitals.forecasts.lookahead import _endless

RULES = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.01),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01), weight_decay=0.1),
}
RATES = 0.01 * 1.03 ** np.arange(30)


def network(dtype=torch.float64):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 12), nn.BatchNorm1d(12), nn.Tanh(), nn.Linear(12, 2)).to(dtype)
    x = torch.randn(48, 5, dtype=dtype)
    return net, [(x[i::3], x[i::3, :2].roll(1, 1)) for i in range(3)]


def step(net, opt, batch, rate=None, clip=None):
    for group in opt.param_groups:
        if rate is not None and isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        elif rate is not None:
            group["lr"] = rate
    loss = nn.functional.mse_loss(net(batch[0]), batch[1])
    opt.zero_grad()
    loss.backward()
    if clip is not None:
        nn.utils.clip_grad_norm_(net.parameters(), clip)
    opt.step()
    return float(loss.detach())


@pytest.mark.parametrize("rule", RULES)
def test_it_is_what_training_on_gives(rule):
    net, batches = network()
    opt = RULES[rule](net.parameters())
    for batch in batches * 3:  # so that the optimizer has a state
        step(net, opt, batch)
    found = look_ahead(net, "mse", batches, optimizer=opt, rates=RATES, steps=30, seed=4)
    order = _endless(batches, 4)
    truth = [step(net, opt, next(order), rate) for rate in RATES]
    np.testing.assert_allclose(found.losses[0], truth, rtol=1e-12)
    assert found.lost is None and found.cost == 30 and not found.refused
    assert not np.allclose(truth, look_ahead(net, "mse", batches, optimizer=opt, steps=30).losses[0], rtol=1e-3)


def test_gradients_are_clipped_as_the_loop_clips_them():
    net, batches = network()
    opt = RULES["momentum"](net.parameters())
    found = [look_ahead(net, "mse", batches[:1], optimizer=opt, steps=9, clip=c).losses[0] for c in (None, 0.05)]
    truth = [step(net, opt, batches[0], clip=0.05) for _ in range(9)]
    np.testing.assert_allclose(found[1], truth, rtol=1e-12)
    assert abs(found[0][-1] - truth[-1]) > 0.01


def test_groups_have_rates_of_their_own_and_the_last_one_holds():
    net, batches = network()
    opt = torch.optim.SGD([{"params": net[0].parameters()}, {"params": net[3].parameters(), "lr": 0.2}], lr=0.1)
    found = look_ahead(net, "mse", batches[:1], optimizer=opt, rates=[[0.0, 0.1], [0.0, 0.0]], steps=4)
    assert found.losses[0][0] > found.losses[0][1] == found.losses[0][2] == found.losses[0][3]


class Watched(nn.Module):
    """Counts its calls, draws from three generators and holds a list."""

    def __init__(self):
        super().__init__()
        self.inner, self.calls, self.seen = nn.Linear(5, 2), 0, []

    def forward(self, x):
        self.calls += 1
        self.seen.append(float(x.mean()))
        return self.inner(nn.functional.dropout(x, 0.5)) * (1 + 0.01 * random.random() + 0.01 * np.random.rand())


def test_nothing_is_disturbed_not_even_hooks_of_others():
    torch.manual_seed(0)
    net = nn.Sequential(Watched(), nn.BatchNorm1d(2))
    opt = torch.optim.Adam(net.parameters(), lr=0.1)
    heard, batch = [], (torch.randn(16, 5), torch.randn(16, 2))
    step(net, opt, batch)
    handles = [
        net[0].register_forward_hook(lambda *_: heard.append("module")),
        register_optimizer_step_post_hook(lambda *_: heard.append("any optimizer")),
        opt.register_step_post_hook(lambda *_: heard.append("this optimizer")),
        net[0].inner.weight.register_hook(lambda g: heard.append("gradient")),
    ]
    everything = lambda: (
        copy.deepcopy(
            (net.state_dict(), opt.state_dict(), [p.grad for p in net.parameters()], net[0].calls, net[0].seen)
        )
        + (torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate())
    )
    before, grads = everything(), [p.grad for p in net.parameters()]
    found = look_ahead(net, "mse", [batch], optimizer=opt, steps=20)
    assert found.cost == 20 and not heard
    torch.testing.assert_close(everything()[:3], before[:3], rtol=0, atol=0)
    assert str(everything()[3:]) == str(before[3:]) and all(p.grad is g for p, g in zip(net.parameters(), grads))
    assert found == look_ahead(net, "mse", [batch], optimizer=opt, steps=20)
    for handle in handles:
        handle.remove()


def test_it_is_lost_where_the_run_would_be():
    """One weight under a parabola: at a rate of 2.1 over its curvature the loss grows by 1.21 a step."""
    net = nn.Linear(1, 1, bias=False).double()
    nn.init.ones_(net.weight)
    one, zero = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
    opt = torch.optim.SGD(net.parameters(), lr=1.05)
    past = [math.exp(-t / 15) + 1 for t in range(60)]
    found = look_ahead(net, "mse", [(one, zero)], optimizer=opt, history=past, step=60)
    judge = Danger()
    for t, loss in enumerate([*past, *(1.21**k for k in range(100))]):
        judge.add(t, loss)
    assert found.lost_at == (judge.lost,) and found.lost == judge.lost and judge.lost is not None
    assert (
        found.cost == judge.lost - 59 < 100 and str(found) == f"look-ahead from step 60: diverged at step {judge.lost}"
    )
    np.testing.assert_allclose(found.losses[0], 1.21 ** np.arange(found.cost), rtol=1e-12)
    follower = Danger()
    for t, loss in enumerate(past):
        follower.add(t, loss)
    same = look_ahead(net, "mse", [(one, zero)], optimizer=opt, history=follower, step=60)
    assert same.lost == judge.lost and follower.lost is None


def test_every_order_must_be_lost_and_the_first_that_is_not_is_the_last():
    net, batches = network()
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    calm = look_ahead(net, "mse", batches, optimizer=opt, steps=12, orders=3)
    assert calm.lost_at == (None,) and len(calm.losses) == 1 and "no divergence within 12 steps" in str(calm)
    wild = look_ahead(net, "mse", batches, optimizer=opt, rates=[50.0], steps=60, orders=3, step=7)
    assert len(wild.losses) == 3 and wild.losses[0] != wild.losses[1]
    assert wild.lost == round(sum(wild.lost_at) / 3) and "in each of 3 orders" in str(wild)
    assert wild.conditions == {"looked ahead": "3 times with SGD on 3 batches", "learning rate": "50"}


def test_a_loss_that_is_not_finite_is_lost():
    net, batches = network(torch.float32)
    opt = torch.optim.SGD(net.parameters(), lr=1e30)
    assert look_ahead(net, "mse", batches, optimizer=opt, steps=30, history=[1.0] * 20, step=20).lost in range(20, 27)


class Bound(nn.Module):
    """Its forward uses the original, whoever calls it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 2)
        self.run = lambda x: self.layer(x)

    def forward(self, x):
        return self.run(x)


def test_what_cannot_be_copied_is_refused_in_a_sentence():
    _, batches = network(torch.float32)
    net = nn.Linear(5, 2)
    needs_closure = look_ahead(net, "mse", batches, optimizer=torch.optim.LBFGS(net.parameters()))
    assert "LBFGS could not be copied and trained on" in needs_closure.refused and needs_closure.lost is None
    assert str(needs_closure).startswith("no look-ahead at step 0: ")
    bound = Bound()
    weight = bound.layer.weight.clone()
    found = look_ahead(bound, "mse", batches, optimizer=torch.optim.SGD(bound.parameters(), lr=0.1))
    assert "still uses the original's parameters" in found.refused
    assert torch.equal(bound.layer.weight, weight) and bound.layer.weight.grad is None
    held = nn.Linear(5, 2)
    held.kept = held.weight * 2  # no leaf of the graph
    assert look_ahead(held, "mse", batches, optimizer=torch.optim.SGD(held.parameters(), lr=0.1)).refused


def test_wrong_arguments_get_a_sentence():
    net, batches = network()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="needs at least one batch, one step and one order"):
        look_ahead(net, "mse", [], optimizer=opt)
    with pytest.raises(ValueError, match="a row of 1 numbers for each step"):
        look_ahead(net, "mse", batches, optimizer=opt, rates=[[0.1, 0.2]])
    with pytest.raises(TypeError, match=r"must be a torch\.optim\.Optimizer"):
        look_ahead(net, "mse", batches, optimizer=0.1)
