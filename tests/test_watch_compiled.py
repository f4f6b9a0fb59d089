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


class Net(nn.Module):
    """Sequential is on torch's own list of frames that fullgraph skips."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.act, self.b = nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)

    def forward(self, x):
        return self.b(self.act(self.a(x)))


def made(how):
    """A model to call, and the module inside."""
    inner = Net()
    if how == "in place":
        inner.compile(backend="aot_eager", fullgraph=True)
    return (torch.compile(inner, backend="aot_eager", fullgraph=True) if how == "wrapped" else inner), inner


@pytest.mark.parametrize("how", ["wrapped", "in place"])
def test_a_compiled_model_is_looked_at_through_its_twin_with_the_batch_of_the_loop(how):
    numbers = {}
    for kind in ("plain", how):
        model, inner = made(kind)
        bare = train(model, torch.optim.SGD(inner.parameters(), lr=0.1))
        model, inner = made(kind)
        optimizer = torch.optim.SGD(inner.parameters(), lr=0.1)
        with nv.watch(model, optimizer, every=2) as watching:
            loss = train(model, optimizer, watching)
        assert torch.equal(loss, bare), "watching has changed the training"
        assert watching.skipped == {} and [s.name for s in watching.sites] == ["a", "act", "b", "output"]
        assert not inner._forward_hooks and not model._forward_hooks and not model._forward_pre_hooks
        assert (inner._compiled_call_impl is not None) is (kind == "in place")
        numbers[kind] = {(r.step, r.vital, r.site, r.metric): r.value for r in watching.measurements}
    assert numbers["plain"].keys() == numbers[how].keys()
    for key, value in numbers["plain"].items():
        assert numbers[how][key] == pytest.approx(value, rel=1e-4, abs=1e-7, nan_ok=True), key


def test_a_compiled_model_whose_parameters_are_moved_by_hand_says_what_is_missing():
    model, inner = made("wrapped")
    with nv.watch(model, every=1) as watching:
        for _ in range(2):
            x, y = batch()
            F.cross_entropy(model(x), y).backward()
            with torch.no_grad():
                for p in inner.parameters():
                    p -= 0.1 * p.grad
            watching.step()
    assert "none did" in watching.skipped["model"]


def test_an_eager_copy_that_fails_is_said_once_and_training_goes_on(monkeypatch):
    model, inner = made("wrapped")
    optimizer = torch.optim.SGD(inner.parameters(), lr=0.1)
    monkeypatch.setattr("netvitals.watching.eager_replay.probe", lambda *_, **__: 1 / 0)
    with (
        pytest.warns(RuntimeWarning, match="eager copy failed: ZeroDivisionError") as heard,
        nv.watch(model, optimizer, every=1) as watching,
    ):
        train(model, optimizer, watching)
    assert len([w for w in heard if "eager copy failed" in str(w.message)]) == 1
    assert "eager copy failed" in watching.skipped["model"]
    assert {r.site for r in watching.measurements if r.vital == "gradients"} >= {"a.weight", "b.bias"}


def test_a_probe_looks_through_the_uncompiled_model():
    inner = net()
    model, optimizer = compiled(inner), torch.optim.SGD(inner.parameters(), lr=0.1)
    with nv.watch(model, optimizer=optimizer, every=2, probe=(*batch(), F.cross_entropy)) as watching:
        train(model, optimizer, watching)
    assert [s.name for s in watching.sites] == ["0", "1", "2", "output"] and watching.skipped == {}
    assert {r.step for r in watching.measurements if r.vital == "gates"} == {0, 2}


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
