"""The forecast: what it reads off a network, how well it tells, when it refuses, and its life inside watch."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import netvitals as nv
from netvitals import saddle
from netvitals.saddle.measure.forecasting import forecast_live
from netvitals.saddle.measure.plateau import measure_plateaus
from netvitals.saddle.students.network import output
from netvitals.saddle.students.task import antithetic_sample
from netvitals.vitals import PlateauForecast, StepAccounting


def small_net(sizes=(8, 24, 24, 24, 1), r=3, eps=0.1, act=nn.Tanh, seed=0, **layer):
    torch.manual_seed(seed)
    layers = []
    for i, (a, b) in enumerate(pairwise(sizes)):
        linear = nn.Linear(a, b, bias=False, **layer)
        nn.init.kaiming_normal_(linear.weight)
        with torch.no_grad():
            linear.weight.mul_(eps if i < r else 1.0)
        layers += [linear, act()]
    return nn.Sequential(*layers[:-1])


TASK = saddle.teacher("tanh", 8)
X = antithetic_sample(256, 8, seed=3).x.float()
PROBE = (X, TASK.target(X))


def half_mse(out, y):
    return 0.5 * F.mse_loss(out, y)


def test_snapshot_reads_the_signal_and_the_layers():
    net = small_net()
    latest = saddle.measure_plateau(net, half_mse, PROBE, step=5)
    out, y = net(X).detach(), PROBE[1]
    assert latest.signal == pytest.approx(float((out * y).mean()), rel=1e-4)
    assert latest.resting == pytest.approx(0.5 * float(y.square().mean()), rel=1e-5)
    assert len(latest.names) == 4 and latest.small == (0, 1, 2) and latest.step == 5
    grads = torch.autograd.grad(half_mse(net(X), y), list(net.parameters()))
    assert latest.grads == pytest.approx([float(g.norm()) for g in grads], rel=1e-4)
    assert latest.signs == pytest.approx([float(g.abs().sum()) for g in grads], rel=1e-4)
    assert latest.gains[1] == pytest.approx(float(net[2].weight.detach().norm()) / math.sqrt(24), rel=1e-5)


def test_signal_leaves_out_what_the_biases_say():
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    with torch.no_grad():
        net[2].bias.fill_(3.0)
        constant = float(net(torch.zeros(1, 8)))
    latest = saddle.measure_plateau(net, half_mse, PROBE)
    out, y = net(X).detach(), PROBE[1]
    assert latest.resting == pytest.approx(0.5 * float((constant - y).square().mean()), rel=1e-5)
    assert latest.signal == pytest.approx(float(((out - constant) * (y - constant)).mean()), rel=1e-4)


def test_snapshot_of_a_stack_equals_that_of_modules():
    stack = saddle.he_stack(3, 16, 8, small=2, eps=0.1, seeds=[0, 1])
    loss = lambda out, y: 0.5 * (out - y).square().sum(-1).mean(-1)
    for i, latest in enumerate(measure_plateaus(stack, loss, PROBE, f=torch.tanh)):
        net = small_net((8, 16, 16, 1), 2)
        with torch.no_grad():
            for layer, w in zip((net[0], net[2], net[4]), stack):
                layer.weight.copy_(w[i])
        one = saddle.measure_plateau(net, half_mse, PROBE)
        assert (latest.signal, latest.loss, latest.resting) == pytest.approx(
            (one.signal, one.loss, one.resting), rel=1e-4
        )
        assert latest.grads == pytest.approx(one.grads, rel=1e-3) and latest.gains == pytest.approx(one.gains, rel=1e-5)


def test_snapshot_leaves_the_model_alone():
    net = small_net().train()
    state = {k: v.clone() for k, v in net.state_dict().items()}
    rng = torch.get_rng_state()
    saddle.measure_plateau(net, half_mse, PROBE)
    assert all(torch.equal(v, state[k]) for k, v in net.state_dict().items())
    assert torch.equal(rng, torch.get_rng_state()) and all(p.grad is None for p in net.parameters())


@pytest.mark.parametrize(("rule", "lr"), [("sgd", 0.03), ("adam", 5e-5)])
def test_forecast_tells_the_escape_step_of_a_training(rule, lr):
    stack = saddle.he_stack(4, 24, 8, small=3, eps=0.1, seeds=[11, 12])
    for w in stack:
        w.requires_grad_(True)
    optimizer = (torch.optim.SGD if rule == "sgd" else torch.optim.Adam)(stack, lr=lr)
    loss = lambda out, y: 0.5 * (out - y).square().sum(-1).mean(-1)
    histories, generator = [[], []], torch.Generator().manual_seed(0)
    for step in range(3000):
        if step % 10 == 0:
            for history, latest in zip(histories, measure_plateaus(stack, loss, PROBE, f=torch.tanh, step=step)):
                history.append(latest)
            if all(h[-1].loss < 0.5 * h[0].loss for h in histories):
                break
        x, y = TASK.batch(128, generator)
        optimizer.zero_grad()
        loss(output(stack, x, torch.tanh), y).sum().backward()
        optimizer.step()
    for history in histories:
        true = next(s.step for s in history if s.loss < 0.5 * history[0].loss)
        assert true > 150
        for share, tolerance in ((0.1, 0.45), (0.5, 0.2), (0.75, 0.12)):
            seen = [s for s in history if s.step <= share * true]
            told_text = forecast_live(seen, lr=lr, rule=rule)
            assert told_text.known and told_text.r == 3
            assert told_text.step == pytest.approx(true, rel=tolerance), (rule, share, told_text)
        over = forecast_live(history, lr=lr, rule=rule)
        assert not over.known and "over" in over.reason and "no forecast" in str(over)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)), "removes the scale"),
        (lambda: nn.Linear(8, 1), "no chain"),
        (lambda: Residual(), "residual or branching"),
    ],
)
def test_networks_that_are_no_chain_get_no_forecast(make, reason):
    latest = saddle.measure_plateau(make(), half_mse, PROBE)
    assert reason in latest.reason
    told_text = forecast_live([latest], lr=0.1)
    assert not told_text.known and reason in told_text.reason


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x):
        h = torch.tanh(self.a(x))
        return self.d(h + self.c(torch.tanh(self.b(h))))


def test_no_small_layer_no_forecast_and_bad_arguments():
    latest = saddle.measure_plateau(small_net(eps=1.0), half_mse, PROBE)
    assert "no layer is small" in forecast_live([latest], lr=0.1).reason
    assert forecast_live([latest], lr=0.1, r=2).known
    with pytest.raises(ValueError, match="at least one measurement"):
        forecast_live([], lr=0.1)
    with pytest.raises(ValueError, match="rule= must be"):
        forecast_live([latest], lr=0.1, rule="muon")
    with pytest.raises(ValueError, match="positive"):
        forecast_live([latest], lr=-0.1)


def test_rules_are_read_off_optimizers():
    p = [nn.Parameter(torch.ones(2))]
    assert saddle.optimizer_rule(torch.optim.SGD(p, lr=0.1, momentum=0.9))[0] == {
        "lr": 0.1,
        "rule": "sgd",
        "momentum": 0.9,
    }
    assert saddle.optimizer_rule(torch.optim.AdamW(p, lr=0.1))[0]["rule"] == "adam"
    assert "no law" in saddle.optimizer_rule(torch.optim.Adagrad(p))[1]
    two = torch.optim.SGD([{"params": p, "lr": 0.1}, {"params": [nn.Parameter(torch.ones(1))], "lr": 0.2}])
    assert "several learning rates" in saddle.optimizer_rule(two)[1]


def test_convolutional_chain_gets_a_forecast():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 6, 3), nn.Tanh(), nn.Conv2d(6, 6, 3), nn.Tanh(), nn.Flatten(), nn.Linear(24, 3))
    with torch.no_grad():
        for layer in (net[0], net[2], net[5]):
            nn.init.kaiming_normal_(layer.weight)
            layer.weight.mul_(0.05)
    latest = saddle.measure_plateau(net, F.cross_entropy, (torch.randn(64, 1, 6, 6), torch.randint(0, 3, (64,))))
    assert latest.small == (0, 1, 2)
    assert forecast_live([latest], lr=0.1).known


def test_forecast_lives_in_watch_and_leaves_training_as_it_was(tmp_path):
    def run(watched):
        net = small_net(seed=4)
        opt = torch.optim.SGD(net.parameters(), lr=0.05)
        generator = torch.Generator().manual_seed(1)
        vital = PlateauForecast(net, half_mse, PROBE, optimizer=opt)
        watch = (
            nv.watch(net, optimizer=opt, run=tmp_path / "run", every=10, vitals=[vital, StepAccounting()])
            if watched
            else None
        )
        for _ in range(60):
            x, y = TASK.batch(64, generator)
            loss = half_mse(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if watch is not None:
                watch.step(loss)
        if watch is not None:
            watch.close()
        return net, vital

    (plain, _), (seen, vital) = run(False), run(True)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), seen.parameters()))
    assert vital.latest is not None and vital.latest.known and vital.latest.step > 60
    frame = nv.open_run(tmp_path / "run").frame(vital="plateau", metric="escape")
    assert frame.height == 6 and frame["value"][-1] == pytest.approx(vital.latest.step)
    gaps = nv.open_run(tmp_path / "run").frame(vital="accounting", metric="gap")["value"].to_numpy()
    changes = nv.open_run(tmp_path / "run").frame(vital="accounting", metric="change")["value"].to_numpy()
    assert np.abs(gaps).max() <= 1e-2 * np.abs(changes).max()  # float32 parameters
