"""DeepONet: a branch net reads a function at its sensors, a trunk net the place; their product is the integral there.

source: https://arxiv.org/abs/1910.03193
field: operator learning (DeepONet)
unusual: two networks joined by a product; a free bias; the same function is asked at many places
"""
import torch
from torch import nn

import netvitals as nv

sensors = torch.linspace(0, 1, 40)


def functions(n):
    c, k = torch.randn(n, 4), torch.arange(1, 5)
    u = (c.unsqueeze(1) * (3 * k * sensors.unsqueeze(1)).cos()).sum(2)
    y = torch.rand(n, 1)
    return u, y, (c * (3 * k * y).sin() / (3 * k)).sum(1)


class DeepONet(nn.Module):
    def __init__(self, p=32):
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, p))
        self.trunk = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, p), nn.Tanh())
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, u, y):
        return (self.branch(u) * self.trunk(y)).sum(1) + self.bias


model = DeepONet()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(900):
        u, y, g = functions(128)
        loss = (model(u, y) - g).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    u, y, g = functions(3000)
    score = 1 - float((model(u, y) - g).pow(2).mean() / g.var())
learned = score > 0.75
