"""Like activations shown together give what each gives alone, and what cannot be stacked is not."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv
from netvitals.capture import ActivationStack, ActivationView, Vital


class Together(Vital):
    """Sums by site; remembers how many sites came in each call."""

    name = "together"
    takes_stacks = True

    def __init__(self, fails_at=None):
        self.calls, self.gradient_calls, self.fails_at = [], [], fails_at

    def activation(self, recorder, view):
        stack = view.stack
        names = [s.name for s in stack.sites]
        self.calls.append(names)
        if self.fails_at in names:
            recorder.write(stack.sites[0], ("half",), stack.x.sum())
            raise ArithmeticError("not this one")
        numbers = [stack.x.flatten(1).sum(1), stack.a.flatten(1).sum(1), stack.derivative.flatten(1).sum(1)]
        recorder.write(stack.sites, ("x", "a", "slope"), torch.stack(numbers, dim=1))

    def gradient(self, recorder, view, g):
        if isinstance(view, ActivationView | ActivationStack):
            g = g if isinstance(view, ActivationStack) else g[None]
            self.gradient_calls.append([s.name for s in view.stack.sites])
            recorder.write(view.stack.sites, ("g",), g.flatten(1).sum(1))


def run(model, x, vital, steps=3):
    with nv.watch(model, every=1, vitals=[vital]) as watching:
        for _ in range(steps):
            model(x).square().mean().backward()
            watching.step()
    return watching


def by_step(watching):
    out = {}
    for r in watching.readings:
        out.setdefault(r.step, {})[r.site, r.metric] = r.value
    return out


def mlp(act, depth=4):
    return nn.Sequential(*[m for _ in range(depth) for m in (nn.Linear(6, 6), act())])


@pytest.mark.parametrize("act", [nn.ReLU, nn.GELU, nn.Tanh, lambda: nn.LeakyReLU(0.3)])
def test_alone_on_the_first_look_together_on_the_next_with_the_same_numbers(act):
    model, vital = mlp(act), Together()
    steps = by_step(run(model, torch.randn(10, 6), vital))
    assert vital.calls == [["1"], ["3"], ["5"], ["7"], ["1", "3", "5", "7"], ["1", "3", "5", "7"]]
    assert [sorted(c) for c in vital.gradient_calls[-2:]] == [["1", "3", "5", "7"]] * 2
    for later in (1, 2):
        assert steps[later] == pytest.approx(steps[0], rel=1e-5, abs=1e-5)


def test_images_are_stacked_by_shape():
    model = nn.Sequential(
        nn.Conv2d(2, 3, 1), nn.SiLU(), nn.Conv2d(3, 3, 1), nn.SiLU(), nn.Flatten(), nn.Linear(48, 3), nn.SiLU()
    )
    vital = Together()
    steps = by_step(run(model, torch.randn(5, 2, 4, 4), vital, steps=2))
    assert vital.calls[3:] == [["1", "3"], ["6"]]
    assert steps[1] == pytest.approx(steps[0], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(
    "acts",
    [
        [nn.ReLU(), nn.GELU()],
        [nn.LeakyReLU(0.1), nn.LeakyReLU(0.2)],
        [nn.PReLU(), nn.PReLU()],
        [nn.GELU(), nn.GELU(approximate="tanh")],
    ],
)
def test_different_functions_are_not_stacked(acts):
    vital = Together()
    run(nn.Sequential(nn.Linear(4, 4), acts[0], nn.Linear(4, 4), acts[1]), torch.randn(5, 4), vital, steps=2)
    assert all(len(call) == 1 for call in vital.calls)


def test_functional_calls_are_stacked_by_their_options():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(5))

        def forward(self, x):
            for layer, f in zip(
                self.layers, (F.silu, F.silu, lambda t: F.elu(t, 0.5), lambda t: F.elu(t, 0.7), lambda t: F.elu(t, 0.5))
            ):
                x = f(layer(x))
            return x

    vital = Together()
    run(Net(), torch.randn(5, 4), vital, steps=2)
    assert sorted(vital.calls[5:]) == [["elu()", "elu()#3"], ["elu()#2"], ["silu()", "silu()#2"]]


def test_outputs_that_are_overwritten_are_seen_as_they_were():
    class Overwriting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.act = nn.ModuleList(nn.Linear(4, 4) for _ in range(3)), nn.ReLU()

        def forward(self, x):
            for layer in self.layers:
                a = self.act(layer(x))
                x = a.mul(1.0)
                with torch.no_grad():
                    a.detach().zero_()  # nobody needs it any more, or so the user thinks
            return x

    vital = Together()
    model = Overwriting()
    with nv.watch(model, every=1, vitals=[vital]) as watching:
        for _ in range(2):
            with torch.enable_grad():
                model(torch.ones(5, 4))
            watching.step()
    assert all(len(call) == 1 for call in vital.calls) and len(vital.calls) == 6
    values = [r.value for r in watching.readings if r.metric == "a"]
    assert all(v > 0 for v in values[:1])


def test_the_site_that_fails_is_found_in_the_stack():
    model, vital = mlp(nn.Tanh), Together()
    with nv.watch(model, every=1, vitals=[vital]) as watching:
        model(torch.randn(5, 6)).sum().backward()
        watching.step()
        vital.fails_at = "5"
        with pytest.warns(RuntimeWarning, match="'together' failed at '5'"):
            model(torch.randn(5, 6)).sum().backward()
        watching.step()
        model(torch.randn(5, 6)).sum().backward()
        watching.step()
    sites = {step: {site for site, metric in found if metric == "x"} for step, found in by_step(watching).items()}
    assert sites == {0: {"1", "3", "5", "7"}, 1: {"1", "3", "7"}, 2: {"1", "3", "7"}}
    assert sum(r.metric == "half" for r in watching.readings) == 1  # from the failing site alone, not the stack


def test_a_branch_without_gradient_does_not_hold_up_the_others():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.three = (nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):
            return self.one(x).tanh(), self.two(x).tanh(), self.three(x).tanh()

    model, vital = Branches(), Together()
    with nv.watch(model, every=1, vitals=[vital]) as watching:
        for _ in range(2):
            first, _, third = model(torch.randn(5, 4))
            (first + third).sum().backward()
            watching.step()
    assert vital.gradient_calls[-1] == ["tanh()", "tanh()#3"]
    ends = {s: v[("tanh()", "g")] for s, v in by_step(watching).items()}
    assert ends == {0: 20.0, 1: 20.0}
