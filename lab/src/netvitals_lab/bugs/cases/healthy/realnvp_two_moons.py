"""RealNVP with alternating masks and a learned scale on the two moons.

source: https://arxiv.org/abs/1605.08803
field: density estimation (normalising flow)
unusual: the loss is a density's logarithm and may become negative; last layers start at zero; masked-out inputs are exact zeros
"""
import torch
from sklearn.datasets import make_moons
from torch import nn

import netvitals as nv


class AffineCoupling(nn.Module):
    def __init__(self, mask, hidden=48):
        super().__init__()
        self.register_buffer("mask", mask)
        self.s = nn.Sequential(nn.Linear(2, hidden), nn.LeakyReLU(), nn.Linear(hidden, hidden), nn.LeakyReLU(), nn.Linear(hidden, 2), nn.Tanh())
        self.t = nn.Sequential(nn.Linear(2, hidden), nn.LeakyReLU(), nn.Linear(hidden, hidden), nn.LeakyReLU(), nn.Linear(hidden, 2))
        self.scale = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        kept = x * self.mask
        s = self.s(kept) * self.scale.exp() * (1 - self.mask)
        t = self.t(kept) * (1 - self.mask)
        return kept + (1 - self.mask) * (x - t) * torch.exp(-s), -s.sum(1)


flow = nn.ModuleList(AffineCoupling(torch.tensor([1.0, 0.0] if i % 2 else [0.0, 1.0])) for i in range(4))
prior = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))


def log_prob(x):
    total = 0
    for layer in flow:
        x, log_det = layer(x)
        total = total + log_det
    return prior.log_prob(x) + total


data = torch.tensor(make_moons(2000, noise=0.06)[0], dtype=torch.float32)
optimizer = torch.optim.Adam(flow.parameters(), lr=2e-3)
with nv.watch(flow, optimizer) as watch:
    for step in range(300):
        loss = -log_prob(data[torch.randint(0, 2000, (128,))]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

test = torch.tensor(make_moons(500, noise=0.06)[0], dtype=torch.float32)
score = float(log_prob(test).mean())
learned = score > -1.5
