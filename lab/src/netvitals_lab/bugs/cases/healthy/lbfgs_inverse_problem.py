"""Inverse problem with L-BFGS: the solution of an oscillator and its unknown friction are found together.

source: https://www.sciencedirect.com/science/article/pii/S0021999118307125
field: physics-informed networks (inverse)
unusual: LBFGS with a closure and line search, several evaluations per step; double precision; a physical constant as a lone parameter
"""
import torch
from torch import nn

import netvitals as nv

torch.set_default_dtype(torch.float64)
friction, spring = 0.4, 4.0
omega = (spring - friction**2 / 4) ** 0.5
t_data = torch.linspace(0, 4, 30).unsqueeze(1)
y_data = torch.exp(-friction / 2 * t_data) * torch.cos(omega * t_data) + 0.01 * torch.randn(30, 1)


class Oscillator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
        self.mu = nn.Parameter(torch.tensor(0.0))

    def forward(self, t):
        return self.net(t / 2 - 1)


model = Oscillator()
optimizer = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=5, history_size=20, line_search_fn="strong_wolfe")
t = torch.linspace(0, 4, 60).unsqueeze(1).requires_grad_(True)


def objective():
    y = model(t)
    dy = torch.autograd.grad(y, t, torch.ones_like(y), create_graph=True)[0]
    ddy = torch.autograd.grad(dy, t, torch.ones_like(dy), create_graph=True)[0]
    physics = (ddy + model.mu * dy + spring * y).pow(2).mean()
    return (model(t_data) - y_data).pow(2).mean() + 1e-2 * physics


def closure():
    optimizer.zero_grad()
    loss = objective()
    loss.backward()
    return loss


with nv.watch(model, optimizer) as watch:
    for step in range(120):
        loss = optimizer.step(closure)
        watch.step(loss)

torch.set_default_dtype(torch.float32)
score = -abs(float(model.mu) - friction)
learned = score > -0.1
