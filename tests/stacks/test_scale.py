"""What watching adds at 1,024 ranks stays within the bounds that docs/scale.md states."""

import importlib
import math
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

BENCH = Path(__file__).parents[2] / "bench" / "watching"
A_CHANNEL, A_BLOCK = 8, 64  # doubles of a message, by channel of an activation and by layer with its activation
A_RANK = 8  # doubles that every rank adds, beside its losses; a message has those of half the ranks at most


@pytest.fixture(scope="module")
def scale():
    sys.path.insert(0, str(BENCH))
    try:
        yield importlib.import_module("scale")
    finally:
        sys.path.remove(str(BENCH))
        sys.modules.pop("scale", None)


fake = pytest.mark.skipif(not dist.is_available(), reason="needs torch.distributed")


@fake
@pytest.mark.parametrize("world", [2, 64, 1024])
def test_a_measured_step_adds_no_collective_and_one_message_a_level_of_the_tree(scale, world):
    found = scale.fake_ranks(world)
    bare, watched = found["collectives"]
    assert watched == bare > 0, "watching has added collectives to the training"
    assert found["messages"] == math.log2(world)


@fake
@pytest.mark.parametrize(("world", "blocks", "width"), [(2, 2, 32), (2, 2, 128), (2, 8, 32), (1024, 2, 32)])
def test_a_message_has_the_size_that_is_stated(scale, world, blocks, width):
    every = 2
    found = scale.fake_ranks(world, blocks, width, every)
    model = 8 * blocks * (A_CHANNEL * width + A_BLOCK) + 8 * (world // 2) * (every + A_RANK)
    assert 0.5 * model < found["bytes"] <= 1.15 * model + 500, f"{found['bytes']} bytes, {model} were stated"


@pytest.mark.parametrize("world", [2, 64, 1024])
def test_the_first_rank_receives_what_a_tree_hands_it(scale, world):
    numbers, losses = 20_000, 50
    found = scale.tree(world, numbers, losses)
    levels = math.ceil(math.log2(world))
    ranks = 8 * world * (losses + A_RANK)
    assert found["first"] <= 1.1 * (8 * numbers * levels + ranks) + 1000 * levels
    assert found["memory"] <= 5 * 8 * numbers + 10 * ranks + 500_000, f"{found['memory']} bytes at its peak"
    flat = 8 * numbers * (world - 1)
    assert world < 8 or found["first"] < 0.2 * flat, "it grows with ranks × layers"


def test_a_run_grows_by_a_fixed_number_of_bytes_a_reading(scale, tmp_path):
    small = scale.synthetic(tmp_path / "small", layers=50, looks=20)
    large = scale.synthetic(tmp_path / "large", layers=200, looks=60)
    assert large["measurements"] == 60 * (200 * 10 + 50) and small["measurements"] == 20 * (50 * 10 + 50)
    assert large["bytes"] < 26 and large["bytes"] < 1.2 * small["bytes"]
