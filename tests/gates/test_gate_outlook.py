"""The direction of gate density from a report, and the integrated decay of an optimizer before training."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import reader_models
from netvitals import gates


def normed(shift, activation=nn.ReLU):
    """One norm whose channels have a mean of ``shift``, and an activation behind it."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), activation(), nn.Linear(64, 3))
    net[1].bias.data.fill_(shift)
    return net


@pytest.mark.parametrize(
    ("shift", "activation", "way"),
    [(-0.3, nn.ReLU, "fall"), (0.3, nn.ReLU, "rise"), (0.0, nn.ReLU, "neither"), (-0.05, nn.GELU, "rise"),
     (-1.5, nn.SiLU, "fall"), (-0.05, nn.SiLU, "rise")],
)  # fmt: skip
def test_the_direction_is_that_of_a_model_whose_scales_are_shrunk(shift, activation, way):
    net, x = normed(shift, activation), torch.randn(2048, 20)
    report = gates.measure(net, x)
    found = report.forecast(0.1)
    assert found["2"].direction == way and found.theta == 0.1 and report.forecast().theta == 0.1
    net[1].weight.data.mul_(0.5)
    moved = gates.measure(net, x).density(0.1) - report.density(0.1)
    assert abs(moved) < 0.02 if way == "neither" else np.sign(moved) == {"rise": 1, "fall": -1}[way]
    assert moved == pytest.approx(found["2"].forecast.change, abs=0.02)
    assert found["2"].path[0] == pytest.approx(found["2"].forecast.now) and found.plot().svg()
    assert f"2: {way}, from" in str(found) and found.rows()[0]["direction"] == way


def test_decay_decides_how_far_it_moves():
    report = gates.measure(normed(-0.3), torch.randn(512, 20))
    assert report.forecast(decay=0.0024)["2"].direction == "neither"
    assert report.forecast(decay=2.44)["2"].direction == "fall"
    net = normed(-0.3)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    collapse = gates.will_collapse(sgd, None, 4880, model=net)
    found = report.forecast(decay=collapse)
    assert found.shrink == pytest.approx(math.exp(-2.44)) and found["2"].direction == "fall"
    adam = torch.optim.Adam(net.parameters(), weight_decay=5e-4)
    with pytest.raises(ValueError, match="Adam divides its coupled decay"):
        report.forecast(decay=gates.will_collapse(adam, None, 10, model=net))
    for decay in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="must be at least 0"):
            report.forecast(decay=decay)


def test_a_site_where_the_law_is_off_is_skipped():
    net = nn.Sequential(nn.BatchNorm1d(4), nn.ReLU())
    x = torch.zeros(400, 4)
    x[::20] = 19.0  # far from a Gaussian: 95 % are a little below the mean
    found = gates.measure(net, x).forecast()
    assert not found.sites and "the predicted density is 0.500, but 0.050 is measured" in found.skipped["1"]
    assert "no site meets the conditions" in str(found)


WITH_A_NORM_BEFORE = {"cnn": ["act1"]}  # elsewhere an activation follows a linear layer or an addition


@pytest.mark.parametrize("name", reader_models.NAMES)
def test_a_forecast_of_six_architectures_speaks_or_says_why_not(name):
    model, _, batch = reader_models.make(name)
    report = gates.measure(model, batch)
    found = report.forecast(decay=1.0)
    assert set(found.sites) | set(found.skipped) >= set(report.sites)
    assert set(found.sites) <= set(WITH_A_NORM_BEFORE.get(name, ()))
    for site in set(report.sites) - set(WITH_A_NORM_BEFORE.get(name, ())):
        assert "does not come directly from a norm" in found.skipped[site]
    assert str(found) and report.plot().svg()


@pytest.mark.parametrize("name", reader_models.NAMES)
def test_the_decay_of_six_architectures(name):
    model, _, _ = reader_models.make(name)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    found = gates.will_collapse(optimizer, None, 1000, model=model)
    assert found.total == pytest.approx(0.0 if name in ("mlp", "tied") else 0.1)
    without_norms = "no scale of a norm" in found.skipped.get("model", "")
    assert found.answer == "stays" and without_norms == (name in ("mlp", "tied"))
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items()) and not optimizer.state


