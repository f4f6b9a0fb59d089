"""Single numbers of the plateau laws, each against its definition: what a mutant of one of them would change."""

import contextlib
import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from netvitals import saddle
from netvitals.activations import classify
from netvitals.capture import Measurement
from netvitals.cli import main
from netvitals.runs import RunWriter
from netvitals.saddle.laws.escape import leading
from netvitals.saddle.measure.forecasting import forecast_live
from netvitals.saddle.measure.plateau import Snapshot


def seen(**more):
    given = {
        "step": 100, "signal": 0.01, "loss": 0.19, "resting": 0.2, "names": ("a", "b", "c"), "grads": (0.1, 0.1, 0.1),
        "signs": (1.0, 1.0, 1.0), "gains": (0.2, 0.2, 0.2), "scales": (0.1, 0.1, 0.1),
    }  # fmt: skip
    return Snapshot(**{**given, **more})


def test_momentum_shortens_the_wait_by_one_minus_momentum():
    plain, heavy = (forecast_live([seen()], lr=0.01, momentum=m) for m in (0.0, 0.9))
    assert heavy.step - 100 == pytest.approx(0.1 * (plain.step - 100))


def test_the_interval_is_that_of_its_spread():
    found = forecast_live([seen()], lr=0.01, level=0.8)
    left = found.step - found.at
    for end in (found.low, found.high):
        assert abs(math.log((end - found.at) / left)) == pytest.approx(1.28155 * 0.234, rel=1e-4)
    wider = forecast_live([seen()], lr=0.01, level=0.99)
    assert math.log((wider.high - wider.at) / left) == pytest.approx(2.57583 * 0.234, rel=1e-4)


def test_only_the_measured_loss_says_that_it_is_over():
    """A signal beyond its end with a loss that fell by 30 %: not over for a target of 50 %."""
    for loss in (0.14, 0.11, 0.101):
        assert forecast_live([seen(signal=0.2, loss=loss)], lr=0.01).known
    assert "over" in forecast_live([seen(signal=0.01, loss=0.099)], lr=0.01).reason


def test_the_gain_of_a_layer_is_over_its_smaller_side():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 24, bias=False), nn.Tanh(), nn.Linear(24, 3, bias=False))
    found = saddle.measure_plateau(net, "mse", (torch.randn(32, 6), torch.randn(32, 3)))
    norms = [float(m.weight.detach().norm()) for m in (net[0], net[2])]
    assert found.gains == pytest.approx([norms[0] / math.sqrt(6), norms[1] / math.sqrt(3)], rel=1e-5)


def test_the_leading_quadrature_ends_where_the_layer_asked_for_has_arrived():
    x0, k, level = np.array([0.12, 0.05, 0.3]), 2.0, 0.6
    for layer in range(3):
        x, t, h = x0.copy(), 0.0, 1e-4
        flow = lambda v: k * np.array([v[1] * v[2], v[0] * v[2], v[0] * v[1]])
        while x[layer] < level:
            x = x + h * flow(x + h / 2 * flow(x))
            t += h
        assert leading(x0, k, level, layer) == pytest.approx(t, rel=1e-3), layer


@pytest.mark.parametrize(("r", "prefactor"), [(2, 1.0), (3, 1.0), (4, 0.5)])
def test_the_prefactor_at_and_above_the_critical_depth(r, prefactor):
    neck = saddle.bottleneck([0.01] * r + [1.0], "tanh", width=4)
    assert neck.r == r and neck.prefactor == pytest.approx(prefactor / neck.k_eff)
    assert neck.exponent == -(r - 2)


def test_layers_that_are_not_small_by_themselves_are_no_bottleneck():
    """A gap of 2.5 between 0.6 and 1.5 is wide, but 0.6 is not small."""
    assert saddle.bottleneck([0.6, 0.6, 1.5]).r == 0
    assert saddle.bottleneck([0.4, 0.4, 1.5]).r == 2


@pytest.mark.parametrize("measure", ["he", "operator"])
def test_a_module_as_torch_makes_it_has_no_small_layers(measure):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 48))
    assert saddle.bottleneck(net, measure=measure).r == 0
    with torch.no_grad():
        net[2].weight.mul_(0.1)
        net[4].weight.mul_(0.1)
    neck = saddle.bottleneck(net, measure=measure)
    assert neck.layers == (1, 2) and neck.epsilon == pytest.approx(0.1 / math.sqrt(6), rel=0.1)  # ε in units of He


def test_every_parameter_counts_by_its_own_rate():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    rates = {"0.weight": 2.0, "0.bias": 3.0, "2.weight": 5.0}
    batch = (torch.randn(16, 3).double(), torch.randn(16, 2).double())
    (pair,) = saddle.imbalance(net, nn.functional.mse_loss, batch, rates=rates).pairs
    square = lambda p: float(p.detach().square().sum())
    expected = square(net[2].weight) / 5 - square(net[0].weight) / 2 - square(net[0].bias) / 3
    assert pair.delta == pytest.approx(expected, rel=1e-12) and abs(pair.defect) < 1e-10
    nn.functional.mse_loss(net(batch[0]), batch[1]).backward()
    gap = 5 * square(net[2].weight.grad) - 2 * square(net[0].weight.grad) - 3 * square(net[0].bias.grad)
    assert pair.grad_gap == pytest.approx(gap, rel=1e-12)


# ---------------------------------------------------------------- the command line


