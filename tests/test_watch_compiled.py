"""Compiled models: what cannot be seen is said, what can be measured is, and training is left alone."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

import netvitals as nv
from netvitals.capture import observe

NOT_THERE = {"stream", "attention", "experts"}  # in a perceptron


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
        assert set(watching.skipped) == NOT_THERE and [s.name for s in watching.sites] == ["a", "act", "b", "output"]
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
    assert "no optimizer stepped" in watching.skipped["model"]


def test_an_eager_copy_that_fails_is_said_once_and_training_goes_on(monkeypatch):
    model, inner = made("wrapped")
    optimizer = torch.optim.SGD(inner.parameters(), lr=0.1)
    monkeypatch.setattr("netvitals.watching.eager_replay.probe", lambda *_, **__: 1 / 0)
    with (
        pytest.warns(RuntimeWarning, match="running its uncompiled module failed: ZeroDivisionError") as heard,
        nv.watch(model, optimizer, every=1) as watching,
    ):
        train(model, optimizer, watching)
    assert len([w for w in heard if "running its uncompiled module failed" in str(w.message)]) == 1
    assert "running its uncompiled module failed" in watching.skipped["model"]
    assert {r.site for r in watching.measurements if r.vital == "gradients"} >= {"a.weight", "b.bias"}


def test_a_probe_looks_through_the_uncompiled_model():
    inner = net()
    model, optimizer = compiled(inner), torch.optim.SGD(inner.parameters(), lr=0.1)
    with nv.watch(model, optimizer=optimizer, every=2, probe=(*batch(), F.cross_entropy)) as watching:
        train(model, optimizer, watching)
    assert [s.name for s in watching.sites] == ["0", "1", "2", "output"] and set(watching.skipped) == NOT_THERE
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
    assert set(watching.skipped) - NOT_THERE == {"body", "imbalance", "inputs"}


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
    assert set(watching.skipped) == {"lstm", "gates", "loss"}


# ------------------------------------------------- compiled functions and steps: nothing of ours is traced


def cubic(x):
    return x * torch.sigmoid(1.7 * x)


class Calls(nn.Module):
    """An eager model that calls a compiled function."""

    def __init__(self, act):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.act = nn.Linear(4, 8), nn.Linear(8, 3), act

    def forward(self, x):
        return self.b(self.act(self.a(x)))


def compiled_loop(kind, every, fullgraph=False, steps=6):
    """Parameters after training, how many graphs were compiled, and the watch."""
    counter = CompileCounterWithBackend("eager" if "step" in kind or "optimizer" in kind else "aot_eager")
    compiled = lambda f: torch.compile(f, backend=counter, fullgraph=fullgraph)
    model = Calls(compiled(lambda x: cubic(x))) if kind == "a function inside" else Net()
    if kind == "hooks of the user's":
        model.a.register_forward_hook(lambda module, args, out: 1.5 * out)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    call, loss_of, step = model, lambda x, y: F.cross_entropy(call(x), y), optimizer.step
    if kind in ("the model", "hooks of the user's"):
        call = compiled(model)
    elif kind == "a function around":
        loss_of = compiled(lambda x, y: F.cross_entropy(model(x), y))
    elif kind == "the loss":
        entropy = compiled(lambda a, b: F.cross_entropy(a, b))
        loss_of = lambda x, y: entropy(model(x), y)
    elif kind == "the optimizer":
        step = compiled(lambda: optimizer.step())

    def whole(x, y):
        loss = loss_of(x, y)
        loss.backward()
        step()
        optimizer.zero_grad()
        return loss

    run = compiled(whole) if kind == "the whole step" else whole
    watching = nv.watch(model, optimizer, every=every) if every else None
    if kind == "the model, later":
        call = compiled(model)
    torch.manual_seed(1)
    for _ in range(steps):
        loss = run(*batch())
        if watching is not None:
            watching.step(loss)
    if watching is not None:
        watching.close()
    return list(model.parameters()), counter.frame_count, watching


AROUND = ("a function around", "the whole step")
KINDS = (
    *AROUND,
    "the model",
    "the model, later",
    "the loss",
    "the optimizer",
    "a function inside",
    "hooks of the user's",
)


@pytest.mark.filterwarnings("ignore:.*Dynamo|.*record_function:UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_compiled_because_of_us_and_training_is_the_same(kind):
    torch.compiler.reset()
    bare, graphs, _ = compiled_loop(kind, every=0)
    assert graphs > 0
    for every in (1, 2, 1):  # the second and the third training in this process, too
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            watched, ours, watching = compiled_loop(kind, every)
        assert all(torch.equal(p, q) for p, q in zip(bare, watched, strict=True))
        assert ours == graphs, f"{ours} graphs were compiled, {graphs} without a watch"
        measured = {r.step for r in watching.measurements if r.vital == "gates"}
        told = [str(w.message) for w in heard if "netvitals" in str(w.message)]
        if kind in AROUND:
            assert measured == set() and "inside a compiled function" in watching.skipped["model"]
            assert len(told) == 1 and "inside a compiled function" in told[0]
        else:
            late = kind in ("the model, later", "a function inside")  # known from the first measured step on
            assert measured == set(range(every if late else 0, 6, every))
            assert "model" not in watching.skipped and told == []


@pytest.mark.parametrize("kind", ["a function around", "the model", "a function inside"])
def test_fullgraph_has_no_break_of_ours(kind):
    torch.compiler.reset()
    bare, graphs, _ = compiled_loop(kind, every=0, fullgraph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        watched, ours, _ = compiled_loop(kind, every=1, fullgraph=True)
    assert ours == graphs and all(torch.equal(p, q) for p, q in zip(bare, watched, strict=True))


def test_hooks_stand_where_they_stood_after_something_was_compiled():
    order = []
    model = Net()
    model.a.register_forward_hook(lambda *_: order.append("first"))
    with nv.watch(model, torch.optim.SGD(model.parameters(), lr=0.1), every=1):
        model.a.register_forward_hook(lambda *_: order.append("last"))
        before = [list(m._forward_hooks) for m in model.modules()], list(model._forward_pre_hooks)
        assert len(model.a._forward_hooks) == 3
        torch.compile(cubic, backend="eager")(torch.ones(3))
        assert ([list(m._forward_hooks) for m in model.modules()], list(model._forward_pre_hooks)) == before
        model(batch()[0])
    assert order == ["first", "last"]