def decayed(optimizer_of, schedule_of, steps, every=1):
    """What a weight with no gradient of its own keeps, in float64."""
    w = torch.ones(1, dtype=torch.float64, requires_grad=True)
    optimizer = optimizer_of([w])
    schedule = schedule_of(optimizer)
    foreseen = gates.will_collapse(optimizer, schedule, steps, every=every)
    for step in range(steps):
        w.grad = torch.zeros_like(w)
        optimizer.step()
        if schedule is not None and (step + 1) % every == 0:
            schedule.step()
    return foreseen, float(w.detach())


SCHEDULES = {
    "constant": (lambda o: None, 1),
    "cosine": (lambda o: lr_scheduler.CosineAnnealingLR(o, 4000), 1),
    "by epochs": (lambda o: lr_scheduler.StepLR(o, 3, 0.5), 400),
    "warm-up": (
        lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.LinearLR(o, 0.1, 1.0, 100), lr_scheduler.CosineAnnealingLR(o, 3900)], [100]
        ),
        1,
    ),
}
RULES = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.01, weight_decay=1e-2),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=1e-3),
    "Nesterov": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "dampened": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, dampening=0.5, weight_decay=1e-3),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=1e-2),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("rule", RULES)
def test_the_integrated_decay_is_what_a_weight_without_gradient_loses(rule, schedule):
    of, every = SCHEDULES[schedule]
    foreseen, kept = decayed(RULES[rule], of, 4000, every)
    assert foreseen.total == pytest.approx(-math.log(kept), rel=0.02)  # the sum is an integral, and momentum warms up
    assert foreseen.factor == pytest.approx(kept, rel=0.01)


def test_the_answers():
    p = lambda: [torch.ones(1, requires_grad=True)]
    of = lambda optimizer, steps=1000: gates.will_collapse(optimizer, None, steps)
    assert of(torch.optim.SGD(p(), lr=0.1, momentum=0.9, weight_decay=1e-3)).answer == "collapses"
    assert of(torch.optim.SGD(p(), lr=0.1, weight_decay=4e-3)).answer == "shrinks"
    assert of(torch.optim.AdamW(p(), lr=1e-3, weight_decay=5e-4)).answer == "stays"
    assert of(torch.optim.SGD(p(), lr=0.1)).answer == "stays"
    unknown = of(torch.optim.Adam(p(), lr=1e-3, weight_decay=1e-3))
    assert unknown.answer == "unknown" and "size of the gradients" in str(unknown) and math.isnan(unknown.total)
    assert of(torch.optim.Adam(p(), lr=1e-3)).answer == "stays"  # no decay, nothing to know


def test_exempt_norms_decide():
    net, rest = normed(0.0), []
    rest = [p for n, p in net.named_parameters() if not n.startswith("1.")]
    groups = [{"params": rest, "weight_decay": 0.5}, {"params": list(net[1].parameters()), "weight_decay": 0.0}]
    found = gates.will_collapse(torch.optim.AdamW(groups, lr=1e-2), None, 1000, model=net)
    assert found.answer == "stays" and found.total == 0.0
    assert [g.scales for g in found.groups] == [(), ("1.weight",)]
    assert gates.will_collapse(torch.optim.AdamW(groups, lr=1e-2), None, 1000).answer == "unknown"  # which decide?
    assert found.plot().svg() and "group 0" in str(found) and len(found.to_frame()) == 2


def test_bad_input_gets_a_sentence():
    sgd = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1, weight_decay=1e-3)
    with pytest.raises(ValueError, match="steps= is the number"):
        gates.will_collapse(sgd, None, 0)
    with pytest.raises(TypeError, match="must be a torch"):
        gates.will_collapse(nn.Linear(1, 1), None, 10)
    with pytest.raises(ValueError, match="cannot be computed in advance: ReduceLROnPlateau"):
        gates.will_collapse(sgd, lr_scheduler.ReduceLROnPlateau(sgd), 10)
    with pytest.raises(ValueError, match="needs one value for each of the 10 steps"):
        gates.will_collapse(sgd, [0.1, 0.2], 10)
    with pytest.raises(ValueError, match="the scheduler ends after"):
        gates.will_collapse(sgd, lr_scheduler.OneCycleLR(sgd, 0.1, total_steps=5), 10)
