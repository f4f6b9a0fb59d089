"""Reversible instance normalisation for series with gaps subtracts the mean but forgets to divide by the deviation.

source: https://github.com/WenjieDu/PyPOTS/issues/453
catalogue: github
field: forecasting (series with missing values)
cause: inputs-not-scaled
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

PAST, AHEAD = 24, 6


def sales(n):
    """Shops of very different size; the shape of the week is the same for all of them."""
    size = 10 ** (torch.rand(n, 1) * 4)
    t = torch.arange(PAST + AHEAD) + torch.randint(0, 7, (n, 1))
    week = torch.tensor([0.2, 0.1, 0.0, 0.3, 0.7, 1.0, 0.6])
    y = size * (2 + week[t % 7] + 0.03 * torch.randn(n, PAST + AHEAD))
    seen = (torch.rand(n, PAST) < 0.9).float()
    return y[:, :PAST] * seen, seen, y[:, PAST:]


class RevIN(nn.Module):
    def normalize(self, x, mask):
        count = mask.sum(1, keepdim=True)
        self.mean = (x * mask).sum(1, keepdim=True) / count
        x = (x - self.mean) * mask
        self.stdev = ((x**2).sum(1, keepdim=True) / count + 1e-5).sqrt()
        return x  # bug
        # fix: return x / self.stdev

    def denormalize(self, y):
        return y * self.stdev + self.mean


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.revin = RevIN()
        self.net = nn.Sequential(nn.Linear(2 * PAST, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, AHEAD))

    def forward(self, x, mask):
        return self.revin.denormalize(self.net(torch.cat([self.revin.normalize(x, mask), mask], 1)))


model = Forecaster()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(500):
        x, mask, y = sales(64)
        loss = ((model(x, mask) - y) / model.revin.mean).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    x, mask, y = sales(1000)
    error = ((model(x, mask) - y) / model.revin.mean).pow(2).mean()
    flat = ((model.revin.mean - y) / model.revin.mean).pow(2).mean()
score = 1 - float(error / flat)
learned = score > 0.6
