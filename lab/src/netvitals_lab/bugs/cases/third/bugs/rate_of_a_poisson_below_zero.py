"""PoissonNLLLoss(log_input=False) of a plain linear output: the rate can be negative, its logarithm is NaN.

source: https://github.com/pytorch/pytorch/pull/184060
catalogue: github
field: count regression
cause: bad-values, output-activation
observable: yes
"""
import torch
from torch import nn

import netvitals as nv


def bicycles(n):
    """Rentals in an hour, from the time, the weather and the season."""
    x = torch.rand(n, 3) * 2 - 1
    rate = torch.exp(-0.7 + x[:, 0] - x[:, 1].pow(2) + 0.8 * (3 * x[:, 2]).sin())
    return x, torch.poisson(rate).unsqueeze(1), rate


net = nn.Sequential(nn.Linear(3, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
# fix: net.append(nn.Softplus())
criterion = nn.PoissonNLLLoss(log_input=False)
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
with nv.watch(net, optimizer) as watch:
    for step in range(400):
        x, y, _ = bicycles(96)
        loss = criterion(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    x, _, rate = bicycles(2000)
    score = 1 - float((net(x).squeeze(1) - rate).pow(2).mean() / rate.var())
learned = score > 0.6
