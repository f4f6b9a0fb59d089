"""Ray Train with two workers, watched as one: python ray_train.py FOLDER, then netvitals view FOLDER."""

import sys

import ray.train
import ray.train.torch
import torch
import torch.nn.functional as F

import netvitals as nv


def worker(config):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
    net = ray.train.torch.prepare_model(net)  # DistributedDataParallel
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.manual_seed(ray.train.get_context().get_world_rank())
    with nv.watch(net, optimizer, run=f"{config['folder']}/trained", every=5) as vitals:  # on every worker; one run
        for _ in range(20):
            x = torch.randn(64, 8)
            loss = F.cross_entropy(net(x), x[:, :3].argmax(1))
            optimizer.zero_grad(), loss.backward(), optimizer.step()
            vitals.step(loss)


if __name__ == "__main__":
    scaling = ray.train.ScalingConfig(num_workers=2, use_gpu=False)
    ray.train.torch.TorchTrainer(worker, train_loop_config={"folder": sys.argv[1]}, scaling_config=scaling).fit()
