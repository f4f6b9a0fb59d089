"""Compiled models: what cannot be seen is said, what can be measured is, and training is left alone."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv
from netvitals.capture import observe


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))


def batch():
    return torch.randn(6, 4), torch.randint(0, 3, (6,))


def train(model, optimizer, watching=None, steps=4):
    torch.manual_seed(1)
    for _ in range(steps):
        x, y = batch()
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if watching is not None:
            watching.step(loss)
    return loss.detach()


def compiled(model):
    return torch.compile(model, backend="eager")


def test_a_compiled_model_is_listed_with_the_reason_and_its_parameters_are_measured():
    plain = net()
    expected = train(compiled(plain), torch.optim.SGD(plain.parameters(), lr=0.1))
    inner = net()
    model, optimizer = compiled(inner), torch.optim.SGD(inner.parameters(), lr=0.1)
    with pytest.warns(RuntimeWarning, match="compiled and cannot be looked into"):
        watching = nv.watch(model, optimizer=optimizer, every=1)
    with watching:
        loss = train(model, optimizer, watching)
    assert torch.equal(loss, expected)
    assert list(watching.skipped) == ["model"] and "probe=" in watching.skipped["model"]
    assert watching.sites == []
    assert {"gradients", "drift"} <= {r.vital for r in watching.readings}
    assert {r.site for r in watching.readings if r.vital == "gradients"} >= {"0.weight", "2.bias"}


def test_a_probe_looks_through_the_uncompiled_model():
    inner = net()
    model, optimizer = compiled(inner), torch.optim.SGD(inner.parameters(), lr=0.1)
    with nv.watch(model, optimizer=optimizer, every=2, probe=(*batch(), F.cross_entropy)) as watching:
        train(model, optimizer, watching)
    assert [s.name for s in watching.sites] == ["0", "1", "2", "output"] and watching.skipped == {}
    assert {r.step for r in watching.readings if r.vital == "gates"} == {0, 2}


def test_a_compiled_part_is_not_looked_into_and_the_rest_is():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.act, self.head = compiled(net()), nn.Tanh(), nn.Linear(3, 3)

        def forward(self, x):
            return self.head(self.act(self.body(x)))

    model = Mixed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.warns(RuntimeWarning, match="body is compiled"):
        watching = nv.watch(model, optimizer=optimizer, every=1)
    with watching:
        train(model, optimizer, watching)
    assert [s.name for s in watching.sites] == ["act", "head", "output"]
    assert list(watching.skipped) == ["body"]


def test_a_model_compiled_in_place_is_noticed():
    model = net()
    model.compile(backend="eager")
    with pytest.warns(RuntimeWarning, match="is compiled"):
        watching = nv.watch(model, every=1)
    watching.close()


def test_a_look_at_a_compiled_model_sees_everything():
    model = compiled(net())
    seen = observe(model, F.cross_entropy, batch(), vitals=nv.vitals.default(), mode="train")
    assert [s.name for s in seen.sites] == ["0", "1", "2", "output"]


def test_inside_a_torch_func_transform_nothing_is_looked_at_and_nothing_breaks():
    model = net()
    x = torch.randn(5, 4)
    with nv.watch(model, every=1) as watching:
        rows = torch.func.vmap(lambda row: model(row[None])[0])(x)
        watching.step()
    assert torch.allclose(rows, model(x), atol=1e-6)
    assert watching.sites == [] and "torch.func" in watching.skipped["model"]


def test_the_old_name_of_skipped_places_works_for_one_version_with_a_sentence():
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(4, 4)

        def forward(self, x):
            return self.lstm(x)[0]

    model = Reader()
    with nv.watch(model, every=1, vitals=["gates"]) as watching:
        model(torch.ones(2, 3, 4)).sum().backward()
        watching.step()
    assert list(watching.skipped) == ["lstm"]
    with pytest.warns(FutureWarning, match=r"Watch\.unseen is now Watch\.skipped"):
        assert watching.unseen == watching.skipped
