"""Bayes by backprop: every weight is a Gaussian, drawn anew in each step; the complexity cost is spread over the batches.

source: https://arxiv.org/abs/1505.05424
field: uncertainty (Bayesian networks)
unusual: two parameters per weight; noise in the weights makes the loss jump; the KL term grows while the fit improves
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal, kl_divergence

import netvitals as nv


class BayesLinear(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.mu = nn.Parameter(torch.randn(n_out, n_in + 1) / n_in**0.5)
        self.rho = nn.Parameter(torch.full((n_out, n_in + 1), -4.0))

    def forward(self, x):
        q = Normal(self.mu, F.softplus(self.rho))
        self.kl = kl_divergence(q, Normal(0.0, 1.0)).sum()
        w = q.rsample()
        return F.linear(x, w[:, :-1], w[:, -1])


net = nn.Sequential(BayesLinear(1, 32), nn.Tanh(), BayesLinear(32, 32), nn.Tanh(), BayesLinear(32, 1))
x = torch.cat([torch.rand(150, 1) * 2 - 3, torch.rand(150, 1) * 2 + 1])
y = (2 * x).sin() + 0.1 * torch.randn(300, 1)
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
with nv.watch(net, optimizer) as watch:
    for step in range(1200):
        i = torch.randint(0, 300, (60,))
        likelihood = 0.5 * ((net(x[i]) - y[i]) / 0.1).pow(2).sum()
        loss = likelihood + 60 / 300 * sum(layer.kl for layer in net if isinstance(layer, BayesLinear))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 100.0)
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    seen = torch.cat([torch.linspace(-3, -1, 50), torch.linspace(1, 3, 50)]).unsqueeze(1)
    draws = torch.stack([net(seen) for _ in range(50)])
    score = 1 - float((draws.mean(0) - (2 * seen).sin()).pow(2).mean() / 0.5)
learned = score > 0.85
