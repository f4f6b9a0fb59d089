"""N-BEATS: each block explains a part of the past and of the future, the rest is left to the next block.

source: https://arxiv.org/abs/1905.10437
field: forecasting (N-BEATS)
unusual: fixed bases for trend and season; the symmetric percentage error as loss; scales from one to a thousand
"""
import torch
from torch import nn

import netvitals as nv

PAST, AHEAD = 32, 8


def series(n):
    t = torch.arange(PAST + AHEAD) / 8.0
    level = 10 ** (3 * torch.rand(n, 1))
    trend, phase, size = torch.randn(n, 1) * 0.05, 6 * torch.rand(n, 1), 0.4 * torch.rand(n, 1)
    y = level * (2 + trend * t + size * (6.2832 * t + phase).sin() + 0.02 * torch.randn(n, len(t)))
    return y[:, :PAST], y[:, PAST:]


class Block(nn.Module):
    def __init__(self, basis):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(PAST, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.theta = nn.Linear(64, len(basis))
        self.register_buffer("basis", basis)

    def forward(self, x):
        both = self.theta(self.body(x)) @ self.basis
        return both[:, :PAST], both[:, PAST:]


t = torch.linspace(-1, 1, PAST + AHEAD)
angle = 6.2832 * torch.arange(PAST + AHEAD) / 8
trend = torch.stack([torch.ones_like(t), t, t**2])
season = torch.stack([f(k * angle) for k in (1, 2) for f in (torch.sin, torch.cos)])


class NBeats(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(trend), Block(season), Block(torch.randn(8, PAST + AHEAD) / 3)])

    def forward(self, x):
        level = x.abs().amax(1, keepdim=True)
        rest, forecast = x / level, 0
        for block in self.blocks:
            backcast, part = block(rest)
            rest, forecast = rest - backcast, forecast + part
        return forecast * level


model = NBeats()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(450):
        x, y = series(96)
        guess = model(x)
        loss = 200 * ((guess - y).abs() / (guess.detach().abs() + y.abs() + 1e-8)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    x, y = series(2000)
    scale = y.mean(1, keepdim=True)
    score = 1 - float((((model(x) - y) / scale).abs().mean()) / ((x[:, -1:] - y) / scale).abs().mean())
learned = score > 0.6
