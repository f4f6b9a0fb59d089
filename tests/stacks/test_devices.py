"""What a device feels of a measured step; on a GPU where there is one (``make test-gpu``), else on the CPU."""

import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

DEVICES = {"cpu": lambda: True, "cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
SYNCHRONISING = ("cpu", "item", "tolist", "numpy", "nonzero", "__bool__", "__float__", "__int__")


@pytest.fixture(params=DEVICES)
def device(request):
    if not DEVICES[request.param]():
        pytest.skip(f"there is no {request.param} device here")
    return torch.device(request.param)


def net(device):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 3)
    ).to(device)


def train(device, every=0, steps=6, each=lambda step: None):
    model = net(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watching = nv.watch(model, optimizer, every=every, checks=False, forecasts=False) if every else None
    generator = torch.Generator().manual_seed(1)
    for step in range(steps):
        each(step)
        x = torch.randn(8, 6, generator=generator).to(device)
        y = torch.randint(0, 3, (8,), generator=generator).to(device)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if watching is not None:
            watching.step(loss)
    if watching is not None:
        watching.close()
    return list(model.parameters()), watching


def test_training_is_the_same_and_numbers_are_those_of_a_cpu(device):
    bare, _ = train(device)
    watched, watching = train(device, every=1)
    assert all(torch.equal(p, q) for p, q in zip(bare, watched, strict=True))
    _, here = train(torch.device("cpu"), every=1)
    expected = {(r.step, r.vital, r.site, r.metric): r.value for r in here.measurements}
    found = {(r.step, r.vital, r.site, r.metric): r.value for r in watching.measurements}
    assert found.keys() == expected.keys()
    for key in (k for k in expected if k[1] in ("gates", "gradients", "loss", "outputs") and k[0] == 0):
        assert found[key] == pytest.approx(expected[key], rel=1e-3, abs=1e-5, nan_ok=True), key


def test_a_measured_step_waits_for_the_device_once(device, monkeypatch):
    step, calls = [0], {}

    def counting(name, method):
        def call(self, *args, **kwargs):
            caller = sys._getframe(1).f_code.co_filename
            ours = "netvitals" in caller and "/tests/" not in caller
            if ours and not (name == "item" and caller.endswith("buffer.py") and self.is_cpu):  # a loss on the host
                calls.setdefault(step[0], []).append((name, caller.rpartition("netvitals/")[2]))
            return method(self, *args, **kwargs)

        return call

    train(device, every=1, steps=1)
    with monkeypatch.context() as patch:
        for name in SYNCHRONISING:
            patch.setattr(torch.Tensor, name, counting(name, getattr(torch.Tensor, name)))
        train(device, every=2, steps=9, each=lambda i: step.__setitem__(0, i))
    for i in (2, 4, 6):  # the first pass is traced, and read more closely
        moved = [call for call in calls.get(i, []) if call[0] == "cpu"]
        assert len(moved) == 1, calls[i]
        assert not [call for call in calls[i] if call[0] not in ("cpu", "numpy")], calls[i]
    assert not calls.get(3) and not calls.get(5), "a step that is not measured waits for nothing"
