"""What watching costs at 1,024 ranks: counted with torch's fake process group, a tree of messages, and a synthetic run.

python bench/watching/scale.py            # the numbers of docs/scale.md
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import netvitals as nv
from netvitals.capture import Measurement, Message, ReduceOverRanks, StepColumns
from netvitals.capture.reduce_over_ranks import PooledArrays, message_of
from netvitals.report import render
from netvitals.runs import RunWriter
from netvitals.watching import ranks as ranks_module
from netvitals.watching.ranks import added_up, children

METRICS = (
    "density@0.01",
    "density@0.1",
    "mean",
    "variance",
    "std",
    "sigma",
    "preact_drift",
    "neg_preact",
    "hard",
    "norm",
)


class Collectives(TorchDispatchMode):
    """Counts what torch's distributed library is asked to do."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.namespace in ("c10d", "_c10d_functional")
        return func(*args, **(kwargs or {}))


class Echo:
    """Ranks that do not exist: every one of them has what this one has, and everything that is received is counted."""

    def __init__(self, *_: Any) -> None:
        self.received: list[int] = []
        self.mine: Message | None = None

    def send(self, rank: int, given: bytes) -> None:
        raise AssertionError("the first rank has nobody to send to")

    def receive(self, rank: int) -> bytes:
        assert self.mine is not None
        each = len(children(rank, self.world)) and self._below(rank)
        facts = {r: next(iter(self.mine.ranks.values())) for r in [rank, *(each or ())]}
        given = Message(self.mine.layout, self.mine.sums, self.mine.largest, self.mine.winners, facts).to_bytes()
        self.received.append(len(given))
        return given

    def _below(self, rank: int) -> list[int]:
        found = []
        for child in children(rank, self.world):
            found += [child, *self._below(child)]
        return found

    world = 1


