"""A user's modules run as often as they would alone: their Python state, numpy's draws and fused kernels are theirs."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import netvitals as nv


class Jitter(nn.Module):
    """Draws from numpy and from Python."""

    def forward(self, x):
        return x * (1 + 0.1 * np.random.rand()) + 0.01 * random.random()


class Counting(nn.Module):
    """Counts its calls."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return x * torch.sigmoid(x)


class CountingReLU(nn.ReLU):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


def train(make, every, steps=60, watched=True):
    torch.manual_seed(0), np.random.seed(0), random.seed(0)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    watching = nv.watch(model, optimizer=optimizer, every=every) if watched else None
    losses = []
    for _ in range(steps):
        x = torch.randn(16, 8)
        loss = (model(x) - x[:, :2]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        if watching is not None:
            watching.step(loss)
    if watching is not None:
        watching.close()
    return losses, model, watching, (torch.get_rng_state().sum(), np.random.rand(), random.random())


@pytest.mark.parametrize("every", [50, 1])
@pytest.mark.parametrize(
    "act",
    [Jitter, Counting, CountingReLU, lambda: nn.Sequential(Jitter(), nn.Tanh()), nn.RReLU],
    ids=["jitter", "counting", "counting relu", "jitter and tanh", "rrelu"],
)
def test_training_is_the_same_bit_for_bit(act, every):
    make = lambda: nn.Sequential(nn.Linear(8, 16), act(), nn.Linear(16, 2))
    bare, _, _, after = train(make, every, watched=False)
    seen, _, _, then = train(make, every)
    assert seen == bare and then == after


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("act", [Counting, CountingReLU])
def test_a_module_that_counts_its_calls_counts_right(act, every):
    counting = act()
    _, _, watching, _ = train(lambda: nn.Sequential(nn.Linear(8, 16), counting, nn.Linear(16, 2)), every, steps=5)
    assert counting.calls == 5
    assert {r.site for r in watching.measurements if r.vital == "gates"} >= {"1"}


class Frozen(nn.Module):
    """A frozen encoder in eval mode under no_grad, and a head that trains."""

    def __init__(self, layers=1):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = (nn.TransformerEncoder(layer, layers) if layers > 1 else layer).requires_grad_(False).eval()
        self.hidden, self.head = nn.Linear(16, 16), nn.Linear(16, 2)

    def forward(self, x):
        with torch.no_grad():
            self.seen = self.encoder(x)
        h = self.hidden(self.seen)
        return self.head(h * torch.sigmoid(h))


class Kernels(TorchDispatchMode):
    """Notes what ran."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func._schema.name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("layers", [1, 2])
def test_a_frozen_encoder_keeps_its_fused_kernel(layers):
    torch.manual_seed(0)
    model, x = Frozen(layers), torch.randn(4, 6, 16)
    model(x)
    alone = model.seen
    with nv.watch(model, every=1) as watching:
        for _ in range(3):
            with Kernels() as ran:
                output = model(x)
            assert ran.names.count("aten::_transformer_encoder_layer_fwd") == layers
            assert torch.equal(model.seen, alone)
            output.square().mean().backward()
            watching.step()
    assert {s.name for s in watching.sites if s.kind == "activation"} == {"silu()"}
    assert any("fused kernel" in reason for reason in watching.skipped.values())


def test_a_frozen_encoder_that_is_the_model_is_left_alone():
    torch.manual_seed(0)
    layer, x = (
        nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).requires_grad_(False).eval(),
        torch.randn(4, 6, 16),
    )
    with torch.no_grad():
        alone = layer(x)
        with nv.watch(layer, every=1) as watching:
            assert torch.equal(layer(x), alone)
            assert "fused kernel" in watching.skipped["model"]


def test_an_error_of_ours_in_a_trace_does_not_touch_the_pass(monkeypatch):
    from netvitals.anatomy import tracing

    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Tanh(), nn.Linear(4, 2)), torch.randn(5, 3)
    torch.manual_seed(1)
    alone = model(x)

    def breaks(func):
        if func._schema.name in ("aten::native_dropout", "aten::bernoulli_"):  # it has drawn, and must not again
            raise ArithmeticError("on purpose")
        return "other"

    monkeypatch.setattr(tracing, "kind_of", breaks)
    torch.manual_seed(1)
    with nv.watch(model, every=1, vitals=["gates"]):
        with pytest.warns(RuntimeWarning, match="on purpose"):
            seen = model(x)
        assert torch.equal(seen, alone)


def test_a_user_error_inside_the_traced_pass_is_the_users():
    class Wrong(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 4)

        def forward(self, x):
            return F.relu(self.layer(x)) @ x

    with nv.watch(Wrong(), every=1, vitals=["gates"]) as watching, pytest.raises(RuntimeError, match="mat1 and mat2"):
        watching._model(torch.randn(5, 3))
    assert torch._C._len_torch_dispatch_stack() == 0


def test_operators_of_a_higher_order_run_as_they_do_alone():
    class Branch(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = nn.Linear(8, 8), nn.Linear(8, 2)

        def forward(self, x):
            h = self.layer(x)
            h = h * torch.sigmoid(h)
            with torch.no_grad():
                h = h + torch.cond(h.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (h,))
            return self.head(h)

    torch.manual_seed(0)
    model, x = Branch(), torch.randn(5, 8)
    alone = model(x)
    with nv.watch(model, every=1) as watching:
        for _ in range(3):
            seen = model(x)
            assert torch.equal(seen, alone)
            seen.square().mean().backward()
            watching.step()
    assert {s.name for s in watching.sites if s.kind == "activation"} == {"silu()"}
