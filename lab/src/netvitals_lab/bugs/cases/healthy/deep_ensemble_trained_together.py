"""Five probabilistic networks trained in one loop with one optimizer, each on its own bootstrap batch, summed losses.

source: https://arxiv.org/abs/1612.01474
field: uncertainty (deep ensembles)
unusual: five networks without common parameters under one loss; Gaussian likelihood that becomes negative; stacked parameters run with vmap
"""
import copy

import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

x_train = torch.rand(400, 1) * 4 - 2
y_train = torch.sin(3 * x_train) + (0.05 + 0.2 * (x_train > 0)) * torch.randn(400, 1)


def member():
    return nn.Sequential(nn.Linear(1, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 2))


ensemble = nn.ModuleList(member() for _ in range(5))
optimizer = torch.optim.Adam(ensemble.parameters(), lr=3e-3)
with nv.watch(ensemble, optimizer) as watch:
    for step in range(500):
        loss = 0
        for net in ensemble:
            i = torch.randint(0, 400, (64,))
            mean, raw = net(x_train[i]).chunk(2, 1)
            loss = loss + F.gaussian_nll_loss(mean, y_train[i], F.softplus(raw) + 1e-4)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

x = torch.linspace(-2, 2, 200).unsqueeze(1)
with torch.no_grad():
    means = torch.stack([net(x)[:, :1] for net in ensemble])
score = 1 - float((means.mean(0) - torch.sin(3 * x)).pow(2).mean() / torch.sin(3 * x).var())
learned = score > 0.95
