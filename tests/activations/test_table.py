"""One table of activations: nothing elementwise in torch is missing from it, and everyone reads it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import netvitals as nv
from netvitals import activations as A
from netvitals.activations.table import called
from netvitals.capture import Vital, observe
from netvitals.capture.engine.roles import role
from netvitals.curvature.dag.kinks import certificate
from netvitals.layers.source import functional_activations

TORCH = [row for row in A.ACTIVATIONS if row.functions]
NEEDED = {"prelu": (torch.tensor([0.3]),), "threshold": (0.1, 0.2)}  # arguments without a usual value


@pytest.fixture(scope="module")
def elementwise():
    """What torch has, found by trying, in a process that may neither hang nor crash this one."""
    script = Path(__file__).with_name("elementwise_of_torch.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=600, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_every_elementwise_function_of_torch_is_an_activation_or_ignored_with_a_reason(elementwise):
    known = {name for row in TORCH for name in row.functions} | set(A.IGNORED)
    missing = [n for n in elementwise["functions"] if n not in known and n.removesuffix("_") not in known]
    assert not missing, f"neither an activation nor ignored with a reason: {missing}"


@pytest.mark.slow
def test_every_elementwise_module_of_torch_is_an_activation_or_ignored_with_a_reason(elementwise):
    known = {kind.__name__ for row in TORCH for kind in row.modules} | set(A.IGNORED)
    assert not [name for name in elementwise["modules"] if name not in known]


def test_the_walk_finds_what_it_should(elementwise):
    """A walk that finds nothing would make the two tests above pass."""
    assert elementwise["tried"][0] > 700 and elementwise["tried"][1] > 100
    ordinary = {row.name for row in TORCH} - {"prelu", "threshold", "arctan"}  # which want more arguments, or are atan
    assert ordinary | {"atan", "expit", "relu_", "abs", "dropout"} <= set(elementwise["functions"])
    assert {"ReLU", "RReLU", "PReLU", "Threshold", "Identity"} <= set(elementwise["modules"])
    mixing = {"softmax", "log_softmax", "softmin", "cumsum", "sort", "flip", "layer_norm", "normalize"}
    assert not mixing & set(elementwise["functions"])
    assert not {"Softmax", "LayerNorm", "Linear", "BatchNorm1d"} & set(elementwise["modules"])


def test_what_is_ignored_is_no_activation_and_says_why():
    names = {name for row in TORCH for name in (*row.functions, *(k.__name__ for k in row.modules))}
    assert not names & set(A.IGNORED) and not set(A.MIXING) & (names | set(A.IGNORED))
    assert all(len(reason) > 30 for reason in A.IGNORED.values())


@pytest.mark.parametrize("row", TORCH, ids=lambda row: row.name)
def test_all_names_of_an_activation_compute_the_same(row):
    x, more = torch.linspace(-3, 3, 13), NEEDED.get(row.name, ())
    module = row.modules[0](*(more if row.name == "threshold" else ()))
    if row.name == "prelu":
        module.weight.data[:] = more[0]
    expected = module.eval()(x).detach()
    callables = dict(row.callables())
    assert callables and any(in_place for in_place in callables.values()) == any(
        True for name in row.functions for _ in called(name + "_")
    )
    for function, in_place in callables.items():
        given = x.clone()
        torch.testing.assert_close(function(given, *more), expected, rtol=1e-6, atol=1e-6)
        assert torch.equal(given, x) is not in_place


class _Dispatched(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func._schema.name.removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("row", TORCH, ids=lambda row: row.name)
def test_the_operator_of_aten_is_the_one_that_runs(row):
    f = next(iter(dict(row.callables())))
    seen = set()
    for training in (False, True) if row.random else (None,):
        with _Dispatched() as mode:
            f(
                torch.linspace(-1, 1, 5),
                *NEEDED.get(row.name, ()),
                **({} if training is None else {"training": training}),
            )
        seen |= set(mode.names)
        assert not row.aten or set(mode.names) & set(row.aten), mode.names
    assert set(row.aten) <= seen
    if not row.aten:
        assert len(seen) > 1  # torch puts it together from others


def seen_by_capture(function, more):
    """What a watched model calls the activation of this function, after a layer."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return function(self.layer(x), *more)

    (site,) = [s for s in observe(Net(), None, torch.randn(8, 4), vitals=[Slopes()]).sites if s.kind == "activation"]
    return site.op


@pytest.mark.parametrize("row", TORCH, ids=lambda row: row.name)
def test_everyone_reads_the_table(row):
    for function, in_place in row.callables():
        assert (function in A.FUNCTIONAL) == (row.described and not row.after_layer)
        assert seen_by_capture(function, NEEDED.get(row.name, ())) == row.op, (function, in_place)
    module = row.modules[0](*NEEDED["threshold"] if row.name == "threshold" else ())
    assert role(module) == "activation" and A.is_activation(module) and A.is_elementwise(module)
    assert certificate(nn.Sequential(module)).piecewise_linear == row.piecewise_linear


@pytest.mark.parametrize("row", [r for r in A.ACTIVATIONS if r.described], ids=lambda row: row.name)
def test_second_derivatives_agree_with_what_is_said_to_bend(row):
    x = torch.tensor([-4.3, -2.1, -0.7, -0.2, 0.3, 0.6, 1.3, 2.7, 5.1, 7.2], dtype=torch.float64)
    module = A.get("poly:0:1:1" if row.name == "poly" else row.name).double().eval()

    def slope(at):
        at = at.clone().requires_grad_()
        return torch.autograd.grad(module(at).sum(), at)[0]

    bends = bool((slope(x + 1e-4) - slope(x)).abs().max() > 1e-7)
    if row.name not in ("sugar_b_silu", "noisy_relu"):  # their backward pass is not the derivative of their forward
        assert bends is not row.piecewise_linear


class Rrelu(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return F.rrelu(self.layer(x), 0.1, 0.4, training=self.training)


class Slopes(Vital):
    name = "slopes"

    def activation(self, recorder, view):
        mask = view.x < 0
        again = view.f(view.x)
        worst = torch.stack(
            [(again - view.a).abs().max(), (view.derivative[mask] - (view.a / view.x)[mask]).abs().max()]
        )
        recorder.write(view.site, ("again", "slope"), worst)


def test_rrelu_as_a_function_is_seen_by_every_reader():
    model = Rrelu()
    assert [
        site.name for site in observe(model, None, torch.randn(8, 4), vitals=[Slopes()]).sites if site.op == "rrelu"
    ]
    assert functional_activations(model)[0][:2] == ("", "rrelu")
    assert A.functional_spec(F.rrelu) == "rrelu" and A.functional_spec(F.rrelu, (None, 0.1, 0.4)) == "rrelu:0.1:0.4"


def test_rrelu_as_a_function_is_run_again_with_the_same_draws_and_training_does_not_feel_it():
    def trained(watched):
        torch.manual_seed(3)
        model = Rrelu()
        watching = nv.watch(model, every=1, vitals=[Slopes()]) if watched else None
        for _ in range(3):
            model(torch.randn(8, 4)).square().mean().backward()
            if watching is not None:
                watching.step()
        measurements = [] if watching is None else [r for r in watching.measurements if r.vital == "slopes"]
        if watching is not None:
            watching.close()
        return [p.grad.clone() for p in model.parameters()], torch.rand(3), measurements

    bare, draws, _ = trained(watched=False)
    seen, same_draws, measurements = trained(watched=True)
    assert torch.equal(draws, same_draws) and all(torch.equal(a, b) for a, b in zip(bare, seen))
    assert len(measurements) == 6 and all(r.value < 1e-6 for r in measurements)
