"""PINN for the heat equation with hard-wired sampling of interior, initial and boundary points; derivatives by autograd.grad.

source: https://www.sciencedirect.com/science/article/pii/S0021999118307125
field: physics-informed networks
unusual: no data at all, new collocation points each step; inputs require gradients; loss of three parts of different sizes; very small loss
"""
import torch
from torch import nn

import netvitals as nv


class Network(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
        for m in self.net:
            if isinstance(m, nn.Linear):
                nn.init.xavier_normal_(m.weight)
                nn.init.zeros_(m.bias)

    def forward(self, x, t):
        return self.net(torch.cat([x, t], 1))


def grad(u, x):
    return torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0]


kappa = 0.1  # u_t = kappa u_xx, u(x, 0) = sin(pi x), u(0, t) = u(1, t) = 0
model = Network()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.997)
with nv.watch(model, optimizer) as watch:
    for iteration in range(600):
        x, t = torch.rand(96, 1, requires_grad=True), torch.rand(96, 1, requires_grad=True)
        u = model(x, t)
        residual = grad(u, t) - kappa * grad(grad(u, x), x)
        x0 = torch.rand(32, 1)
        initial = model(x0, torch.zeros(32, 1)) - torch.sin(torch.pi * x0)
        edge = model(torch.randint(0, 2, (32, 1)).float(), torch.rand(32, 1))
        loss = residual.pow(2).mean() + 10 * initial.pow(2).mean() + 10 * edge.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        watch.step(loss)

with torch.no_grad():
    x, t = torch.rand(2000, 1), torch.rand(2000, 1)
    true = torch.exp(-kappa * torch.pi**2 * t) * torch.sin(torch.pi * x)
    score = 1 - float((model(x, t) - true).pow(2).mean() / true.var())
learned = score > 0.97
