"""Noise-conditional score network at many noise levels, weighted by the variance, with a sinusoidal embedding of the level.

source: https://arxiv.org/abs/1907.05600
field: generative models (score matching)
unusual: the loss has a floor far from zero and hardly falls after a while; fresh noise at each step; exponential moving average of the weights for sampling
"""
import copy

import torch
from torch import nn

import netvitals as nv

sigmas = torch.logspace(0.5, -1.3, 20)


def checkerboard(n):
    x = torch.rand(n) * 4 - 2
    y = torch.rand(n) + torch.randint(0, 2, (n,)) * 2 - 2 + (x.floor() % 2)
    return torch.stack([x, y], 1)


class Score(nn.Module):
    def __init__(self, d=128):
        super().__init__()
        self.register_buffer("frequencies", torch.randn(16))
        self.net = nn.Sequential(nn.Linear(2 + 32, d), nn.SiLU(), nn.Linear(d, d), nn.SiLU(), nn.Linear(d, 2))

    def forward(self, x, sigma):
        angle = sigma.log().unsqueeze(1) * self.frequencies
        scaled = x / (1 + sigma.unsqueeze(1) ** 2).sqrt()
        return self.net(torch.cat([scaled, angle.sin(), angle.cos()], 1)) / sigma.unsqueeze(1)


model = Score()
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(500):
        x = checkerboard(256)
        sigma = sigmas[torch.randint(0, 20, (256,))]
        noise = torch.randn_like(x)
        s = model(x + sigma.unsqueeze(1) * noise, sigma)
        loss = (sigma.unsqueeze(1) * s + noise).pow(2).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(model.parameters(), average.parameters()):
                q.lerp_(p, 0.02)
        watch.step(loss)

with torch.no_grad():
    x = sigmas[0] * torch.randn(500, 2)
    for sigma in sigmas:
        for _ in range(10):
            step_size = 0.1 * sigma**2
            x = x + step_size * average(x, sigma.expand(500)) + (2 * step_size).sqrt() * torch.randn_like(x)
    inside = (x.abs() <= 2.1).all(1)
    dark = ((x[:, 0].floor() + x[:, 1].floor()) % 2 == 0) & inside
score = float(dark.float().mean())  # half of the area is dark; chance is 0.5
learned = score > 0.65
