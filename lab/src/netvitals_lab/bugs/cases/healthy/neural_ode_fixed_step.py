"""Neural ODE with a fixed-step Runge-Kutta solver, fitted to short pieces of observed spirals.

source: https://arxiv.org/abs/1806.07366
field: neural ODE
unusual: one small network is called forty times per step with its own outputs; deep graph; tiny initial weights
"""
import torch
from torch import nn

import netvitals as nv

A = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])


def true_dynamics(y):
    return y**3 @ A


class Dynamics(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 40), nn.Tanh(), nn.Linear(40, 2))
        for m in self.net:
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, std=0.1)
                nn.init.zeros_(m.bias)

    def forward(self, y):
        return self.net(y**3)


def rk4(f, y, steps, h=0.05):
    path = [y]
    for _ in range(steps):
        k1 = f(y)
        k2 = f(y + h / 2 * k1)
        k3 = f(y + h / 2 * k2)
        k4 = f(y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        path.append(y)
    return torch.stack(path)


with torch.no_grad():
    observed = rk4(true_dynamics, torch.tensor([2.0, 0.0]), 400)
func = Dynamics()
optimizer = torch.optim.RMSprop(func.parameters(), lr=5e-3)
with nv.watch(func, optimizer) as watch:
    for iteration in range(250):
        start = torch.randint(0, 390, (20,))
        batch = torch.stack([observed[s : s + 11] for s in start], 1)
        loss = (rk4(func, batch[0], 10) - batch).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    start = torch.arange(0, 390, 13)
    batch = torch.stack([observed[s : s + 11] for s in start], 1)
    moved = (batch[-1] - batch[0]).abs().mean()
    score = 1 - float((rk4(func, batch[0], 10)[-1] - batch[-1]).abs().mean() / moved)
learned = score > 0.8
