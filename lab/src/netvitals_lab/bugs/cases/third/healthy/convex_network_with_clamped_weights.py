"""Input-convex network: after every step the weights between hidden layers are clamped to be non-negative.

source: https://arxiv.org/abs/1609.07152
field: convex regression (ICNN)
unusual: weights are changed outside of the optimizer after each step; many of them end at exactly zero
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


def cost(n):
    """The price of a route: a maximum of planes plus a bowl, convex in the inputs."""
    x = torch.rand(n, 4) * 4 - 2
    return x, (x @ planes).amax(1) + 0.3 * x.pow(2).sum(1) + 0.05 * torch.randn(n)


planes = torch.randn(4, 5)


class ICNN(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.x1, self.x2, self.x3 = nn.Linear(4, width), nn.Linear(4, width), nn.Linear(4, 1)
        self.z2, self.z3 = nn.Linear(width, width, bias=False), nn.Linear(width, 1, bias=False)
        self.project()

    def project(self):
        with torch.no_grad():
            self.z2.weight.clamp_(min=0)
            self.z3.weight.clamp_(min=0)

    def forward(self, x):
        z = F.softplus(self.x1(x))
        z = F.softplus(self.x2(x) + self.z2(z))
        return (self.x3(x) + self.z3(z)).squeeze(1)


net = ICNN()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
with nv.watch(net, optimizer) as watch:
    for step in range(600):
        x, y = cost(96)
        loss = (net(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        net.project()
        watch.step(loss)

with torch.no_grad():
    x, y = cost(2000)
    score = 1 - float((net(x) - y).pow(2).mean() / y.var())
learned = score > 0.9
