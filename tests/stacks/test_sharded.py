"""A small GPT trained by two and four processes, its parameters in pieces: one run, as if one process trained it."""

import math
import os
import subprocess
import sys
from datetime import timedelta
from functools import partial

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import netvitals as nv

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
STEPS, WORDS, EXAMPLES = 3, 32, 8
OWN = {  # what a rank cannot tell for the others, as ``skipped`` says
    ("gates", "q05"), ("gates", "q50"), ("gates", "q95"), ("sparsity", "soft"), ("spikes", "p999"),
    ("spikes", "spike_count"), ("spikes", "max_over_median"), ("spikes", "massive"),
    *(("rank", m) for m in ("entropy", "energy", "stable", "participation")),
}  # fmt: skip
PIECES = {("drift", "extreme_threshold")}
ALONE = {"inputs", "outputs", "training"}  # vital signs of the first rank, as ``skipped`` says


class Block(nn.Module):
    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.act, self.down = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            z.view(b, t, self.heads, d // self.heads).transpose(1, 2) for z in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + self.out(mixed)
        return x + self.down(self.act(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, width=16, length=8):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)

    def forward(self, words):
        x = self.words(words) + self.places(torch.arange(words.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def model():
    torch.manual_seed(0)
    return GPT().double()


def loss_of(net, words):
    return F.cross_entropy(net(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())


def batches():
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(0, WORDS, (EXAMPLES, 9), generator=generator) for _ in range(STEPS)]


def train(net, part, watching):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    vitals = watching(net, optimizer)
    for words in batches():
        loss = loss_of(net, words[part])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if vitals is not None:
            vitals.step(loss)
    if vitals is not None:
        vitals.close()
    return vitals


def cut(net, kind, world):
    from torch.distributed.device_mesh import init_device_mesh

    if kind == "ddp of compiled":
        net = torch.compile(net, backend="aot_eager")
    if kind == "compiled ddp":
        return torch.compile(nn.parallel.DistributedDataParallel(net), backend="aot_eager")
    if kind.startswith("ddp"):
        return nn.parallel.DistributedDataParallel(net)
    if kind.startswith("fsdp1"):
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        return FullyShardedDataParallel(
            net,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            use_orig_params=kind == "fsdp1",
            device_id=torch.device("cpu"),
        )
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    two = kind in ("hsdp", "both")
    shape, names = ((2, world // 2), ("a", "b")) if two else ((world,), None)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    if kind in ("tp", "both"):
        for block in net.blocks:
            plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
            parallelize_module(block, mesh["b"] if two else mesh, plan)
    if kind != "tp":
        for part in (*net.blocks, net):
            fully_shard(part, mesh=mesh["a"] if kind == "both" else mesh)
    return net


def worker(rank, world, folder, kind):
    torch.set_num_threads(1)
    patience = timedelta(seconds=60)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        dist.init_process_group("gloo", timeout=patience)
        rank = dist.get_rank()
    else:
        store = dist.FileStore(os.path.join(folder, "store"), world)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=patience)
    groups = {"tp": 1, "both": 2}.get(kind, world)  # of ranks that see different examples
    each = EXAMPLES // groups
    first = rank // (world // groups) * each
    ends = []
    for watching in (None, os.path.join(folder, "run")):
        net = cut(model(), kind, world)
        begin = partial(nv.watch, every=1, run=watching) if watching else lambda m, o: None
        outer = begin if kind != "ddp inside" else lambda m, o, begin=begin: begin(m.module, o)
        vitals = train(net, slice(first, first + each), outer)
        ends.append([(p.to_local() if hasattr(p, "to_local") else p).detach().clone() for p in net.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True)), "watching has changed the training"
    hooks = [h for m in net.modules() for h in (*m._forward_hooks.values(), *m._forward_pre_hooks.values())]
    assert not [h for h in hooks if type(h).__module__.startswith("netvitals")], "a hook was left on the model"
    torch.save(vitals.skipped, os.path.join(folder, f"skipped{rank}.pt"))
    dist.barrier()
    dist.destroy_process_group()


def spawn(programs, folder, kind, world):
    command = [sys.executable, __file__, str(folder), kind, str(world)]
    running = [programs.Popen([*command, str(r)], stderr=subprocess.PIPE, text=True) for r in range(world)]
    try:
        for process in running:
            _, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors
    finally:
        for process in running:
            process.kill()


def numbers(path):
    rows = nv.open_run(path).frame().select("step", "vital", "site", "metric", "value").iter_rows()
    return {(step, vital, site, metric): value for step, vital, site, metric, value in rows}


def norms_of_ranks(world):
    """The length of the first gradient of each rank's own examples, in one process."""
    net, each, found = model(), EXAMPLES // world, []
    for rank in range(world):
        loss = loss_of(net, batches()[0][rank * each : (rank + 1) * each])
        grads = torch.autograd.grad(loss, list(net.parameters()))
        found.append(math.sqrt(sum(float(g.square().sum()) for g in grads)))
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The measurements of one process on the same batches, and the lengths as computed by hand."""
    path = tmp_path_factory.mktemp("alone") / "run"
    train(model(), slice(None), lambda m, o: nv.watch(m, o, every=1, run=path))
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    by_hand = []
    length = lambda tensors: math.sqrt(sum(float(t.square().sum()) for t in tensors))
    for words in batches():
        loss = loss_of(net, words)
        loss.backward()
        before = [p.detach().clone() for p in net.parameters()]
        gradient = length(p.grad for p in net.parameters())
        optimizer.step()
        step = length(p.detach() - b for p, b in zip(net.parameters(), before))
        optimizer.zero_grad()
        by_hand.append((loss.item(), gradient, step / length(before)))
    return numbers(path), by_hand


@pytest.mark.parametrize(
    ("kind", "world"),
    [
        ("fsdp2", 2),
        ("fsdp2", 4),
        ("hsdp", 4),
        ("fsdp1", 2),
        ("fsdp1 flat", 2),
        ("tp", 2),
        ("both", 4),
        ("ddp", 2),
        ("ddp inside", 2),
        ("ddp of compiled", 2),
        ("compiled ddp", 2),
    ],
)
def test_one_run_equal_to_that_of_one_process(kind, world, alone, programs, tmp_path):
    spawn(programs, tmp_path, kind, world)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("run")] == ["run"]
    found, skipped = numbers(tmp_path / "run"), torch.load(tmp_path / "skipped0.pt")
    measurements, by_hand = alone
    for step, (loss, gradient, ratio) in enumerate(by_hand):
        assert found[step, "loss", "model", "loss"] == pytest.approx(loss, rel=1e-6)
        if step % 2 == 0:
            assert found[step, "gradients", "model", "grad_norm"] == pytest.approx(gradient, rel=1e-6)
            assert found[step, "gradients", "model", "update_ratio"] == pytest.approx(ratio, rel=1e-6)
    assert "activations" not in skipped
    for key, value in measurements.items():
        _, vital, site, metric = key
        if vital in ALONE and any(name.startswith(vital) for name in skipped):
            continue
        if (vital, metric.split(":")[0]) in (OWN if "ddp" in kind else OWN | PIECES):
            named = any(name.startswith(vital) for name in skipped)
            assert named, f"{vital} {metric} is of one rank, silently"
        elif key in found:
            assert found[key] == pytest.approx(value, rel=1e-5, abs=1e-9, nan_ok=True), key
        else:
            named = any(site in name or name.startswith(vital) for name in skipped)
            assert named, f"{key} is missing, and nobody says so"
    if "compiled" in kind:
        assert "compiled" in skipped["ranks: micro-batches"]
    elif kind not in ("tp", "both"):
        arrays = nv.open_run(tmp_path / "run").arrays(vital="ranks")
        (norms,) = [a.value for a in arrays if (a.step, a.metric) == (0, "grad_norm")]
        assert norms[:, 0] == pytest.approx(norms_of_ranks(world), rel=1e-5)
    if kind in ("fsdp2", "hsdp") or "ddp" in kind:
        missing = {(vital, metric) for _, vital, _, metric in measurements.keys() - found.keys()}
        missing = {(vital, metric) for vital, metric in missing if f"{vital}: parameters" not in skipped}
        assert missing <= OWN | PIECES, missing


def test_the_same_through_torchrun(alone, programs, tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    done = programs.run(
        [*command, __file__, str(tmp_path), "fsdp2", "2", "0"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("run")] == ["run"]
    found, (_, by_hand) = numbers(tmp_path / "run"), alone
    for step, (loss, gradient, _) in enumerate(by_hand):
        assert found[step, "loss", "model", "loss"] == pytest.approx(loss, rel=1e-6)
        if step % 2 == 0:
            assert found[step, "gradients", "model", "grad_norm"] == pytest.approx(gradient, rel=1e-6)


if __name__ == "__main__":
    worker(int(sys.argv[4]), int(sys.argv[3]), sys.argv[1], sys.argv[2])
    os._exit(0)  # gloo's threads may abort a process that takes itself down in its own order
