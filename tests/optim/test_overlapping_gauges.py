"""BalancedAdam where gauges share parameters and reach over groups, and what each of its rates does."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import Parameter
from torch.nn import functional as F

from netvitals import optim
from netvitals.optim.balance import Balance


def net(dtype=torch.float64):
    torch.manual_seed(0)
    layers = [nn.LayerNorm(6), nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.LeakyReLU(), nn.Linear(8, 5)]
    return nn.Sequential(*layers).to(dtype)


DATA = (torch.randn(48, 6, generator=torch.Generator().manual_seed(1)).double(), torch.arange(48) % 5)


def train(model, optimiser, steps):
    for _ in range(steps):
        optimiser.zero_grad()
        F.cross_entropy(model(DATA[0]), DATA[1]).backward()
        optimiser.step()
    return model(DATA[0]).detach().log_softmax(-1)


def rescaled(model, size=0.7):
    found = optim.find_gauges(model, "ce", DATA[0])
    gen = torch.Generator().manual_seed(2)
    for gauge in found:
        gauge.act(size * torch.randn(gauge.modes, generator=gen, dtype=torch.float64))
    return found


@pytest.mark.parametrize(
    "options", [{}, {"lr_radial": 6e-3}, {"vertical": "sgd"}, {"weight_decay": 0.1}, {"amsgrad": True}]
)
def test_a_rescaled_network_stays_the_rescaled_network(options):
    """Norm, two layers of units and the logit shift at once: every weight but the first belongs to two gauges."""
    outputs = []
    for moved in (False, True):
        model = net()
        gauges = rescaled(model, 0.7 if moved else 0.0).gauges
        assert len(gauges) == 5
        outputs.append(train(model, optim.BalancedAdam(model.parameters(), gauges, lr=3e-3, **options), 40))
    assert float((outputs[0] - outputs[1]).abs().max()) < 1e-5, options  # Adam's eps knows the scale
    adams = []
    for moved in (False, True):
        model = net()
        rescaled(model, 0.7 if moved else 0.0)
        adams.append(train(model, torch.optim.Adam(model.parameters(), lr=3e-3), 40))
    assert float((adams[0] - adams[1]).abs().max()) > 0.05


def test_on_a_balanced_network_a_step_is_adams():
    model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 5, bias=False)).double()
    (gauge,) = optim.find_gauges(model, "mse", DATA[0]).gauges
    with torch.no_grad():
        norms = gauge.norms()
        gauge.act((norms[1] / norms[0]).log() / math.sqrt(2))
    twin = copy.deepcopy(model)
    train(model, optim.BalancedAdam(model.parameters(), [gauge], lr=1e-3), 1)
    train(twin, torch.optim.Adam(twin.parameters(), lr=1e-3), 1)
    for p, q in zip(model.parameters(), twin.parameters()):
        assert float((p - q).abs().max()) < 1e-6


def place(gauges):
    balance = Balance(
        [g for g in gauges if isinstance(g, optim.Rescale)], {g.param: g for g in gauges if isinstance(g, optim.Shift)}
    )
    with torch.no_grad():
        balance.find()
    return torch.cat([p.flatten() for p in balance.potentials])


def test_frozen_means_that_the_place_on_the_orbit_does_not_move():
    ways = {}
    for name, make in (
        ("balanced", optim.BalancedAdam),
        ("adam", lambda params, _, lr: torch.optim.Adam(params, lr=lr)),
    ):
        model = net()
        gauges = rescaled(model).gauges
        before = place(gauges)
        train(model, make(model.parameters(), gauges, lr=3e-3), 60)
        ways[name] = float((place(gauges) - before).abs().max())
    assert ways["balanced"] < 0.05 < 0.3 < ways["adam"], ways  # what is left are the steps since the last putting back


def test_putting_back_leaves_the_function_as_it_is():
    model = net()
    gauges = [g for g in rescaled(model).gauges if isinstance(g, optim.Rescale)]
    balance = Balance(gauges, {})
    with torch.no_grad():
        balance.find()
        for g in gauges:
            g.act(0.04 * torch.ones(g.modes))
        before = model(DATA[0])
        balance.retract()
        assert float((model(DATA[0]) - before).abs().max()) < 1e-12


def test_a_split_into_decayed_and_other_parameters():
    model = net()
    gauges = rescaled(model).gauges
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0, "lr": 1e-3},
    ]
    optimiser = optim.BalancedAdam(groups, gauges, lr=3e-3)
    before = F.cross_entropy(model(DATA[0]), DATA[1]).item()
    train(model, optimiser, 30)
    assert F.cross_entropy(model(DATA[0]), DATA[1]).item() < before
    again = optim.BalancedAdam(groups, gauges, lr=3e-3)
    again.load_state_dict(copy.deepcopy(optimiser.state_dict()))
    assert [g["lr"] for g in again.param_groups] == [3e-3, 1e-3]


def test_a_gain_alone_in_its_block_can_change_sign():
    gain, reader = Parameter(torch.tensor([0.02, 1.0]).double()), Parameter(torch.randn(3, 2).double())
    optimiser = optim.BalancedAdam([gain, reader], [optim.ln_scale(gain, None, [reader])], lr=1e-2)
    for _ in range(30):
        gain.grad, reader.grad = torch.tensor([1.0, 0.0]).double(), torch.zeros(3, 2).double()
        optimiser.step()
    assert gain[0].item() < -1e-3 and torch.isfinite(reader).all()


def test_maximize_and_amsgrad_are_adams():
    for options in ({"maximize": True}, {"amsgrad": True}, {"foreach": True}):
        a, b = net(), net()
        train(a, optim.BalancedAdam(a.parameters(), lr=1e-3, **options), 10)
        train(b, torch.optim.Adam(b.parameters(), lr=1e-3, **options), 10)
        assert all(torch.allclose(p, q, atol=1e-9) for p, q in zip(a.parameters(), b.parameters())), options
    up = net()
    gauges = rescaled(up, 0.0).gauges
    before = F.cross_entropy(up(DATA[0]), DATA[1]).item()
    train(up, optim.BalancedAdam(up.parameters(), gauges, lr=1e-3, maximize=True), 10)
    assert F.cross_entropy(up(DATA[0]), DATA[1]).item() > before


def pair(**options):
    """One step of two blocks under a rescaling; the change of each log norm."""
    torch.manual_seed(3)
    w, v = Parameter(torch.randn(4, 3).double()), Parameter(torch.randn(2, 4).double())
    gauge = optim.relu_rescale(w, v)
    with torch.no_grad():
        gauge.act((gauge.norms()[1] / gauge.norms()[0]).log() / math.sqrt(2))
    optimiser = optim.BalancedAdam([w, v], [gauge], **options)
    before = gauge.norms().log()
    w.grad, v.grad = -w.detach().clone() * 3, v.detach().clone() * 2  # along the orbit, and a little radial
    optimiser.step()
    return (gauge.norms().log() - before).flatten()


def test_the_radial_rate_is_its_own():
    slow, fast = pair(lr=1e-3), pair(lr=1e-3, lr_radial=4e-3)
    assert float(fast.sum() / slow.sum()) == pytest.approx(4, rel=0.05)


def test_the_vertical_rate_is_its_own_and_bounded():
    ways = {rate: float(pair(lr=1e-3, vertical="sgd", lr_vertical=rate).diff()) for rate in (0.0, 1e-3, 2e-3)}
    assert abs(ways[0.0]) < 1e-3 < abs(ways[1e-3])
    assert ways[2e-3] / ways[1e-3] == pytest.approx(2, rel=0.1), ways
    far = pair(lr=1e-3, vertical="sgd", lr_vertical=1e3)
    # a log norm moves by a half along the orbit's unit vector at most, which is √½ between the two blocks
    assert abs(float(far.diff())) == pytest.approx(math.sqrt(0.5), rel=0.01)


def test_rates_follow_a_schedule():
    w = Parameter(torch.ones(2, 2))
    optimiser = optim.BalancedAdam([w], lr=1e-2, lr_radial=3e-2)
    torch.optim.lr_scheduler.StepLR(optimiser, 1, 0.1)
    assert optimiser.param_groups[0]["lr_radial_share"] == pytest.approx(3)


def test_a_bias_inside_a_chain_steps_like_adam_on_the_balanced_chain():
    """Its factor is the product of the potentials up to its layer, not of the norms themselves."""
    steps = {}
    for size in (1.0, 10.0):
        torch.manual_seed(4)
        ws = [Parameter(size * torch.randn(3, 3).double()) for _ in range(3)]
        bias = Parameter(torch.zeros(3).double())
        gauge = optim.chained_rescale(ws, [None, bias, None])
        optimiser = optim.BalancedAdam([*ws, bias], [gauge], lr=1e-3)
        for p in (*ws, bias):
            p.grad = torch.ones_like(p)
        logs = gauge.norms().log()
        optimiser.step()
        expected = 1e-3 * float((logs[:2] - logs.mean()).sum().exp())
        steps[size] = bias.abs().max().item()
        assert steps[size] == pytest.approx(expected, rel=1e-6)
    assert steps[10.0] == pytest.approx(steps[1.0], rel=1e-6)  # balanced alike, whatever the size of the whole
