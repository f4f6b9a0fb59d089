"""Conditional neural process: from a handful of points a whole function with its uncertainty, a new function each time.

source: https://arxiv.org/abs/1807.01613
field: meta-learning (neural processes)
unusual: sets of different size as context; a negative log-likelihood below zero; every batch is another task
"""
import torch
from torch import nn
from torch.distributions import Normal

import netvitals as nv


def functions(n):
    x = torch.rand(n, 40, 1) * 4 - 2
    y = torch.rand(n, 1, 1) * 1.5 * (1.5 * x + 6 * torch.rand(n, 1, 1)).sin() + 0.3 * torch.randn(n, 1, 1)
    k = int(torch.randint(3, 15, ()))
    return x[:, :k], y[:, :k], x[:, k:], y[:, k:]


class CNP(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(2, dim), nn.ReLU(), nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.decoder = nn.Sequential(nn.Linear(dim + 1, dim), nn.ReLU(), nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 2))

    def forward(self, xc, yc, xt):
        r = self.encoder(torch.cat([xc, yc], 2)).mean(1, keepdim=True).expand(-1, xt.shape[1], -1)
        mean, raw = self.decoder(torch.cat([r, xt], 2)).chunk(2, 2)
        return Normal(mean, 0.05 + 0.95 * nn.functional.softplus(raw))


model = CNP()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(900):
        xc, yc, xt, yt = functions(32)
        loss = -model(xc, yc, xt).log_prob(yt).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    errors, spread = 0, 0
    for _ in range(20):
        xc, yc, xt, yt = functions(100)
        errors, spread = errors + (model(xc, yc, xt).mean - yt).pow(2).mean(), spread + yt.var()
score = 1 - float(errors / spread)
learned = score > 0.7
