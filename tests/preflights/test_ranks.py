"""Under torchrun: replicas that differ, and ranks that read the same examples."""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

import netvitals as nv

SAID = {
    "replicas": "failed parameters of rank 1 differ from those of rank 0",
    "examples": "failed all 2 ranks read the same first batch",
    "wrapped": "passed 2 ranks have equal parameters and different batches",
}


def one_rank(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    with open(f"{folder}/{rank}.txt", "w", encoding="utf-8") as file:
        for case in SAID:
            torch.manual_seed(rank if case == "replicas" else 0)
            model = nn.Linear(4, 2)
            if case == "wrapped":
                model = nn.parallel.DistributedDataParallel(model)
            torch.manual_seed(7 if case == "examples" else rank)
            batch = (torch.randn(16, 4), torch.arange(16) % 2)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            found = nv.preflight(model, "ce", [batch], optimizer, seconds=0.01)["ranks"]
            file.write(f"{found.status} {found.measured}\n")
    dist.destroy_process_group()


def test_ranks(tmp_path):
    mp.start_processes(one_rank, (str(tmp_path),), nprocs=2, start_method="fork")
    for rank in (0, 1):
        assert (tmp_path / f"{rank}.txt").read_text().splitlines() == list(SAID.values())
