"""A preflight leaves everything as it was, also after an exception: one test a kind of state."""

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv


class Net(nn.Module):
    """Batch norm (buffers), dropout (random numbers), a counter, and an exception on demand."""

    def __init__(self, fails_at=None):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))
        self.calls, self.fails_at, self.seen = 0, fails_at, []

    def forward(self, x):
        self.calls += 1
        self.seen.append(len(x))
        random.random(), np.random.rand()
        if self.fails_at is not None and self.calls > self.fails_at:
            raise RuntimeError("out of memory")
        return self.layers(x)


def prepared(fails_at=None):
    torch.manual_seed(0)
    model = Net(fails_at)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(96, 6)
    loader = DataLoader(
        TensorDataset(x, x[:, :3].argmax(1)), 16, shuffle=True, generator=torch.Generator().manual_seed(5)
    )
    if fails_at is None:
        nn.functional.cross_entropy(model(x), torch.zeros(96).long()).backward()
        optimizer.step()  # moments, and gradients that are kept
    model.layers[3].eval()
    return model, optimizer, loader


def state(kind, model, optimizer, loader):
    if kind == "parameters":
        return [p.detach().clone() for p in model.parameters()]
    if kind == "versions":
        return [p._version for p in model.parameters()]
    if kind == "buffers":
        return [b.clone() for b in model.buffers()]
    if kind == "gradients":
        return [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    if kind == "modes":
        return [m.training for m in model.modules()]
    if kind == "attributes":
        return [model.calls, list(model.seen), sorted(vars(model))]
    if kind == "optimizer":
        held = optimizer.state_dict()
        return [*(v.clone() for s in held["state"].values() for v in s.values()), repr(held["param_groups"])]
    if kind == "hooks":
        return [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    if kind == "generator of the loader":
        return [loader.generator.get_state()]
    return [torch.get_rng_state(), torch.tensor(np.random.get_state()[1].astype("int64")), repr(random.getstate())]


def same(a, b):
    return len(a) == len(b) and all(
        torch.equal(x, y) if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor) else x == y
        for x, y in zip(a, b)
    )


KINDS = (
    "parameters", "versions", "buffers", "gradients", "modes", "attributes", "optimizer", "hooks",
    "generator of the loader", "random numbers",
)  # fmt: skip


@pytest.fixture(scope="module")
def ran():
    everything = prepared()
    before = {kind: state(kind, *everything) for kind in KINDS}
    report = nv.preflight(everything[0], "ce", everything[2], everything[1], batches=3)
    assert report["one step"].status == "passed" and report.rates is not None
    return before, {kind: state(kind, *everything) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_left_as_it_was(ran, kind):
    assert same(ran[0][kind], ran[1][kind])


@pytest.fixture(scope="module", params=["in the model", "in the loader"])
def failed(request):
    model, optimizer, loader = everything = prepared(fails_at=4 if request.param == "in the model" else None)
    before = {kind: state(kind, *everything) for kind in KINDS}
    if request.param == "in the model":
        report = nv.preflight(model, "ce", loader, optimizer, batches=3)
        assert report["one step"].status == "failed" and "out of memory" in report["one step"].measured
    else:

        class Broken:
            generator = loader.generator

            def __iter__(self):
                yield from list(loader)[:2]
                random.random(), torch.rand(3), np.random.rand()
                raise OSError("the disk is gone")

        with pytest.raises(OSError, match="the disk is gone"):
            nv.preflight(model, "ce", Broken(), optimizer)
    return before, {kind: state(kind, *everything) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_left_as_it_was_after_an_exception(failed, kind):
    assert same(failed[0][kind], failed[1][kind])


def test_a_model_that_changes_its_input_does_not_change_the_data():
    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(4, 2)

        def forward(self, x):
            return self.out(x.mul_(2))

    x, y = torch.randn(32, 4), torch.arange(32) % 2
    kept = x.clone()
    nv.preflight(InPlace(), "ce", [(x, y)])
    assert torch.equal(x, kept)


def test_a_teacher_in_the_loss_keeps_its_statistics():
    teacher = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    loss = lambda out, y: nn.functional.mse_loss(out, teacher(y).detach())
    before = [b.clone() for b in teacher.buffers()]
    x = torch.randn(32, 4)
    nv.preflight(nn.Linear(4, 4), loss, [(x, x)])
    assert all(torch.equal(a, b) for a, b in zip(before, teacher.buffers()))


def test_a_scheduler_that_wraps_step_does_not_lead_to_the_users_optimizer():
    model, optimizer, loader = prepared()
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    before = {kind: state(kind, model, optimizer, loader) for kind in ("parameters", "versions", "optimizer")}
    report = nv.preflight(model, "ce", loader, optimizer, batches=3)
    assert report["update lost"].status == "passed" and report["one step"].status == "passed"
    assert all(same(before[kind], state(kind, model, optimizer, loader)) for kind in before)
