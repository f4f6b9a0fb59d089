"""Two processes train one model with DistributedDataParallel: one run, whose numbers are those of both."""

import os
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import netvitals as nv
from netvitals.capture import Buffer
from netvitals.capture.tensor_shard import TensorShard
from netvitals.watching import ranks as _ranks
from netvitals.watching.shared_steps import SharedSteps

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def batches(steps):
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(16, 6, generator=generator), torch.randint(0, 3, (16,), generator=generator)) for _ in range(steps)
    ]


def train(model, rank, world, watching, steps=4):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    vitals = watching(model, optimizer)
    for step, (x, y) in enumerate(batches(steps)):
        if rank == 1 and str(step) == os.environ.get("RANK_1_DIES_ON"):
            os._exit(1)
        loss = F.cross_entropy(model(x[rank::world]), y[rank::world])
        loss.backward()
        optimizer.step()
        if rank == 1 and str(step) == os.environ.get("RANK_1_DRIFTS_ON"):
            with torch.no_grad():
                model.module[2].bias[1] += 1e-6
        optimizer.zero_grad()
        if vitals is not None:
            vitals.step(loss)
    if vitals is not None:
        vitals.close()
    return vitals


def worker(rank, folder, who):
    torch.set_num_threads(1)
    store = dist.FileStore(os.path.join(folder, "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=60))
    model = DistributedDataParallel(net())
    begin = lambda m, o: nv.watch(m, o, every=1, run=os.path.join(folder, "run"), vitals=["gates", "gradients"])
    vitals = train(model, rank, 2, begin if rank in who else lambda m, o: None)
    torch.save(model.module.state_dict(), os.path.join(folder, f"model{rank}.pt"))
    if vitals is not None:
        torch.save(vitals.skipped, os.path.join(folder, f"skipped{rank}.pt"))
    dist.barrier()
    dist.destroy_process_group()


def spawn(programs, folder, who):
    """Two processes, each of which runs this file."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, __file__, str(folder), ",".join(map(str, who))]
    running = [programs.Popen([*command, str(rank)], stderr=subprocess.PIPE, text=True) for rank in range(2)]
    try:
        for process in running:
            _, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors
    finally:
        for process in running:
            process.kill()


def numbers(run, *metrics):
    frame = run.frame()
    rows = frame.select("step", "vital", "site", "metric", "value").iter_rows()
    return {(s, v, p, m): value for s, v, p, m, value in rows if m in metrics}


def test_one_run_with_the_numbers_of_both(programs, tmp_path):
    spawn(programs, tmp_path, (0, 1))
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("run")] == ["run"]
    train(net(), 0, 1, lambda m, o: nv.watch(m, o, every=1, run=tmp_path / "alone", vitals=["gates", "gradients"]))
    wanted = ("density@0.01", "grad_norm", "update_ratio", "loss")
    both = numbers(nv.open_run(tmp_path / "run"), *wanted)
    alone = numbers(nv.open_run(tmp_path / "alone"), *wanted)
    assert both.keys() == alone.keys() and both
    for key, value in alone.items():
        assert both[key] == pytest.approx(value, rel=1e-5), key
    checks = {c.name: c.status for c in nv.open_run(tmp_path / "run").findings().checks}
    assert checks["replicas differ"] == checks["gradients gone"] == "passed"
    spawn(programs, tmp_path / "bare", ())
    bare, watched = (torch.load(p / "model0.pt") for p in (tmp_path / "bare", tmp_path))
    assert all(torch.equal(bare[k], watched[k]) for k in bare)


def test_ranks_that_drift_apart_are_named_with_the_tensor_and_the_step(programs, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK_1_DRIFTS_ON", "3")
    spawn(programs, tmp_path, (0, 1))
    (found,) = (f for f in nv.open_run(tmp_path / "run").findings() if f.rule == "replicas differ")
    assert found.severity == "critical" and found.sites == ("2.bias",) and found.since == 3
    assert found.what == "Ranks 0 and 1 hold different weights in 2.bias."


def test_a_rank_that_is_not_watched_is_not_waited_for(programs, tmp_path):
    spawn(programs, tmp_path, (0,))
    assert "not every rank is watched" in torch.load(tmp_path / "skipped0.pt")["ranks"]
    assert nv.open_run(tmp_path / "run").status == "finished"


def test_a_rank_that_dies_is_waited_for_only_a_while(monkeypatch):
    monkeypatch.setattr(_ranks, "PATIENCE_S", 0.3)
    store = dist.HashStore()
    both = [_ranks.Ranks(store, rank, 2, 0) for rank in range(2)]
    with ThreadPoolExecutor(2) as threads, warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        meeting = [threads.submit(ranks._agreed) for ranks in both]
        assert [m.result() for m in meeting] == [True, True]
        assert both[0].pooled(None, 3) == {}  # the other one never sends
    assert "stands alone from step 3" in both[0].notes["ranks"] and not both[0].together
    assert any("stands alone" in str(w.message) for w in heard)
    assert both[0].pooled(None, 4) == {}


def test_training_whose_rank_was_killed_ends_and_keeps_what_was_measured(programs, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK_1_DIES_ON", "2")
    command = [sys.executable, __file__, str(tmp_path), "0,1"]
    running = [programs.Popen([*command, str(rank)], stderr=subprocess.PIPE, text=True) for rank in range(2)]
    _, errors = running[0].communicate(timeout=300)
    running[1].wait(timeout=60)
    assert running[0].returncode != 0 and "Error" in errors, "the training itself has failed, and says so"
    run = nv.open_run(tmp_path / "run")
    assert run.status != "running" and set(run.frame(vital="gates")["step"]) >= {0, 1}
    assert sorted(set(run.frame(vital="loss")["step"]))[:2] == [0, 1]


def exchanged(losses, facts=None):
    """What rank 0 hears of two ranks that meet in one process."""
    store = dist.HashStore()
    both = [_ranks.Ranks(store, rank, 2, 1) for rank in range(2)]
    for ranks, given in zip(both, losses):
        for step, loss in enumerate(given):
            ranks.loss(step, loss)
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(lambda ranks: ranks.pooled(None, 0), both))


def test_losses_of_all_steps_since_the_last_exchange_come_along():
    first, second = exchanged([[1.0, 2.0], [3.0, 6.0]])
    assert second == {} and {rank: row.tolist() for rank, row in first.items()} == {0: [2, 1, 2], 1: [2, 3, 6]}


class Told:
    """Ranks as a watch sees them, with the losses of another one written down."""

    rank, world, together, looks, examples_of, part = 0, 2, True, True, 0, TensorShard(0, 1)

    def __init__(self, other):
        self.notes, self.pieces, self.other, self._losses = {}, {}, other, {}

    def loss(self, step, value):
        self._losses[step] = value

    def own_losses(self):
        found, self._losses = self._losses, {}
        return found

    def pooled(self, recorder, step, facts=None):
        return {0: np.array([len(self._losses), *self._losses.values()]), 1: np.array([len(self.other), *self.other])}


@pytest.mark.parametrize(
    ("other", "status", "expected"),
    [([3.0, 5.0], "finished", [2.0, 3.5]), ([3.0], "finished", [1.0, 2.0]), ([3.0, 5.0], "failed", [1.0, 2.0])],
)
def test_the_loss_is_the_mean_over_ranks_or_it_is_said_whose_it_is(other, status, expected):
    noted = Buffer()
    steps = SharedSteps(Told(other), noted, None)
    steps.loss(0, 1.0)
    steps.loss(1, 2.0)
    steps.close(status)
    assert [r.value for r in noted.measurements()] == expected
    assert ("loss of other ranks" in steps.notes) is (expected == [1.0, 2.0])


if __name__ == "__main__":
    worker(int(sys.argv[3]), sys.argv[1], [int(r) for r in sys.argv[2].split(",") if r])
    os._exit(0)  # gloo's threads may abort a process that takes itself down in its own order