def cli(capsys, *arguments):
    with contextlib.suppress(SystemExit):
        main(list(arguments))
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def stored(tmp_path):
    t = np.arange(0, 400, 10)
    signal = (0.5 - t / 1000) ** -3 / 40000
    rows = [Measurement(int(s), "plateau", "model", "signal", float(g)) for s, g in zip(t, signal)]
    rows += [Measurement(int(s), "plateau", "model", "resting", 0.2) for s in t]
    last = {"escape": 470.0, "low": 450.0, "high": 500.0, "small_layers": 3.0, "drop": 0.5, "coverage": 0.99}
    rows += [Measurement(int(s), "plateau", "model", m, v) for m, v in last.items() for s in t]
    with RunWriter(tmp_path / "run") as writer:
        writer.write(rows, [])
    return tmp_path / "run", t, signal


def test_a_stored_forecast_is_told_with_its_drop(stored, capsys):
    found = cli(capsys, "saddle", "forecast", str(stored[0]), "--json")
    assert (found["step"], found["low"], found["high"], found["drop"], found["r"]) == (470, 450, 500, 0.5, 3)


def test_a_stored_interval_is_told_with_its_own_coverage(stored, capsys):
    with contextlib.suppress(SystemExit):
        main(["saddle", "forecast", str(stored[0])])
    assert "99 % interval 450 to 500" in capsys.readouterr().out


# ---------------------------------------------------------------- activations and drives


@pytest.mark.parametrize("q", [3, 5, 7, 9, 11])
def test_odd_powers_of_any_order_have_their_class(q):
    found = classify(lambda z: z + z**q)
    assert found.label == f"B{q}" and found.q == q and found.a_q == pytest.approx(1.0)


def test_a_function_that_is_linear_around_zero_is_still_outside():
    assert classify(lambda z: torch.where(z.abs() < 1, z, z**3)).label == "outside"


def test_the_drive_of_a_homogeneous_activation_keeps_its_signs():
    with pytest.raises(ValueError, match=r"escape rate beta h alpha\^\(L-1\) = -1"):
        saddle.drive(lambda z: -z, depth=3, width=64)
    assert saddle.drive(lambda z: -z, depth=2, width=64).k == pytest.approx(8.0)
    bent = lambda z: torch.where(z > 0, z, -0.5 * z)
    assert saddle.drive(bent, depth=3, width=16).k == pytest.approx(2.5)


@pytest.mark.parametrize("slopes", [(-0.5, 1.0), (0.2, 1.0), (0.7, -0.3)])
@pytest.mark.parametrize("depth", [2, 3, 4])
def test_the_drive_is_the_mean_over_gaussian_inputs(slopes, depth):
    left, right = slopes
    f = lambda z: torch.where(z > 0, right * z, left * z)
    g = torch.linspace(-9, 9, 200_001, dtype=torch.float64)
    w = torch.exp(-g * g / 2) / math.sqrt(2 * math.pi) * (g[1] - g[0])
    through = f(g)
    for _ in range(depth - 2):
        through = f(through)
    mean = float((w * f(g) * through).sum())
    if mean > 0:
        assert saddle.drive(f, depth, 9).k == pytest.approx(3 * mean, rel=1e-5)
    else:
        with pytest.raises(ValueError, match="does not leave the saddle at zero"):
            saddle.drive(f, depth, 9)


# ---------------------------------------------------------------- one learning rate for all layers


def test_a_plan_for_one_learning_rate_is_what_gradient_descent_takes():
    from netvitals.saddle.students.network import ansatz_stack, output

    depth, width, eps, lr = 4, 32, 0.15, 0.05
    task = saddle.teacher("tanh", 8)
    start = torch.tensor([[eps] * depth], dtype=torch.float64)
    w = [m.clone().requires_grad_(True) for m in ansatz_stack(start, width, task.directions[0].double())]
    x = torch.randn(512, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = torch.cat([x, -x])
    y = task.target(x)[:, 0]
    first, step = None, 0
    while step < 4000:
        loss = 0.5 * (output(w, x, torch.tanh)[..., 0] - y).square().mean()
        first = float(loss.detach()) if first is None else first
        if float(loss.detach()) < 0.5 * first:
            break
        for p, g in zip(w, torch.autograd.grad(loss, w)):
            p.data.sub_(lr * g)
        step += 1
    uniform, layerwise = (
        saddle.plan("tanh", depth, width, eps=eps, r=depth, lr=lr, rates=rates)[0].steps
        for rates in ("uniform", "layerwise")
    )
    assert uniform == pytest.approx(step, rel=0.35), (uniform, step)
    assert layerwise > 4 * step  # the theory's rates take the wait of the smallest one
    back = saddle.plan("tanh", depth, width, steps=uniform, r=depth, lr=lr, rates="uniform")[0]
    assert back.epsilon == pytest.approx(eps, rel=1e-6)


def test_the_command_line_plans_one_learning_rate(capsys):
    with contextlib.suppress(SystemExit):
        main(["saddle", "plan", "tanh", "4", "64", "--eps", "0.1", "--r", "4", "--uniform", "--json"])
    (found,) = json.loads(capsys.readouterr().out)
    assert found["steps"] == pytest.approx(saddle.plan("tanh", 4, 64, eps=0.1, r=4, rates="uniform")[0].steps)
    with pytest.raises(ValueError, match="cannot be combined with exact=True"):
        saddle.plan("tanh", 4, 64, eps=0.1, rates="uniform", exact=True)