def fake_ranks(world: int, blocks: int = 2, width: int = 32, every: int = 2, steps: int = 4) -> dict[str, Any]:
    """Train a small model cut over ``world`` ranks, of which only the first exists, and count what watching adds.

    Args:
        world: how many ranks torch is made to believe in.
        blocks: of the model.
        width: of the model.
        every: a measured step every so many.
        steps: of training.

    Returns:
        Messages and bytes on a measured step, collectives of the training with and without the watch, and the
        measurements.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    try:
        collectives, made, echo = [], None, Echo()
        echo.world = world
        for watched in (False, True):
            torch.manual_seed(0)
            parts = [nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(blocks)]
            net = nn.Sequential(*parts, nn.Linear(width, 8))
            mesh = init_device_mesh("cpu", (world,))
            for part in (*net[:-1], net):
                fully_shard(part, mesh=mesh)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            with Collectives() as counted, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                vitals = _watched(net, optimizer, every, world, echo) if watched else None
                for _ in range(steps):
                    loss = net(torch.randn(16, width)).square().mean()
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    if vitals is not None:
                        vitals.step(loss)
                made = vitals
            collectives.append(counted.count)
        assert made is not None
        made.close("left")  # nobody is there for a last exchange
        exchanges = -(-steps // every)
        return {
            "world": world,
            "collectives": tuple(collectives),
            "messages": len(echo.received) / exchanges,
            "bytes": max(echo.received),
            "measurements": len(made.measurements) // exchanges,
        }
    finally:
        dist.destroy_process_group()


def _watched(net: nn.Module, optimizer: Any, every: int, world: int, echo: Echo) -> Any:
    """A watch whose ranks answer through ``echo``."""
    real = ranks_module.ranks_of

    def ranks_of(model: Any) -> Any:
        store = dist.HashStore()
        store.add(f"netvitals/{world}/watched", world - 1)
        ranks = ranks_module.Ranks(store, 0, world, world, mail=lambda *_: echo)
        ranks.pieces = ranks_module.pieces_of(model, world)
        message, inner = None, ranks._exchanged

        def exchanged(recorder: Any, facts: Any) -> Any:
            nonlocal message
            losses = np.array([float(v) for v in ranks._losses.values()])
            own = np.concatenate([[len(losses)], losses, np.empty(0) if facts is None else facts])
            echo.mine = recorder.message(0, own)
            return inner(recorder, facts)

        ranks._exchanged = exchanged  # type: ignore[method-assign]
        return ranks

    watch_module: Any = sys.modules["netvitals.watching.api"]  # netvitals.watch itself is the function
    watch_module.ranks_of = ranks_of
    try:
        return nv.watch(net, optimizer, every=every)
    finally:
        watch_module.ranks_of = real


def tree(world: int, numbers: int, losses: int = 50) -> dict[str, float]:
    """Add up ``numbers`` of every rank along the tree, one rank after another in this process.

    Args:
        world: how many ranks.
        numbers: doubles that a measured step has.
        losses: that each rank tells of.

    Returns:
        Seconds and bytes: of a message, that the first rank receives, the most that any rank receives, and of memory.
    """
    box: dict[tuple[int, int], bytes] = {}
    received = [0] * world
    entry = [PooledArrays("v", [np.ones(numbers)], ReduceOverRanks(("sum",)))]

    class Box:
        def __init__(self, rank: int) -> None:
            self.rank = rank

        def send(self, to: int, given: bytes) -> None:
            box[self.rank, to] = given

        def receive(self, sender: int) -> bytes:
            given = box.pop((sender, self.rank))
            received[self.rank] += len(given)
            return given

    begun, found = time.perf_counter(), None
    peak = 0
    for rank in reversed(range(world)):
        if rank == 0:
            tracemalloc.start()
        found = added_up(message_of(entry, rank, np.ones(1 + losses)), rank, world, Box(rank))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found is not None and found.sums[-1] == world and len(found.ranks) == world
    return {
        "message": len(found.to_bytes()),
        "first": received[0],
        "most": max(received),
        "memory": peak,
        "seconds": time.perf_counter() - begun,
    }


def synthetic(folder: Path, layers: int, looks: int, every: int = 50) -> dict[str, float]:
    """A run of that shape through the real writer and reader.

    Args:
        folder: to write to.
        layers: sites.
        looks: measured steps.
        every: training steps between two of them, each with a loss.

    Returns:
        Readings, bytes a measurement, and seconds to write, to list, to read one series and to draw the page.
    """
    rng = np.random.default_rng(0)
    sites = tuple(f"blocks.{i}.act" for i in range(layers))
    layout = (("gates", sites, METRICS),)
    begun = time.perf_counter()
    writer = RunWriter(folder, {"every": every, "model": "synthetic", "sites": []})
    level = rng.uniform(0.2, 0.8, layers * len(METRICS))
    for look in range(looks):
        level = level + rng.normal(0, 1e-3, len(level))
        writer.write_page(StepColumns(look * every, layout, level.astype(np.float32).astype(np.float64)))
        writer.write([Measurement(look * every + i, "loss", "model", "loss", 1 / (1 + look)) for i in range(every)])
        if look % 64 == 63:
            writer.flush(120)
    writer.close()
    written = time.perf_counter() - begun
    size = sum(p.stat().st_size for p in Path(folder).rglob("*") if p.is_file())
    times = {}
    begun = time.perf_counter()
    measurements = nv.open_run(folder).summary.measurements
    times["list"] = time.perf_counter() - begun
    begun = time.perf_counter()
    series = nv.open_run(folder).frame(vital="gates", site=sites[layers // 2])
    times["series"] = time.perf_counter() - begun
    assert len(series) == looks * len(METRICS)
    begun = time.perf_counter()
    page = render(nv.open_run(folder))
    times["page"] = time.perf_counter() - begun
    return {
        "measurements": measurements,
        "bytes": size / measurements,
        "write": written,
        "page_bytes": len(page),
        **times,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--looks", type=int, default=400)
    looks = parser.parse_args().looks
    for world in (2, 8, 64, 1024):
        print("fake process group:", fake_ranks(world))
    for world in (2, 64, 1024):
        print(f"tree of {world}:", {k: round(v, 3) for k, v in tree(world, 100_000).items()})
    for layers in (50, 500):
        with tempfile.TemporaryDirectory() as folder:
            found = synthetic(Path(folder) / "run", layers, looks)
            print(f"{layers} layers × {looks} measured steps:", {k: round(v, 3) for k, v in found.items()})


if __name__ == "__main__":
    main()
