"""Quantile forecast: the branch for overestimates has the wrong sign, so the loss falls the higher one predicts.

source: https://github.com/scikit-learn/scikit-learn/pull/6429
catalogue: github
field: probabilistic forecasting (quantiles)
cause: wrong-sign
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

taus = torch.tensor([0.1, 0.5, 0.9])


def load(n):
    """Demand for the next hour from the last twelve, with noise that grows with the hour of the day."""
    hour = torch.rand(n, 1) * 24
    past = 2 + (0.26 * (hour - torch.arange(12, 0, -1))).sin() + 0.1 * torch.randn(n, 12)
    noise = 0.1 + 0.02 * hour
    return torch.cat([past, hour / 24], 1), 2 + (0.26 * hour).sin() + noise * torch.randn(n, 1)


def pinball(prediction, target):
    difference = target - prediction
    above = difference > 0
    return torch.where(above, taus * difference, (1 - taus) * difference).mean()  # bug
    # fix: return torch.where(above, taus * difference, (taus - 1) * difference).mean()


net = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
with nv.watch(net, optimizer) as watch:
    for step in range(700):
        x, y = load(128)
        loss = pinball(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    x, y = load(4000)
    coverage = (y < net(x)).float().mean(0)
score = -float((coverage - taus).abs().max())
learned = score > -0.15
