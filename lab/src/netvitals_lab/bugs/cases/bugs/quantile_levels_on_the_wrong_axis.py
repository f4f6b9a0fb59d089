"""Quantile-regression DQN: the levels tau broadcast along the axis of the target's samples.

source: https://github.com/BY571/QR-DQN/issues/1
catalogue: github
field: reinforcement learning (QR-DQN)
cause: broadcast-in-loss
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

N = 16
tau = (torch.arange(N) + 0.5) / N


class QuantileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2 * N))

    def forward(self, x):
        return self.net(x).view(-1, 2, N)


def sample_return(x, a, n):  # the return's spread depends on the state, its mean on state and action
    mean = torch.where(a == 1, x[:, 0], -x[:, 1]).unsqueeze(1)
    return mean + (0.2 + x[:, 2:].abs()) * torch.randn(len(x), n)


net = QuantileNet()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
with nv.watch(net, optimizer) as watch:
    for step in range(800):
        x, a = torch.rand(64, 3) * 2 - 1, torch.randint(0, 2, (64,))
        expected = net(x)[torch.arange(64), a]  # (batch, quantiles)
        target = sample_return(x, a, N)  # (batch, samples)
        error = target.unsqueeze(1) - expected.unsqueeze(2)  # (batch, quantiles, samples)
        huber = torch.where(error.abs() <= 0.1, 0.5 * error**2, 0.1 * (error.abs() - 0.05))
        loss = ((tau - (error.detach() < 0).float()).abs() * huber).mean()  # bug
        # fix: loss = ((tau.view(1, N, 1) - (error.detach() < 0).float()).abs() * huber).mean()
        loss = loss * 10
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

x, a = torch.rand(300, 3) * 2 - 1, torch.randint(0, 2, (300,))
mean = torch.where(a == 1, x[:, 0], -x[:, 1]).unsqueeze(1)
true = mean + (0.2 + x[:, 2:].abs()) * torch.distributions.Normal(0.0, 1.0).icdf(tau)
score = 1 - float((net(x)[torch.arange(300), a] - true).pow(2).mean() / true.var())
learned = score > 0.9
