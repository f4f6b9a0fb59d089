"""A Hamiltonian network of ReLUs: its gradient is piecewise constant, and the loss, which is of the gradient, stalls.

source: https://github.com/CampusAI/Hamiltonian-Generative-Networks/issues/68
catalogue: github
field: Hamiltonian networks
cause: activation-without-second-derivative NEW, detached-graph
observable: yes
"""
import torch
from torch import nn

import netvitals as nv


def pendulum(n):
    q, p = (torch.rand(n, 1) * 2 - 1) * 3, (torch.rand(n, 1) * 2 - 1) * 2
    return torch.cat([q, p], 1), torch.cat([p, -q.sin()], 1)


class HamiltonianNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 1))  # bug
        # fix: self.net = nn.Sequential(nn.Linear(2, 24), nn.Softplus(), nn.Linear(24, 24), nn.Softplus(), nn.Linear(24, 1))

    def forward(self, x):
        x = x.requires_grad_(True)
        dH = torch.autograd.grad(self.net(x).sum(), x, create_graph=True)[0]
        return torch.cat([dH[:, 1:], -dH[:, :1]], 1)


model = HamiltonianNet()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
with nv.watch(model, optimizer) as watch:
    for step in range(500):
        x, dx = pendulum(128)
        loss = (model(x) - dx).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

x, dx = pendulum(1000)
score = 1 - float((model(x) - dx).pow(2).mean() / dx.var())
learned = score > 0.975
