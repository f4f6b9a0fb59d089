"""A mixture density network for the inverse of x = y + 0.3 sin(2 pi y), which has several answers.

source: Bishop, Mixture Density Networks (1994)
field: density estimation
unusual: one head feeds a softmax, one an exponential; likelihoods above one make the loss negative
"""
import math

import torch
from torch import nn

import netvitals as nv

K = 5


class MixtureDensity(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.weight, self.mean, self.log_sigma = (nn.Linear(hidden, K) for _ in range(3))
        nn.init.uniform_(self.mean.bias, 0, 1)

    def forward(self, x):
        h = self.trunk(x * 2 - 1)
        return self.weight(h).log_softmax(1), self.mean(h), self.log_sigma(h).clamp(-5, 2)


def negative_log_likelihood(parameters, y):
    log_pi, mean, log_sigma = parameters
    z = (y - mean) / log_sigma.exp()
    component = -0.5 * z ** 2 - log_sigma - 0.5 * math.log(2 * math.pi)
    return -torch.logsumexp(log_pi + component, dim=1).mean()


def toy(n):
    y = torch.rand(n, 1)
    return y + 0.3 * torch.sin(2 * math.pi * y) + 0.04 * torch.randn(n, 1), y


model = MixtureDensity()
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
with nv.watch(model, optimizer) as watch:
    for step in range(600):
        x, y = toy(128)
        loss = negative_log_likelihood(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        watch.step(loss)

x, y = toy(4000)
with torch.no_grad():
    score = -float(negative_log_likelihood(model(x), y))
learned = score > 0.5
