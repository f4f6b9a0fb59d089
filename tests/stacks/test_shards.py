"""Which piece of which parameter a rank holds, and how many ranks hold the same one, where torch believes in eight."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from netvitals.capture.shards import Piece, is_distributed, local, locals_of, named, pieces_of, tensor_parallel_groups

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="needs torch.distributed")
WORLD = 8


@pytest.fixture
def eight():
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=WORLD)
    yield
    dist.destroy_process_group()


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))


def mesh(*shape):
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", shape, mesh_dim_names=("a", "b")[: len(shape)])


def test_fsdp_cuts_every_parameter_once(eight):
    from torch.distributed.fsdp import fully_shard

    model = net()
    whole = {n: p.detach().clone() for n, p in model.named_parameters()}
    fully_shard(model, mesh=mesh(WORLD))
    found = pieces_of(model, WORLD)
    assert found == {n: Piece(tuple(p.shape), 1.0) for n, p in whole.items()} and not tensor_parallel_groups(model)
    weight = model[0].weight
    assert is_distributed(weight) and torch.equal(local(weight.detach()), whole["0.weight"][:4])
    assert found["0.weight"].numel == 512


def test_copies_along_the_other_dimension_hold_the_same_piece(eight):
    from torch.distributed.fsdp import fully_shard

    model = net()
    fully_shard(model, mesh=mesh(2, 4))
    assert {p.holders for p in pieces_of(model, WORLD).values()} == {2.0}


def test_what_tensor_parallelism_leaves_whole_is_held_by_all(eight):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = parallelize_module(net(), mesh(2, 4)["b"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    found = pieces_of(model, WORLD)
    assert {n: p.holders for n, p in found.items()} == {"0.weight": 2, "0.bias": 2, "2.weight": 2, "2.bias": 8}
    assert tensor_parallel_groups(model) == {(0, 1, 2, 3)}


def test_both_at_once(eight):
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    model, both = net(), mesh(2, 4)
    parallelize_module(model, both["b"], {"0": ColwiseParallel()})
    fully_shard(model, mesh=both["a"])
    assert {n: p.holders for n, p in pieces_of(model, WORLD).items()} == {
        "0.weight": 1, "0.bias": 1, "2.weight": 4, "2.bias": 4,
    }  # fmt: skip
    assert tensor_parallel_groups(model) == {(0, 1, 2, 3)}


def test_a_sum_that_is_not_added_up_is_no_gradient_and_is_named(eight):
    from torch.distributed.tensor import DTensor, Partial

    part = DTensor.from_local(torch.ones(3), mesh(WORLD), [Partial()])
    skipped = {}
    assert locals_of({"w": part, "b": torch.zeros(2)}, skipped).keys() == {"b"}
    assert "have not added up" in skipped["gradient of w"]


@pytest.mark.parametrize("original", [True, False])
def test_fsdp1_holds_slices_that_may_cut_through_a_tensor(eight, original):
    from torch.distributed.fsdp import FullyShardedDataParallel

    whole = {n: p.detach().clone() for n, p in net().named_parameters()}
    model = FullyShardedDataParallel(net(), use_orig_params=original, device_id=torch.device("cpu"))
    found = pieces_of(model, WORLD)
    assert found == {n: Piece(tuple(p.shape), 1.0) for n, p in whole.items()}
    raw = dict(model.named_parameters())
    mine = named(raw, {n: p.detach() for n, p in raw.items()})
    assert mine.keys() == whole.keys()
    assert torch.equal(mine["0.weight"].flatten(), whole["0.weight"].flatten()[: mine["0.weight"].numel()])
    assert 0 < mine["0.weight"].numel() < whole["0.weight"].numel() and mine["2.weight"].numel() == 0


def test_a_model_that_every_rank_holds_has_no_pieces():
    assert pieces_of(net(), 4) == {} and not tensor_parallel_groups(net())
