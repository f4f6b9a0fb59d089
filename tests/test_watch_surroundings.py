"""Watching inside what users have around their models: autocast, checkpointing, closures, shared weights, threads."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import netvitals as nv


class Net(nn.Module):
    def __init__(self, wrap=lambda f, x: f(x)):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Dropout(0.1), nn.Linear(8, 8), nn.ReLU(inplace=True))
        self.head = nn.Linear(8, 3)
        self.wrap = wrap

    def forward(self, x):
        return self.head(self.wrap(self.body, x))


def run(make, train, watched, steps=6, **options):
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    watching = nv.watch(model, optimizer=optimizer, every=1, **options) if watched else None
    for _ in range(steps):
        loss = train(model, optimizer, torch.randn(10, 6), torch.randint(0, 3, (10,)))
        if watching is not None:
            watching.step(loss)
    if watching is not None:
        watching.close()
    return [p.detach().clone() for p in model.parameters()], torch.get_rng_state(), watching


def plain(model, optimizer, x, y):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def autocast(model, optimizer, x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def closure(model, optimizer, x, y):
    def again():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    return optimizer.step(again)


def twice_through_the_graph(model, optimizer, x, y):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    (0.1 * loss).backward()
    optimizer.step()
    return loss


def with_a_penalty_on_gradients(model, optimizer, x, y):
    x.requires_grad_(True)
    loss = F.cross_entropy(model(x), y)
    (g,) = torch.autograd.grad(loss, x, create_graph=True)
    optimizer.zero_grad()
    (loss + g.square().sum()).backward()
    optimizer.step()
    return loss


def reentrant(f, x):
    return checkpoint(f, x.requires_grad_(True), use_reentrant=True)


CASES = {
    "autocast": (Net, autocast),
    "closure": (Net, closure),
    "retain_graph": (Net, twice_through_the_graph),
    "gradient penalty": (Net, with_a_penalty_on_gradients),
    "checkpoint": (lambda: Net(lambda f, x: checkpoint(f, x, use_reentrant=False)), plain),
    "reentrant checkpoint": (lambda: Net(reentrant), plain),
    "weight norm": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 8)), nn.Tanh(), nn.Linear(8, 3)),
        plain,
    ),
    "inference tensors beside": (Net, lambda *a: (torch.inference_mode()(torch.ones)(2), plain(*a))[1]),
}


@pytest.mark.parametrize("case", CASES)
def test_training_is_the_same_and_something_is_seen(case):
    make, train = CASES[case]
    bare, watched = run(make, train, False), run(make, train, True)
    assert all(torch.equal(p, q) for p, q in zip(bare[0], watched[0])) and torch.equal(bare[1], watched[1])
    assert {r.step for r in watched[2].measurements if r.vital == "gates"} == set(range(6))


def test_shared_weights_are_one_parameter_and_two_sites():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(6, 6)
            self.second, self.head = nn.Linear(6, 6), nn.Linear(6, 3)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.head(F.relu(self.second(F.relu(self.first(x)))))

    _, _, watching = run(Tied, plain, True)
    assert {r.site for r in watching.measurements if r.vital == "gradients"} == {
        "first.weight",
        "first.bias",
        "second.bias",
        "head.weight",
        "head.bias",
        "model",
    }
    assert [s.name for s in watching.sites if s.kind == "activation"] == ["relu()", "relu()#2"]


def test_a_model_in_double_precision_is_measured_in_it():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    with nv.watch(model, every=1) as watching:
        x = torch.randn(50, 6, dtype=torch.float64)
        for _ in range(2):
            model(x).sum().backward()
            watching.step()
    mean = model[0](x).mean().item()
    read = [r.value for r in watching.measurements if (r.vital, r.site, r.metric) == ("preactivations", "1", "mean")]
    assert read == pytest.approx([mean, mean], rel=1e-12)


def test_a_diverged_model_is_watched_to_the_end():
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e30)
    with warnings.catch_warnings(), nv.watch(model, optimizer=optimizer, every=1) as watching:
        warnings.simplefilter("error")
        for _ in range(4):
            loss = model(torch.randn(10, 6)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watching.step(loss)
        found = str(watching.findings())
    assert len({r.step for r in watching.measurements if r.vital == "gates"}) == 4
    assert "finite" in found.lower() or "nan" in found.lower()
