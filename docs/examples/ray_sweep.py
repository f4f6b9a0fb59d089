"""A sweep with Ray Tune, every trial watched: python ray_sweep.py FOLDER, then netvitals view FOLDER."""

import sys

import torch
import torch.nn.functional as F
from ray import tune

import netvitals as nv


def trial(config):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 32), config["activation"](), torch.nn.Linear(32, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=config["lr"])
    with nv.watch(net, optimizer, run=f"{config['folder']}/{tune.get_context().get_trial_id()}", every=5) as vitals:
        for _ in range(20):
            x = torch.randn(64, 8)
            loss = F.cross_entropy(net(x), x[:, :3].argmax(1))
            optimizer.zero_grad(), loss.backward(), optimizer.step()
            vitals.step(loss)
    tune.report({"loss": loss.item(), "findings": len(vitals.findings())})


if __name__ == "__main__":
    space = {"lr": tune.grid_search([0.03, 0.3]), "activation": tune.grid_search([torch.nn.ReLU, torch.nn.Tanh])}
    found = tune.Tuner(trial, param_space={**space, "folder": sys.argv[1]}).fit()
    print(found.get_best_result("loss", "min").metrics["loss"])
