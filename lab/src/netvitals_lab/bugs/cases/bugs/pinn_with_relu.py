"""PINN for a second-order equation with ReLU activations: the second derivative of the network is zero everywhere.

source: https://github.com/NVIDIA/physicsnemo/pull/956
catalogue: github
field: physics-informed networks
cause: activation-without-second-derivative NEW
observable: yes
"""
import torch
from torch import nn

import netvitals as nv


class PINN(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        act = nn.ReLU  # bug
        # fix: act = nn.Tanh
        self.net = nn.Sequential(nn.Linear(1, width), act(), nn.Linear(width, width), act(), nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x)


def derivative(u, x):
    return torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True, materialize_grads=True)[0]


model = PINN()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
edge = torch.tensor([[0.0], [1.0]])
with nv.watch(model, optimizer) as watch:
    for iteration in range(700):  # u'' = -pi^2 sin(pi x), u(0) = u(1) = 0
        x = torch.rand(64, 1, requires_grad=True)
        u = model(x)
        u_xx = derivative(derivative(u, x), x)
        residual = u_xx + torch.pi**2 * torch.sin(torch.pi * x)
        loss = residual.pow(2).mean() + 10 * model(edge).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

x = torch.linspace(0, 1, 200).unsqueeze(1)
true = torch.sin(torch.pi * x)
score = 1 - float((model(x) - true).pow(2).mean() / true.var())
learned = score > 0.95
