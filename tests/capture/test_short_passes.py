"""Once its sites are known, a pass goes only where somebody looks, reads the same, and looks around at times."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv
from netvitals.capture import Vital
from netvitals.capture.engine import pass_plan as route


class Height(Vital):
    name = "height"

    def activation(self, recorder, view):
        recorder.write(view.site, ("max",), view.a.max())


class Streams(Vital):
    name, tensors_of = "streams", ("stream",)

    def tensor(self, recorder, view):
        recorder.write(view.site, ("norm",), view.value.norm())


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.act = nn.Linear(4, 4), nn.Tanh()

    def forward(self, x):
        return x + self.act(self.layer(x))


def hooked(model):
    return [name for name, m in model.named_modules() if m._forward_hooks]


def run(model, vitals, steps, change=None):
    with nv.watch(model, every=1, vitals=vitals) as watching:
        routes = []
        for step in range(steps):
            routes.append(hooked(model))
            if change is not None:
                change(step)
            model(torch.full((3, 4), 0.5)).sum().backward()
            watching.step()
    seen = {}
    for r in watching.measurements:
        seen.setdefault(r.step, {})[r.site, r.metric] = r.value
    return routes, seen, watching


def test_only_the_activations_are_visited_when_nobody_looks_elsewhere():
    model = nn.Sequential(Block(), Block())
    routes, seen, watching = run(model, [Height()], 3)
    assert routes[0] == ["", "0", "0.layer", "0.act", "1", "1.layer", "1.act"]
    assert routes[1] == routes[2] == ["", "0.act", "1.act"]
    assert seen[0] == seen[1] == seen[2]
    assert {s.name for s in watching.sites} == {"0", "0.layer", "0.act", "1", "1.layer", "1.act", "output"}


def test_streams_are_found_again_without_the_mode():
    model = nn.Sequential(Block(), Block())
    routes, seen, _ = run(model, [Streams()], 3)
    assert routes[1] == ["", "0", "1"]
    assert seen[0] == seen[1] == seen[2] and set(seen[0]) == {("0", "norm"), ("1", "norm")}


def test_functional_sites_keep_the_whole_route():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return F.gelu(self.layer(x))

    routes, seen, _ = run(Net(), [Height()], 3)
    assert routes == [["", "layer"]] * 3
    assert seen[0] == seen[2] and set(seen[0]) == {("gelu()", "max")}


def test_gradients_of_layers_bring_the_layers_back():
    class Push(Vital):
        name, gradients_of, every = "push", ("linear",), 2

        def gradient(self, recorder, view, g):
            recorder.write(view.site, ("g",), g.norm())

    model = nn.Sequential(Block())
    routes, seen, _ = run(model, [Height(), Push()], 5)
    assert routes[1] == ["", "0.act"] and routes[2] == ["", "0.layer", "0.act"]
    assert [("0.layer", "g") in seen[s] for s in range(5)] == [True, False, True, False, True]


def test_an_activation_that_was_replaced_is_missed_once_at_most():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh())

    def change(step):
        if step == 2:
            model[1] = nn.GELU()

    _, seen, watching = run(model, [Height()], 5, change)
    assert [len(seen[s]) for s in range(5)] == [2, 2, 1, 2, 2]
    assert {s.name: s.op for s in watching.sites if s.kind == "activation"} == {"1": "GELU", "3": "Tanh"}


def test_a_second_call_that_appears_is_found():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.act, self.times = nn.Linear(4, 4), nn.Tanh(), 1

        def forward(self, x):
            for _ in range(self.times):
                x = self.act(self.layer(x))
            return x

    model = Net()

    def change(step):
        model.times = 1 if step < 2 else 2

    _, seen, _ = run(model, [Height()], 4, change)
    assert [sorted(site for site, _ in seen[s]) for s in range(4)] == [["act"], ["act"], ["act"], ["act", "act#2"]]


def test_a_short_pass_reads_tensors_before_they_are_overwritten():
    class Overwriting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.act = nn.ModuleList(nn.Linear(4, 4) for _ in range(3)), nn.Sigmoid()

        def forward(self, x):
            for layer in self.layers:
                a = self.act(layer(x))
                x = a.mul(1.0)
                with torch.no_grad():
                    a.detach().zero_()  # nobody needs it any more, or so the user thinks
            return x

    model = Overwriting()
    with nv.watch(model, every=1, vitals=[Height()]) as watching:
        for _ in range(3):
            model(torch.ones(5, 4))
            watching.step()
    assert len(watching.measurements) == 9 and all(r.value > 0 for r in watching.measurements)


def test_branches_with_and_without_a_gradient():
    class Push(Vital):
        name, gradients_of = "push", ("activation",)

        def gradient(self, recorder, view, g):
            recorder.write(view.site, ("g",), g.sum())

    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.acts = (
                nn.ModuleList(make() for _ in range(3)) for make in (lambda: nn.Linear(4, 4), nn.Tanh)
            )

        def forward(self, x):
            return [act(layer(x)) for layer, act in zip(self.layers, self.acts)]

    model = Branches()
    with nv.watch(model, every=1, vitals=[Push()]) as watching:
        for _ in range(3):
            first, _, third = model(torch.randn(5, 4))
            (first + third).sum().backward()
            watching.step()
    assert [(r.site, r.value) for r in watching.measurements] == [("acts.2", 20.0), ("acts.0", 20.0)] * 3


def test_a_functional_call_that_appears_is_found_on_the_next_full_pass(monkeypatch):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.act, self.more = nn.Linear(4, 4), nn.Tanh(), False

        def forward(self, x):
            x = self.act(self.layer(x))
            return F.silu(x) if self.more else x

    monkeypatch.setattr(route, "FULL", 4)
    model = Net()

    def change(step):
        model.more = step >= 2

    _, seen, _ = run(model, [Height()], 6, change)
    assert [("silu()", "max") in seen[s] for s in range(6)] == [False, False, False, False, True, True]


@pytest.mark.parametrize("names", [None, ["gates", "sparsity"]])
def test_short_and_full_passes_read_the_same(names, monkeypatch):
    def measurements(full):
        torch.manual_seed(0)
        monkeypatch.setattr(route, "FULL", full)
        model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with nv.watch(model, optimizer=optimizer, every=1, vitals=names) as watching:
            for _ in range(4):
                loss = model(torch.randn(5, 4)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                watching.step(loss)
        return {r[:4]: r.value for r in watching.measurements}

    assert measurements(1) == pytest.approx(measurements(1000), nan_ok=True)
