"""What data loading hands to a model is row-major, also where a dimension of size 1 would let other strides pass."""

import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from netvitals_lab import data, models
from netvitals_lab.training import Recipe
from netvitals_lab.training.ensemble import Ensemble

SIZES = st.sampled_from([1, 1, 2, 3, 5])
SOURCES = [
    "digits,train=40",
    "noise,inputs=1,count=16",
    "teacher,count=32",
    "sequence-teacher,count=16,test=8",
    "audio,count=4,test=2",
    "random-tokens,vocab=5,context=1,count=8",
]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def is_row_major(x):
    return x.stride() == torch.empty(x.shape).stride()


@settings(deadline=None, max_examples=60)
@given(shape=st.tuples(SIZES, SIZES, SIZES, SIZES), order=st.permutations(range(4)), seed=st.integers(0, 3))
def test_any_layout_becomes_row_major_with_the_same_values(shape, order, seed):
    stored = torch.randn([shape[i] for i in order], generator=generator(seed))
    x = stored.permute([order.index(i) for i in range(4)])
    assert x.shape == shape
    made = data.row_major(x)
    assert is_row_major(made) and torch.equal(made, x)
    assert (made is x) == is_row_major(x)
    split = data.Split(x, x.movedim(0, 0).flatten(1))
    assert is_row_major(split.x) and is_row_major(split.y) and is_row_major(split[torch.arange(shape[0])].x)


@settings(deadline=None, max_examples=40)
@given(shape=st.tuples(SIZES, SIZES, SIZES, SIZES), pad=st.integers(0, 2))
def test_cropped_and_flipped_images_are_row_major(shape, pad):
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(shape, generator=generator()).contiguous(memory_format=layout)
        assert is_row_major(data.crop_flip(x, generator(), pad=pad))


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("fresh", [False, True])
def test_batches_of_every_kind_of_data_are_row_major(name, fresh):
    dataset = data.load(name)
    if fresh and dataset.draw is None:
        return
    augment = dataset.train.x.ndim == 4 and not fresh
    for x, y in data.batches(dataset, 4, generator(), fresh=fresh, augment=augment):
        assert is_row_major(x) and is_row_major(y)
    for split in (dataset.train, dataset.test, dataset.probe):
        assert is_row_major(split.x) and is_row_major(split.y)


def test_an_ensemble_gets_row_major_batches(monkeypatch):
    dataset, seen = data.load("digits,train=64"), []
    forward = Ensemble.__call__

    def recorded(self, x, each=False):
        seen.append(x)
        return forward(self, x, each=each)

    monkeypatch.setattr(Ensemble, "__call__", recorded)
    members = [models.build("resnet-mini,width=4", seed=s, data=dataset) for s in (0, 1)]
    Ensemble(members, seeds=[0, 1]).train(dataset, Recipe(epochs=1, batch=32, lr=0.01, augment=True))
    assert len(seen) > 2 and all(is_row_major(x) for x in seen)


CRASHING = """
from netvitals_lab import data, models
from netvitals_lab.training import Recipe, train
dataset = data.load("digits,train=64,test=64")
for seed in range(5):
    train(models.build("resnet-mini,width=4", seed=seed, data=dataset), dataset,
          Recipe(epochs=2, batch=32, lr=0.01, augment=True))
print("ended well")
"""


@pytest.mark.slow
def test_the_recipe_that_corrupted_memory_ends_well():
    """oneDNN's AVX2 backward of a 1×1, stride-2, channels-last convolution with few channels writes out of bounds."""
    env = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", CRASHING], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.endswith("ended well\n"), done.stderr[-2000:]
