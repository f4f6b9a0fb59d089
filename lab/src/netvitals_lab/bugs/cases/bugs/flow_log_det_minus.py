"""Normalising flow: the log-determinant of the inverse enters the likelihood with the wrong sign.

source: https://github.com/VincentStimper/normalizing-flows/issues/27
catalogue: github
field: density estimation (normalising flow)
cause: wrong-sign
observable: yes
"""
import torch
from sklearn.datasets import make_moons
from torch import nn

import netvitals as nv


class Coupling(nn.Module):
    def __init__(self, flip):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 2))
        nn.init.zeros_(self.net[-1].weight), nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        a, b = x[:, :1], x[:, 1:]
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, 1)
        s = torch.tanh(s) * 2
        b = (b - t) * torch.exp(-s)
        return torch.cat([b, a] if self.flip else [a, b], 1), -s.squeeze(1)


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(i % 2 == 1) for i in range(4))
        self.base = torch.distributions.Normal(0.0, 1.0)

    def log_prob(self, x):
        log_det = 0
        for layer in self.layers:
            x, d = layer(x)
            log_det = log_det + d
        return self.base.log_prob(x).sum(1) - log_det  # bug
        # fix: return self.base.log_prob(x).sum(1) + log_det


x = torch.tensor(make_moons(3000, noise=0.08)[0], dtype=torch.float32)
x = (x - x.mean(0)) / x.std(0)
flow = Flow()
optimizer = torch.optim.Adam(flow.parameters(), lr=4e-3)
with nv.watch(flow, optimizer) as watch:
    for step in range(350):
        loss = -flow.log_prob(x[torch.randint(0, len(x), (128,))]).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    z, log_det = x, 0
    for layer in flow.layers:
        z, d = layer(z)
        log_det = log_det + d
    score = float((flow.base.log_prob(z).sum(1) + log_det).mean())  # the true log-likelihood
learned = score > -2.7
