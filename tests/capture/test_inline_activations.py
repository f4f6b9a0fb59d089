"""Every activation is seen, however it is written, and measured as the one function that it is."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv
from netvitals import gates


class OwnReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h):
        ctx.save_for_backward(h)
        return h.clamp(min=0)

    @staticmethod
    def backward(ctx, g):
        (h,) = ctx.saved_tensors
        return g * (h > 0)


def new_gelu(h):
    return 0.5 * h * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (h + 0.044715 * torch.pow(h, 3.0))))


class Net(nn.Module):
    """A layer, a function that is written out, a layer."""

    def __init__(self, act, width=64):
        super().__init__()
        self.first, self.second = nn.Linear(20, width), nn.Linear(width, 3)
        self.act = act

    def forward(self, x):
        return self.second(self.act(self.first(x)))


class Swish(nn.Module):
    def __init__(self, beta):
        super().__init__()
        self.beta = nn.Parameter(torch.tensor(beta))

    def forward(self, h):
        return h * torch.sigmoid(self.beta * h)


def net(act, width=64):
    torch.manual_seed(0)
    return Net(act, width)


def batch(n=400):
    return torch.randn(n, 20, generator=torch.Generator().manual_seed(1))


def truth(model, f, theta):
    """Gate density of f at the output of the first layer, in double precision."""
    h = model.first(batch()).detach().double().requires_grad_()
    (slope,) = torch.autograd.grad(f(h).sum(), h)
    return float((slope.abs() > theta).double().mean())


def watched(model, steps=4, thetas=(0.01, 0.1), **options):
    """Densities by site and step; the model does not move."""
    from netvitals.vitals import Gates

    with nv.watch(model, every=1, vitals=[Gates(thetas=thetas)], **options) as watching:
        for _ in range(steps):
            model(batch()).square().mean().backward()
            watching.step()
    out = {}
    for r in watching.measurements:
        if r.metric.startswith("density@") and not r.site.startswith("model"):
            out.setdefault((r.site, float(r.metric.split("@")[1])), []).append(r.value)
    return out, watching


# how it is written, the name of its site, what it is called, the same in plain functions
INLINE = [
    (lambda h: torch.where(h > 0, h, 0.0), "relu()", "relu", F.relu),
    (lambda h: torch.where(h > 0, h, torch.zeros_like(h)), "relu()", "relu", F.relu),
    (lambda h: torch.maximum(h, torch.zeros(1)), "relu()", "relu", F.relu),
    (lambda h: h * (h > 0), "relu()", "relu", F.relu),
    (lambda h: h.clamp(0, 6), "relu6()", "relu6", F.relu6),
    (lambda h: torch.ops.aten.relu(h), "relu()", "relu", F.relu),
    (lambda h: h.masked_fill(h < 0, 0.0), "relu()", "relu", F.relu),
    (OwnReLU.apply, "relu()", "relu", F.relu),
    (torch.abs, "abs()", "abs", torch.abs),
    (lambda h: h**2, "pow()", "pow", torch.square),
    (lambda h: 0.5 * h * (1 + torch.erf(h / math.sqrt(2))), "gelu()", "gelu", F.gelu),
    (lambda h: h * torch.sigmoid(h), "silu()", "silu", F.silu),
    (new_gelu, "gelu()", "gelu", lambda h: F.gelu(h, approximate="tanh")),
    (lambda h: F.relu(h).square(), "relu2()", "relu2", lambda h: F.relu(h).square()),
    (lambda h: F.leaky_relu(h, 0.2) * 3 + 1, "leaky_relu()", "leaky_relu", lambda h: F.leaky_relu(h, 0.2)),
    (lambda h: torch.exp(-(h**2)), "exp()", "pow → neg → exp", lambda h: torch.exp(-(h**2))),
]


@pytest.mark.parametrize(("act", "name", "op", "plain"), INLINE)
def test_an_inline_activation_is_one_site_with_its_true_density_on_every_step(act, name, op, plain):
    model = net(act)
    seen, watching = watched(model)
    assert {site for site, _ in seen} == {name}
    assert {s.name: s.op for s in watching.sites if s.kind == "activation"} == {name: op}
    for theta in (0.01, 0.1):
        assert seen[name, theta] == pytest.approx([truth(model, plain, theta)] * 4, abs=1e-6)


@pytest.mark.parametrize(("act", "name", "op", "plain"), INLINE)
def test_its_gradient_is_that_of_its_output(act, name, op, plain):
    from netvitals.capture import Vital

    class Push(Vital):
        vital, name = "push", "push"
        gradients_of = ("activation",)

        def gradient(self, recorder, view, g):
            recorder.write(view.site, ("g",), g.double().square().sum())

    model = net(act)
    with nv.watch(model, every=1, vitals=[Push()]) as watching:
        for _ in range(3):
            model(batch()).square().mean().backward()
            watching.step()
    h = model.first(batch())
    a = plain(h).detach().requires_grad_()
    scale, shift = (3, 1) if op == "leaky_relu" else (1, 0)
    (g,) = torch.autograd.grad(model.second(a * scale + shift).square().mean(), a)
    expected = float(g.double().square().sum())
    assert [r.value for r in watching.measurements] == pytest.approx([expected] * 3, rel=1e-4)


def test_dead_units_are_found_however_a_relu6_is_written():
    def dying(act):
        model = net(act)
        with torch.no_grad():
            model.first.bias[:58] = -50.0
        with nv.watch(model, every=1) as watching:
            for _ in range(6):
                model(batch()).square().mean().backward()
                watching.step()
        (finding,) = [f for f in watching.findings() if "dead" in f.what.lower()]
        return finding

    known, inline = dying(F.relu6), dying(lambda h: h.clamp(0, 6))
    assert (known.severity, known.what) == (inline.severity, inline.what)
    assert inline.severity == "critical" and "91 %" in inline.what


@pytest.mark.parametrize("beta", [0.5, 1.0, 1.7])
def test_a_swish_with_a_learned_beta_is_measured_with_the_beta_of_today(beta):
    model = net(Swish(beta))
    seen, watching = watched(model, steps=2)
    assert set(seen) == {("act", 0.01), ("act", 0.1)} and "act" not in watching.activations
    assert seen["act", 0.1] == pytest.approx([truth(model, lambda h: h * torch.sigmoid(beta * h), 0.1)] * 2, abs=1e-6)
    with nv.watch(model, every=1, vitals=["gates"]) as watching:
        expected = []
        for _ in range(4):
            expected.append(truth(model, lambda h: h * torch.sigmoid(model.act.beta.detach().double() * h), 0.1))
            model(batch()).square().mean().backward()
            watching.step()
            with torch.no_grad():
                model.act.beta += 0.7
    found = [r.value for r in watching.measurements if (r.site, r.metric) == ("act", "density@0.1")]
    assert found == pytest.approx(expected, abs=1e-6) and len(set(found)) > 1


def test_a_number_that_changes_from_call_to_call_is_that_of_today():
    slopes = iter([0.05, 0.2, 0.05, 0.3])
    model = net(lambda h: F.leaky_relu(h, next(slopes)))
    seen, _ = watched(model)
    half = truth(model, F.relu, 0.1)
    assert seen["leaky_relu()", 0.1] == pytest.approx([half, 1.0, half, 1.0])


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_half_precision_does_not_open_the_gates_of_a_leaky_relu(kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.LeakyReLU(), nn.Linear(64, 3)).to(kind)
    x = batch().to(kind)
    expected = float((model[0](x) > 0).double().mean())
    assert 0.4 < expected < 0.6
    assert gates.measure(model, x, thetas=0.01).density(0.01) == pytest.approx(expected, abs=1e-6)


def test_autocast_does_not_open_them_either():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.LeakyReLU(), nn.Linear(64, 3))
    with nv.watch(model, every=1, vitals=["gates"]) as watching:
        for _ in range(2):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                h = model[0](batch())
                model(batch()).square().mean().backward()
            watching.step()
    found = [r.value for r in watching.measurements if (r.site, r.metric) == ("1", "density@0.01")]
    assert found == pytest.approx([float((h > 0).double().mean())] * 2, abs=1e-6)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
def test_a_learned_slope_in_half_precision(kind):
    model = nn.Sequential(nn.Linear(20, 64), nn.PReLU(init=0.01)).to(kind)
    x = batch().to(kind)
    expected = float((model[0](x) > 0).double().mean())
    assert gates.measure(model, x, thetas=0.02).density(0.02) == pytest.approx(expected, abs=1e-6)


def test_a_model_that_takes_another_way_is_traced_anew():
    class Ways(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.step = nn.Linear(20, 64), nn.Linear(64, 3), 0

        def forward(self, x):
            self.step += 1
            h = self.first(x)
            return self.second(h.clamp(0, 6) if self.step < 3 else h * torch.sigmoid(h))

    torch.manual_seed(0)
    model = Ways()
    seen, watching = watched(model, steps=6)
    silu = truth(model, F.silu, 0.1)
    assert seen["relu6()", 0.1] == pytest.approx([truth(model, F.relu6, 0.1)] * 2)
    assert seen["silu()", 0.1] == pytest.approx([silu] * 3)  # the third step was a surprise
    assert "differs from step to step" in watching.skipped["relu6()"]


def test_an_operation_in_place_right_after_is_not_taken_for_the_activation():
    def act(h):
        a = h * torch.sigmoid(h)
        out = 1.0 * a
        with torch.no_grad():
            a.detach().zero_()
        return out

    model = net(act)
    seen, _ = watched(model)
    assert seen["silu()", 0.1] == pytest.approx([truth(model, F.silu, 0.1)] * 4, abs=1e-6)


def test_an_activation_in_place_keeps_its_input():
    model = net(lambda h: h.clamp_(0, 6))
    seen, _ = watched(model)
    assert seen["relu6()", 0.1] == pytest.approx([truth(model, F.relu6, 0.1)] * 4, abs=1e-6)


class Rounded(torch.autograd.Function):
    """A step whose gradient goes straight through."""

    @staticmethod
    def forward(ctx, h):
        return h.round()

    @staticmethod
    def backward(ctx, g):
        return g


def test_a_step_with_a_gradient_of_its_own_is_told_and_no_dead_unit():
    _, watching = watched(net(Rounded.apply))
    (site,) = [s for s in watching.sites if s.kind == "activation"]
    assert site.role == "other" and "custom backward" in watching.skipped[f"{site.name} (backward)"]
    assert not [f for f in watching.findings() if "dead" in f.what.lower()]


class Gated(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.gate, self.up, self.down, self.way = nn.Linear(20, 32), nn.Linear(20, 32), nn.Linear(32, 3), way

    def forward(self, x):
        return self.down(self.way(self.gate(x), self.up(x)))


@pytest.mark.parametrize(
    ("way", "gate", "activation"),
    [
        (lambda g, u: F.silu(g) * u, F.silu, "silu()"),
        (lambda g, u: u.mul_(torch.sigmoid(g)), torch.sigmoid, "sigmoid()"),
        (lambda g, u: g * u, lambda g: g, None),
        (lambda g, u: F.glu(torch.cat([u, g], -1)), torch.sigmoid, None),
    ],
)
def test_a_product_of_two_branches_is_measured_by_both_factors(way, gate, activation):
    torch.manual_seed(0)
    model = Gated(way)
    with nv.watch(model, every=1, vitals=["gates"]) as watching:
        for _ in range(3):
            model(batch()).square().mean().backward()
            watching.step()
    (site,) = [s.name for s in watching.sites if s.kind == "product"]
    g, u = gate(model.gate(batch())), model.up(batch())
    shares = sorted([float((g.abs() > 0.1).double().mean()), float((u.abs() > 0.1).double().mean())])
    for step in range(3):
        read = {r.metric: r.value for r in watching.measurements if (r.site, r.step) == (site, step)}
        assert sorted([read["first@0.1"], read["second@0.1"]]) == pytest.approx(shares, abs=1e-6)
    assert [s.name for s in watching.sites if s.kind == "activation"] == ([activation] if activation else [])


def test_a_loop_over_time_steps_does_not_flood():
    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.Linear(20, 20), nn.Linear(20, 2)

        def forward(self, x):
            for _ in range(40):
                x = torch.tanh(self.cell(x))
            return self.head(x)

    model = Loop()
    _, watching = watched(model, steps=2)
    assert len([s for s in watching.sites if s.kind == "activation"]) == 16
    assert "again and again" in watching.skipped["tanh() (loop)"]


def test_where_the_anatomy_fails_activations_are_seen_all_the_same(monkeypatch):
    from netvitals.capture.engine import traced_pass as survey

    def fails(*_):
        raise ArithmeticError("on purpose")

    monkeypatch.setattr(survey, "described", fails)
    model = net(lambda h: h * torch.sigmoid(h))
    seen, watching = watched(model)
    assert seen["silu()", 0.1] == pytest.approx([truth(model, F.silu, 0.1)] * 4, abs=1e-6)
    assert "on purpose" in watching.skipped["anatomy"]
