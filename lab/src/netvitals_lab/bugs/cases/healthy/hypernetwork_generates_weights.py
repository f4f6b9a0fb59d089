"""A hypernetwork turns a task vector into the weights of a small network that is run functionally.

source: Ha, Dai & Le, HyperNetworks (ICLR 2017)
field: hypernetworks
unusual: the main network has no parameters of its own, weights differ from example to example, batched matrix products
"""
import torch
from torch import nn

import netvitals as nv

HIDDEN = 16
SIZES = [HIDDEN, HIDDEN, HIDDEN, 1]  # w1, b1, w2, b2 of a 1-16-1 network


class HyperNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.to_weights = nn.Linear(64, sum(SIZES))
        nn.init.normal_(self.to_weights.weight, std=0.05)
        with torch.no_grad():
            self.to_weights.bias.copy_(torch.cat([
                torch.randn(HIDDEN), torch.linspace(-2, 2, HIDDEN), 0.3 * torch.randn(HIDDEN), torch.zeros(1)]))

    def forward(self, task, points):
        w1, b1, w2, b2 = self.to_weights(self.body(task)).split(SIZES, dim=1)
        hidden = torch.tanh(points @ w1.unsqueeze(1) + b1.unsqueeze(1))
        return hidden @ w2.unsqueeze(2) + b2.unsqueeze(1)


def curves(n, points=20):
    amplitude, phase = torch.rand(n, 1) + 0.5, torch.rand(n, 1) * 2 - 1
    t = torch.rand(n, points, 1) * 4 - 2
    return torch.cat([amplitude - 1, phase], dim=1), t, amplitude.unsqueeze(2) * torch.sin(1.5 * t + 2 * phase.unsqueeze(2))


model = HyperNetwork()
optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
with nv.watch(model, optimizer) as watch:
    for step in range(600):
        task, t, target = curves(32)
        loss = (model(task, t) - target).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

task, t, target = curves(500)
with torch.no_grad():
    score = 1 - float((model(task, t) - target).pow(2).mean() / target.var())
learned = score > 0.9
