"""Two hundred random models train the same with every measurement of netvitals as without."""

from __future__ import annotations

import contextlib
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import netvitals as nv
from netvitals import singular
from netvitals.capture import preserved

sys.path.insert(0, str(Path(__file__).parent))  # the bench uses the same models

from random_models import PARTS, STATEFUL, compose
from random_training import CALLS, WATCHES, WAYS, differences, disturbed, train

MODELS = 200
BLOCKS = 4
LONG = ("readout", "learning coefficient")  # as long as all others together: each on one model of sixteen


def ways_of(seed):
    """A quarter of the ways, another quarter for the next model."""
    ways = [way for way in WAYS if way not in LONG]
    return [*ways[seed % 4 :: 4], *(way for i, way in enumerate(LONG) if seed % 16 == 8 * i)]


@pytest.mark.parametrize("block", [0, *(pytest.param(b, marks=pytest.mark.slow) for b in range(1, BLOCKS))])
def test_training_is_the_same_with_and_without(block):
    repeated, wrong = 0, []
    for seed in range(block * MODELS // BLOCKS, (block + 1) * MODELS // BLOCKS):
        found = disturbed(seed, ways_of(seed))
        if found is not None:
            repeated += 1
            wrong += found
    assert repeated == MODELS // BLOCKS, "models that do not repeat themselves prove nothing"
    assert not wrong, f"{len(wrong)} trainings were changed, the first: {wrong[0]}"


@pytest.mark.parametrize("way", [*CALLS, "watch a probe"])
def test_parts_with_a_state_in_python_are_the_same_where_the_model_is_run_for_them(way):
    first, second = train(STATEFUL), train(STATEFUL)
    assert not differences(first.state, second.state)
    assert not differences(first.state, train(STATEFUL, way).state)


def test_the_generator_reaches_every_part_and_most_measurements_succeed():
    met = {name for seed in range(MODELS) for name in compose(seed)}
    assert met == set(PARTS) and len(PARTS) >= 30
    raised = [train(compose(seed), way, seed).raised for seed in range(4) for way in CALLS]
    assert sum(map(bool, raised)) < len(raised) // 2, [r for r in raised if r]
    assert set(WATCHES) | set(CALLS) == set(WAYS)
    assert {way for seed in range(16) for way in ways_of(seed)} == set(WAYS)


def test_a_difference_would_be_noticed():
    names = ["torch noise", "counter"]
    one = train(names).state
    torch.manual_seed(99)
    assert differences(one, train(names, seed=1).state)
    other = train(names).state
    other["attributes"][3]["calls"] = -1
    assert differences(one, other) or "calls" not in str(other["attributes"])


class Noisy(nn.Module):
    def forward(self, x):
        return x * (1 + 0.1 * np.random.rand()) + 0.1 * torch.randn_like(x) + 0.1 * random.random()


@pytest.mark.parametrize(
    "measure",
    [
        lambda m, b: singular.readout(m, "ce", b),
        lambda m, b: nv.checkup(m, "ce", b, singular=True, curvature=False),
        lambda m, b: singular.learning_coefficient(m, "ce", b, chains=1, draws=2, step_size=1e-5),
    ],
)
def test_generators_of_a_noisy_model_are_where_they_were(measure):
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), Noisy(), nn.Linear(6, 3))
    batch = torch.randn(12, 4), torch.randint(0, 3, (12,))
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), np.random.get_state()[2], random.getstate()
    with contextlib.suppress(ValueError, RuntimeError):  # noise may be refused
        measure(model, batch)
    assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[3]
    assert (np.random.get_state()[1] == before[1]).all() and np.random.get_state()[2] == before[2]


def test_settings_memory_and_hooks_are_put_back_also_after_an_error():
    model = nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)).to(memory_format=torch.channels_last)
    calls = []
    model[0].register_forward_hook(lambda *_: calls.append(1))
    model[0].weight.register_hook(lambda g: calls.append(2))
    model.seen = {"a": [1, 2]}
    handles = [dict(m._forward_hooks) for m in model.modules()]
    strides = [p.stride() for p in model.parameters()]

    def harm():
        model.seen["a"].append(3)
        model.seen["b"] = model.extra = 1
        model[0].weight.data = model[0].weight.data.contiguous() * 2
        model[0].weight.requires_grad_(False)
        model[1](model[0](torch.randn(2, 2, 3, 3))).sum().backward()
        torch.set_default_dtype(torch.float64)
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.set_autocast_enabled("cpu", True)
        torch.backends.mha.set_fastpath_enabled(False)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), preserved(model, parameters=True):
        harm()
    assert torch.get_default_dtype() is torch.float32 and not torch.are_deterministic_algorithms_enabled()
    assert not torch.is_autocast_enabled("cpu") and torch.backends.mha.get_fastpath_enabled()
    assert model.seen == {"a": [1, 2]} and not hasattr(model, "extra")
    assert [p.stride() for p in model.parameters()] == strides and model[0].weight.requires_grad
    assert calls == [] and [dict(m._forward_hooks) for m in model.modules()] == handles
    assert all(p.grad is None for p in model.parameters())
    model(torch.randn(2, 2, 3, 3)).sum().backward()
    assert calls == [1, 2]
