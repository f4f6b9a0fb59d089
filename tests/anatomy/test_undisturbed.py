"""A chart leaves no trace: not in tensors, generators, modes, hooks, nor in the Python state of the user's modules."""

import cProfile
import random
import threading
from collections import deque

import numpy as np
import pytest
import torch
from torch import nn

from netvitals.anatomy import chart


class Stateful(nn.Module):
    """Counts its calls, caches, draws numbers of its own, and keeps a running mean."""

    def __init__(self, copyable=True):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)
        self.register_buffer("seen", torch.zeros(1))
        self.calls, self.cache, self.kept, self.last = 0, {}, [], None
        self.generator = torch.Generator().manual_seed(3)
        self.recent = deque(maxlen=3) if copyable else []
        if not copyable:
            self.lock = threading.Lock()

    def forward(self, x):
        self.calls += 1
        self.cache[self.calls] = len(x)
        self.kept.append(x.shape)
        self.recent.append(len(x))
        self.last = x
        self.new = 1
        self.seen += 1
        noise = torch.rand(len(x), 6, generator=self.generator)
        random.random(), np.random.rand()
        return self.b(torch.relu(self.norm(self.a(x)) + noise + torch.rand(1)))


@pytest.mark.parametrize("copyable", [True, False])
def test_nothing_of_the_model_or_the_generators_is_changed(copyable):
    net = Stateful(copyable)
    fired = []
    net.a.register_forward_hook(lambda *_: fired.append(1))
    net.b.weight.grad = torch.ones(2, 6)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    states = torch.get_rng_state(), net.generator.get_state(), random.getstate(), np.random.get_state()[1].copy()
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in net.modules()]
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    found = chart(net, x)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert (net.calls, net.cache, net.kept, list(net.recent), net.last) == (0, {}, [], [], None)
    assert not hasattr(net, "new") and not fired and net.training
    assert torch.equal(states[0], torch.get_rng_state()) and torch.equal(states[1], net.generator.get_state())
    assert states[2] == random.getstate() and np.array_equal(states[3], np.random.get_state()[1])
    assert hooks == [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in net.modules()]
    assert torch.equal(net.b.weight.grad, torch.ones(2, 6))
    assert any("cannot be copied" in note for note in found.notes) != copyable
    assert any("1 hooks" in note for note in found.notes)
    net(x)
    assert net.calls == 1 and len(fired) == 1


def test_a_pass_that_raises_leaves_no_trace_either():
    for copyable in (True, False):
        net = Stateful(copyable)
        with pytest.raises(RuntimeError):
            chart(net, torch.randn(5, 3))
        assert net.calls == 0 and not net.kept and net.training and float(net.seen) == 0
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())
    assert torch.backends.mha.get_fastpath_enabled()


def test_training_goes_on_as_if_nothing_had_been_charted():
    def trained(charted):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.GELU(), nn.Linear(8, 2))
        optimizer = torch.optim.Adam(net.parameters())
        for step in range(4):
            x = torch.randn(6, 4)
            if charted and step % 2:
                chart(net, x)
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        return torch.cat([t.flatten() for t in net.state_dict().values()])

    assert torch.equal(trained(False), trained(True))


def test_a_chart_that_is_kept_need_not_keep_activations():
    net = nn.Sequential(nn.Linear(4, 64), nn.GELU(), nn.Linear(64, 2))
    lean, full = (chart(net, torch.randn(50, 4), keep_tensors=keep) for keep in (False, True))
    held = lambda a: sum(t.numel() for v, t in zip(a.values, a.tensors) if v.source == "operation")
    assert held(lean) == 0 < held(full) and [r.role for r in lean.regions] == [r.role for r in full.regions]
    h = torch.randn(50, 64)
    assert torch.equal(lean.regions[0].f(h), nn.functional.gelu(h))
    with pytest.raises(ValueError, match="keep_tensors=True"):
        lean.at(lean.regions[0])


def test_the_work_grows_with_the_depth_and_not_faster():
    """Function calls for a model twice as deep: about twice as many."""
    block = lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def calls(depth):
        net = nn.Sequential(nn.Linear(4, 8), *(block() for _ in range(depth)), nn.Linear(8, 2)).eval()
        profile = cProfile.Profile()
        profile.runcall(chart, net, torch.randn(3, 5, 4))
        return sum(entry.callcount for entry in profile.getstats())

    calls(2)  # what is loaded once
    few, many = calls(12), calls(24)
    assert many / few < 2.3, (few, many)


def test_the_parameters_of_a_chart_are_the_models_own():
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    found = chart(net, torch.randn(5, 4))
    held = {found.values[i].name: found.tensors[i] for i, v in enumerate(found.values) if v.source == "parameter"}
    assert held["0.weight"].data_ptr() == net[0].weight.data_ptr()
