"""Shared by the tests of both packages: one thread, fixed seeds, torch's switches put back, and views built by hand."""

import os
import random
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from forked import Programs
from netvitals.capture import ActivationView, LinearView, ParameterView, Recorder, Site, TensorView

torch.set_num_threads(1)

BFLOAT16 = """
import torch
a, b = torch.ones(33, 65, dtype=torch.bfloat16), torch.ones(65, 17, dtype=torch.bfloat16)
assert (a @ b == 65).all() and (torch.addmm(b[0], a, b) == 66).all()
layer = torch.nn.Sequential(torch.nn.Linear(65, 17), torch.nn.Linear(17, 3))
with torch.autocast("cpu", dtype=torch.bfloat16):
    layer(a.float()).float().sum().backward()
assert layer[0].weight.grad.isfinite().all()
"""


def _switches():
    mkldnn = torch.backends.mkldnn
    return {
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "grad": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warn only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "mkldnn": mkldnn.enabled,
        "float32 products": torch.get_float32_matmul_precision(),
    }


def _set_switches(to):
    torch.set_num_threads(to["threads"])
    torch.set_default_dtype(to["dtype"])
    torch.set_grad_enabled(to["grad"])
    torch.use_deterministic_algorithms(to["deterministic"], warn_only=to["warn only"])
    torch.backends.mkldnn.set_flags(to["mkldnn"])
    torch.set_float32_matmul_precision(to["float32 products"])


def _seed():
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def pytest_collectstart(collector):
    """Numbers drawn while a module is imported do not depend on the modules imported before it."""
    if isinstance(collector, pytest.Module):
        _seed()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(fixturedef, request):
    """A fixture that several tests share is made from the same seeds whichever of them asks first."""
    if fixturedef.scope == "function":
        return (yield)
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    _seed()
    try:
        return (yield)
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


@pytest.fixture(autouse=True)
def seeds_and_switches():
    """Neither the order of tests nor the test before decides what a test sees."""
    _seed()
    before = _switches()
    yield
    if _switches() != before:
        _set_switches(before)


@pytest.fixture(scope="session")
def bfloat16_matmul():
    """Skips where products of bfloat16 matrices do not run; asked in a process of its own, which may die of it."""
    done = subprocess.run(
        [sys.executable, "-c", BFLOAT16],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"])[-1]
        pytest.skip(f"this machine's torch cannot multiply bfloat16 matrices on the CPU: {last}")


@pytest.fixture(scope="session")
def programs():
    """``run`` and ``Popen`` of Python programs whose processes need not import torch again."""
    forks = Programs()
    yield forks
    forks.close()


def activation(x, f, *, name="act", op="", channel_dim=1, follows="linear"):
    with torch.no_grad():
        a = f(x)
    return ActivationView(Site(name, "activation", op, follows, channel_dim, name), x, a, f)


def shown(vital, *views, grads=(), parameters=None, step=0):
    """{(site, metric): value} that ``vital`` writes for these views; arrays under (site, metric, "array")."""
    recorder = Recorder(step)
    recorder.vital = vital.name
    with torch.no_grad():
        for view in views:
            method = {
                ActivationView: "activation",
                LinearView: "linear",
                TensorView: "tensor",
            }[type(view)]
            getattr(vital, method)(recorder, view)
        for view, g in zip(views, grads):
            vital.gradient(recorder, view, g)
        if parameters is not None:
            vital.parameters(recorder, parameters)
    scalars, arrays = recorder.measurements()
    return {(r.site, r.metric): r.value for r in scalars} | {(r.site, r.metric, "array"): r.value for r in arrays}


def parameter_view(model, initial=None, grads=None, before=None):
    return ParameterView(
        {n: p.detach() for n, p in model.named_parameters()},
        initial or {},
        grads or {},
        before or {},
        dict(model.named_modules()),
    )


def relu_net(widths, *, bias=False, dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    layers = []
    for i, (m, n) in enumerate(pairwise(widths)):
        layers += [nn.Linear(m, n, bias=bias)] + ([nn.ReLU()] if i < len(widths) - 2 else [])
    return nn.Sequential(*layers).to(dtype)


class Made:
    """The builders above, for test files (which cannot import from here)."""

    activation = staticmethod(activation)
    shown = staticmethod(shown)
    parameter_view = staticmethod(parameter_view)
    relu_net = staticmethod(relu_net)


@pytest.fixture
def made():
    return Made
