"""SIREN: sine layers with omega 30 and their own initialisation learn a picture by its gradients only.

source: https://arxiv.org/abs/2006.09661
field: implicit picture (SIREN)
unusual: sine activations with arguments of many periods; the loss is of derivatives with respect to the input
"""
import torch
from torch import nn

import netvitals as nv

OMEGA = 30.0


class Sine(nn.Module):
    def __init__(self, n_in, n_out, first=False):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        bound = 1 / n_in if first else (6 / n_in) ** 0.5 / OMEGA
        nn.init.uniform_(self.linear.weight, -bound, bound)

    def forward(self, x):
        return torch.sin(OMEGA * self.linear(x))


def picture(p):
    return (6 * p[:, :1] * p[:, 1:]).sin() + 0.5 * (8 * p[:, :1]).cos()


net = nn.Sequential(Sine(2, 48, first=True), Sine(48, 48), nn.Linear(48, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=5e-4)
with nv.watch(net, optimizer) as watch:
    for step in range(500):
        p = (torch.rand(256, 2) * 2 - 1).requires_grad_(True)
        wanted = torch.autograd.grad(picture(p).sum(), p)[0]
        slope = torch.autograd.grad(net(p).sum(), p, create_graph=True)[0]
        loss = (slope - wanted).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    p = torch.rand(2000, 2) * 2 - 1
    error = net(p) - picture(p)
score = 1 - float(error.var() / picture(p).var())
learned = score > 0.7
