"""What a step did to the parameters: the values before it and the gradients that were used."""

import warnings

import pytest
import torch
from torch import nn

import netvitals as nv
from netvitals.capture import Vital


class Steps(Vital):
    """Keeps copies of what it is shown."""

    name = "steps"

    def __init__(self):
        self.seen = []

    def parameters(self, recorder, view):
        self.seen.append(
            {
                key: {n: t.detach().clone() for n, t in getattr(view, key).items()}
                for key in ("params", "initial", "grads", "before")
            }
        )


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def values(model):
    return {n: p.detach().clone() for n, p in model.named_parameters()}


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[k], two[k]) for k in one)


def loop(model, optimizers, watching, steps=3, clip=None, by_hand=False):
    """Plain training; returns values before, gradients used and values after, by step."""
    record = []
    for _ in range(steps):
        for p in model.parameters():
            p.grad = None if p.grad is None else p.grad.zero_()
        before = values(model)
        loss = model(torch.randn(8, 3)).square().mean()
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        used = {n: p.grad.clone() for n, p in model.named_parameters()}
        for optimizer in optimizers:
            optimizer.step()
        if by_hand:
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
        for p in model.parameters():
            p.grad.zero_()  # in place: a reference to the gradient would now be worthless
        record.append((before, used, values(model)))
        watching.step(loss)
    return record


@pytest.mark.parametrize("given", [True, False])
def test_the_optimizer_given_or_noticed(given):
    model, steps = net(), Steps()
    start = values(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nv.watch(model, optimizer=optimizer if given else None, every=1, vitals=[steps]) as watching:
        record = loop(model, [optimizer], watching, clip=0.01)
    for seen, (before, used, after) in zip(steps.seen, record, strict=True):
        assert same(seen["before"], before) and same(seen["grads"], used) and same(seen["params"], after)
        assert same(seen["initial"], start)


@pytest.mark.parametrize("given", [True, False])
def test_two_optimizers_are_one_step(given):
    model, steps = net(), Steps()
    both = [torch.optim.SGD(model[0].parameters(), lr=0.1), torch.optim.Adam(model[2].parameters())]
    with nv.watch(model, optimizer=both if given else None, every=1, vitals=[steps]) as watching:
        record = loop(model, both, watching)
    for seen, (before, used, after) in zip(steps.seen, record, strict=True):
        assert same(seen["before"], before) and same(seen["grads"], used) and same(seen["params"], after)


def test_a_loop_that_moves_parameters_by_hand():
    model, steps = net(), Steps()
    with nv.watch(model, every=1, vitals=[steps]) as watching:
        record = loop(model, [], watching, by_hand=True)
    for seen, (_, used, after) in zip(steps.seen, record, strict=True):
        assert same(seen["grads"], used) and same(seen["params"], after) and seen["before"] == {}


def test_an_optimizer_of_another_model_is_not_noticed():
    model, other, steps = net(), net(), Steps()
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    with nv.watch(model, every=1, vitals=[steps]) as watching:
        other(torch.randn(4, 3)).sum().backward()
        optimizer.step()
        model(torch.randn(4, 3)).sum().backward()
        watching.step()
    assert steps.seen[0]["before"] == {} and set(steps.seen[0]["grads"]) == set(values(model))


def test_micro_batches_are_one_step():
    model, steps = net(), Steps()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nv.watch(model, optimizer=optimizer, every=1, vitals=[steps]) as watching:
        for i in range(4):
            model(torch.randn(4, 3)).sum().backward()
            if i % 2:
                optimizer.step()
                optimizer.zero_grad()
            watching.step()
    assert [bool(s["before"]) for s in steps.seen] == [True, True]
    assert all(s["grads"] for s in steps.seen)


def test_frozen_parameters_have_no_gradient():
    model, steps = net(), Steps()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
    with nv.watch(model, optimizer=optimizer, every=1, vitals=[steps]) as watching:
        model(torch.randn(4, 3)).sum().backward()
        optimizer.step()
        watching.step()
    assert set(steps.seen[0]["grads"]) == {"2.weight", "2.bias"} and len(steps.seen[0]["params"]) == 4


def test_hooks_of_optimizers_and_parameters_are_gone_after_closing():
    from torch.optim import optimizer as memory

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for given in (optimizer, None):
        with nv.watch(model, optimizer=given, every=1, vitals=[Steps()]) as watching:
            loop(model, [optimizer], watching, steps=2)
        assert not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks
        assert not memory._global_optimizer_pre_hooks and not memory._global_optimizer_post_hooks
        assert all(not p._post_accumulate_grad_hooks for p in model.parameters())


@pytest.mark.parametrize("given", [True, False])
def test_sparse_gradients_are_measured_like_others(given):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Flatten(), nn.ReLU(), nn.Linear(12, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with nv.watch(model, optimizer=optimizer if given else None, every=1) as watching:
            for _ in range(3):
                optimizer.zero_grad()
                loss = model(torch.randint(10, (8, 3))).square().mean()
                loss.backward()
                optimizer.step()
                watching.step(loss)
    wanted = ("gradients", "0.weight", "grad_norm")
    norms = [r.value for r in watching.measurements if (r.vital, r.site, r.metric) == wanted]
    assert norms and all(n > 0 for n in norms)
    assert norms[-1] == pytest.approx(float(model[0].weight.grad.to_dense().norm()), rel=1e-5)
