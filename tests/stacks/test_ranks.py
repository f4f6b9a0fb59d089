"""Two processes train one model with DistributedDataParallel: one run, whose numbers are those of both."""

import os
import subprocess
import sys
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import netvitals as nv

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo"),
]


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
    for x, y in batches(steps):
        loss = F.cross_entropy(model(x[rank::world]), y[rank::world])
        loss.backward()
        optimizer.step()
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


def spawn(folder, who):
    """Two processes, each of which runs this file."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, __file__, str(folder), ",".join(map(str, who))]
    running = [subprocess.Popen([*command, str(rank)], stderr=subprocess.PIPE, text=True) for rank in range(2)]
    try:
        for process in running:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors
    finally:
        for process in running:
            process.kill()


def numbers(run, *metrics):
    frame = run.frame()
    rows = frame.select("step", "vital", "site", "metric", "value").iter_rows()
    return {(s, v, p, m): value for s, v, p, m, value in rows if m in metrics}


def test_one_run_with_the_numbers_of_both(tmp_path):
    spawn(tmp_path, (0, 1))
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("run")] == ["run"]
    train(net(), 0, 1, lambda m, o: nv.watch(m, o, every=1, run=tmp_path / "alone", vitals=["gates", "gradients"]))
    wanted = ("density@0.01", "grad_norm", "update_ratio")
    both = numbers(nv.open_run(tmp_path / "run"), *wanted)
    alone = numbers(nv.open_run(tmp_path / "alone"), *wanted)
    assert both.keys() == alone.keys() and both
    for key, value in alone.items():
        assert both[key] == pytest.approx(value, rel=1e-5), key
    spawn(tmp_path / "bare", ())
    bare, watched = (torch.load(p / "model0.pt") for p in (tmp_path / "bare", tmp_path))
    assert all(torch.equal(bare[k], watched[k]) for k in bare)


def test_a_rank_that_is_not_watched_is_not_waited_for(tmp_path):
    spawn(tmp_path, (0,))
    assert "not every rank is watched" in torch.load(tmp_path / "skipped0.pt")["ranks"]
    assert nv.open_run(tmp_path / "run").status == "finished"


def test_a_rank_that_dies_is_waited_for_only_a_while(monkeypatch):
    from netvitals.capture import StepColumns
    from netvitals.watching import ranks as _ranks

    monkeypatch.setattr(_ranks, "PATIENCE_S", 0.2)
    store = dist.HashStore()
    first, _ = (_ranks.Ranks(store, rank, 2, 0) for rank in range(2))
    page = StepColumns(3, (("gates", ("1",), ("density",)),), torch.tensor([0.5]).double().numpy())
    with pytest.warns(RuntimeWarning, match="stands alone from step 3"):
        assert first.pooled(page) is page
    assert first.pooled(page) is page and "stands alone" in first.notes["ranks"]


if __name__ == "__main__":
    worker(int(sys.argv[3]), sys.argv[1], [int(r) for r in sys.argv[2].split(",") if r])
    os._exit(0)  # gloo's threads may abort a process that takes itself down in its own order
