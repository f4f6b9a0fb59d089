"""With or without netvitals a training run is the same, bit for bit."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv
from netvitals.capture import Vital
from netvitals_lab import models

STEPS = 50


class Breaks(Vital):
    """Fails in the middle of the run, each method on another step."""

    name = "breaks"

    def __init__(self):
        self.observations = 0

    def activation(self, recorder, view):
        self.observations += 1
        if self.observations > 20:
            raise RuntimeError("broken on purpose")

    def gradient(self, recorder, view, g):
        g.norm()
        raise RuntimeError("broken on purpose")

    def parameters(self, recorder, view):
        torch.rand(3)
        if self.observations > 30:
            raise RuntimeError("broken on purpose")


def mlp():
    return models.build("mlp:12-16x3-4,act=gelu"), torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}


def resnet():
    return models.build("resnet-mini,width=4,channels=3,classes=4,dropout=0.1"), torch.optim.AdamW, {"lr": 1e-3}


def gpt():
    model = models.build("gpt-micro,vocab=16,context=8,depth=2,width=16,heads=2,dropout=0.1")
    return model, torch.optim.Adam, {"lr": 1e-3}


def batch(model):
    if isinstance(model, models.GPT):
        return torch.randint(0, 16, (3, 8)), torch.randint(0, 16, (3, 8))
    x = torch.randn(6, 12) if isinstance(model, models.MLP) else torch.randn(4, 3, 8, 8)
    return x, torch.randint(0, 4, (len(x),))


def loss_of(output, y):
    return F.cross_entropy(output.flatten(0, -2), y.flatten())


def train(make, begin=None, save=False):
    torch.manual_seed(0)
    model, kind, settings = make()
    optimizer = kind(model.parameters(), **settings)
    watching = begin(model, optimizer) if begin is not None else None
    for _ in range(STEPS):
        x, y = batch(model)
        loss = loss_of(model(x), y)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if watching is not None:
            watching.step(loss)
        if save:
            torch.save(model, io.BytesIO())
            copy.deepcopy(model)
    if watching is not None:
        watching.close()
    grads = {n: p.grad for n, p in model.named_parameters()}
    return (
        model,
        {
            "parameters and buffers": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "grads": grads,
            "rng": torch.get_rng_state(),
            "modes": [m.training for m in model.modules()],
            "last loss": loss.detach(),
        },
        watching,
    )


def differences(one, two, path=""):
    if isinstance(one, torch.Tensor):
        return [] if torch.equal(one, two) else [path]
    if isinstance(one, dict):
        assert one.keys() == two.keys()
        return [d for k in one for d in differences(one[k], two[k], f"{path}/{k}")]
    if isinstance(one, list):
        return [d for i, (a, b) in enumerate(zip(one, two, strict=True)) for d in differences(a, b, f"{path}/{i}")]
    return [] if one == two else [path]


def hooks(model):
    return [h for m in model.modules() for h in (*m._forward_hooks, *m._forward_pre_hooks, *m._backward_hooks)]


MAKES = [mlp, resnet, gpt]


@pytest.fixture(scope="module")
def bare():
    return {make: train(make)[1] for make in MAKES}


@pytest.mark.parametrize("make", MAKES)
def test_every_vital_sign_on_every_step(make, bare):
    model, watched, watching = train(make, lambda m, o: nv.watch(m, optimizer=o, every=1))
    assert differences(bare[make], watched) == []
    assert len({r.step for r in watching.measurements if r.vital != "loss"}) == STEPS
    assert hooks(model) == []


@pytest.mark.parametrize("make", MAKES)
def test_a_vital_sign_that_raises_in_the_middle(make, bare):
    with pytest.warns(RuntimeWarning, match="broken on purpose"):
        _, watched, _ = train(make, lambda m, o: nv.watch(m, optimizer=o, every=1, vitals=[Breaks()]))
    assert differences(bare[make], watched) == []


@pytest.mark.parametrize("make", MAKES)
def test_a_probe_batch(make, bare):
    def begin(model, optimizer):
        state = torch.get_rng_state()
        x, y = batch(model)
        torch.set_rng_state(state)
        return nv.watch(model, optimizer=optimizer, every=5, probe=(x, y, loss_of))

    _, watched, watching = train(make, begin)
    assert differences(bare[make], watched) == []
    assert len({r.step for r in watching.measurements if r.vital == "gates"}) == STEPS // 5


def test_without_the_optimizer_and_with_a_run_on_disk(tmp_path, bare):
    _, watched, _ = train(resnet, lambda m, o: nv.watch(m, run=tmp_path / "run", every=7))
    assert differences(bare[resnet], watched) == []
    assert set(nv.open_run(tmp_path / "run").steps) >= set(range(0, STEPS, 7))


def test_models_copied_and_saved_while_watched(bare):
    _, watched, _ = train(mlp, lambda m, o: nv.watch(m, optimizer=o, every=1, vitals=["gates"]), save=True)
    assert differences(bare[mlp], watched) == []


def test_a_copy_made_while_watched_is_not_watched(echo_observations):
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    with nv.watch(model, every=1, vitals=[echo_observations]):
        twin = copy.deepcopy(model)
        twin(torch.randn(3, 2)).sum().backward()
        assert echo_observations.seen == 0
        model(torch.randn(3, 2))
        assert echo_observations.seen == 1


@pytest.fixture
def echo_observations():
    class Observations(Vital):
        name, seen = "looks", 0

        def activation(self, recorder, view):
            self.seen += 1

    return Observations()
