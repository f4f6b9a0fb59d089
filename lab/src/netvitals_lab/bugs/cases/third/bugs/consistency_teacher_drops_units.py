"""Consistency model: the averaged teacher is left in train mode, its targets are drawn with dropout.

source: https://github.com/locuslab/ect/issues/21
catalogue: github
field: consistency models
cause: dropout-train-eval, module-mode-wrong
observable: yes
"""
import copy

import torch
from torch import nn

import netvitals as nv


def rings(n):
    angle, radius = torch.rand(n) * 6.2832, torch.randint(1, 3, (n,)) * 0.6
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1) + 0.03 * torch.randn(n, 2)


class Net(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, width), nn.SiLU(), nn.Dropout(0.2), nn.Linear(width, width), nn.SiLU(),
                                 nn.Dropout(0.2), nn.Linear(width, 2))

    def forward(self, x, sigma):
        skip = 0.5**2 / (sigma**2 + 0.5**2)
        out = 0.5 * sigma / (sigma**2 + 0.5**2).sqrt()
        return skip * x + out * self.net(torch.cat([x / (sigma**2 + 0.5**2).sqrt(), sigma.log() / 4], 1))


net = Net()
ema = copy.deepcopy(net).requires_grad_(False)
# fix: ema.eval()
optimizer = torch.optim.RAdam(net.parameters(), lr=2e-3)
disagreement = []
with nv.watch({"net": net, "ema": ema}, optimizer) as watch:
    for step in range(500):
        x, noise = rings(192), torch.randn(192, 2)
        sigma = (torch.randn(192, 1) * 1.0 - 0.8).exp()
        nearer = sigma * 0.7
        student = net(x + sigma * noise, sigma)
        with torch.no_grad():
            teacher = ema(x + nearer * noise, nearer)
            disagreement.append((teacher - ema(x + nearer * noise, nearer)).pow(2).mean())
        loss = ((student - teacher).pow(2) / (sigma - nearer)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(net.parameters(), ema.parameters()):
                q.lerp_(p, 0.05)
        watch.step(loss)

score = -float(torch.stack(disagreement[50:]).mean().sqrt())  # the same teacher asked twice
net.eval()
with torch.no_grad():
    x, sigma = rings(2000), torch.full((2000, 1), 0.4)
    noisy = x + sigma * torch.randn(2000, 2)
    better = (net(noisy, sigma) - x).pow(2).mean() < 0.9 * (noisy - x).pow(2).mean()
learned = score > -1e-4 and bool(better)
