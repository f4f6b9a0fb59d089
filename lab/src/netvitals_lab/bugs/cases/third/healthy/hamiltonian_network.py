"""Hamiltonian network: one scalar is learned, the motion follows from its derivatives, energy is kept by construction.

source: https://arxiv.org/abs/1906.01563
field: Hamiltonian networks
unusual: the network's output never enters the loss, only its gradient; the last bias has no effect; tanh and L-BFGS polish
"""
import torch
from torch import nn

import netvitals as nv


def spring(n):
    x = torch.randn(n, 2) * 1.2
    return x, torch.stack([x[:, 1], -x[:, 0] - 0.4 * x[:, 0] ** 3], 1)


class HNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1, bias=False))

    def forward(self, x):
        with torch.enable_grad():
            x = x.requires_grad_(True)
            d = torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)[0]
        return torch.stack([d[:, 1], -d[:, 0]], 1)


model = HNN()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(800):
        x, dx = spring(128)
        loss = (model(x) - dx).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

x, dx = spring(1000)
score = 1 - float((model(x).detach() - dx).pow(2).mean() / dx.var())
learned = score > 0.85
