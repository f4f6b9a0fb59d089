"""Shared by all tests: one thread per process, a fixed seed before every test, and sights built by hand."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from netvitals.capture import ActivationSight, ActivationStack, LinearSight, ParameterSight, Sheet, Site, TensorSight

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def activation(x, f, *, name="act", op="", channel_dim=1, follows="linear"):
    with torch.no_grad():
        a = f(x)
    return ActivationSight(Site(name, "activation", op, follows, channel_dim, name), x, a, f)


def shown(vital, *sights, grads=(), parameters=None, step=0):
    """{(site, metric): value} that ``vital`` writes for these sights; arrays under (site, metric, "array")."""
    sheet = Sheet(step)
    sheet.vital = vital.name
    with torch.no_grad():
        for sight in sights:
            method = {ActivationSight: "activation", ActivationStack: "activation", LinearSight: "linear",
                      TensorSight: "tensor"}[type(sight)]
            getattr(vital, method)(sheet, sight)
        for sight, g in zip(sights, grads):
            vital.gradient(sheet, sight, g)
        if parameters is not None:
            vital.parameters(sheet, parameters)
    scalars, arrays = sheet.readings()
    return ({(r.site, r.metric): r.value for r in scalars}
            | {(r.site, r.metric, "array"): r.value for r in arrays})


def stacked(sights):
    first = sights[0].stack
    return ActivationStack(tuple(s.site for s in sights), torch.cat([s.stack.x for s in sights]),
                           torch.cat([s.stack.a for s in sights]), first.f, first.raw, first.dtype)


def parameter_sight(model, initial=None, grads=None, before=None):
    return ParameterSight({n: p.detach() for n, p in model.named_parameters()}, initial or {}, grads or {},
                          before or {}, dict(model.named_modules()))


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
    stacked = staticmethod(stacked)
    parameter_sight = staticmethod(parameter_sight)
    relu_net = staticmethod(relu_net)


@pytest.fixture
def made():
    return Made
