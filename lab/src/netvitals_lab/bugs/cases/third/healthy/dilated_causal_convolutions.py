"""WaveNet style: gated dilated causal convolutions with weight norm predict the next of 32 amplitude levels.

source: https://arxiv.org/abs/1609.03499
field: audio generation (WaveNet)
unusual: tanh times sigmoid units; weight-normalised kernels; all steps of a sequence are predicted at once
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import netvitals as nv

LEVELS, LENGTH = 32, 80


def sound(n):
    t = torch.arange(LENGTH)
    rate = 0.2 + 0.4 * torch.rand(n, 1)
    wave = (rate * t + 6 * torch.rand(n, 1)).sin() * (0.6 + 0.3 * (0.1 * t).sin())
    mu = wave.sign() * torch.log1p(15 * wave.abs()) / torch.log(torch.tensor(16.0))
    return ((mu + 1) / 2 * (LEVELS - 1)).round().long()


class Layer(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.pad = dilation
        self.gate = weight_norm(nn.Conv1d(width, 2 * width, 2, dilation=dilation))
        self.skip = nn.Conv1d(width, width, 1)

    def forward(self, x):
        a, b = self.gate(F.pad(x, (self.pad, 0))).chunk(2, 1)
        out = self.skip(a.tanh() * b.sigmoid())
        return x + out, out


class WaveNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(LEVELS, width)
        self.layers = nn.ModuleList(Layer(width, 2**k) for k in range(5))
        self.out = nn.Sequential(nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(), nn.Conv1d(width, LEVELS, 1))

    def forward(self, x):
        h, total = self.embed(x).transpose(1, 2), 0
        for layer in self.layers:
            h, skip = layer(h)
            total = total + skip
        return self.out(total)


model = WaveNet()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(150):
        x = sound(24)
        loss = F.cross_entropy(model(x[:, :-1]), x[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    x = sound(100)
    near = (model(x[:, :-1]).argmax(1) - x[:, 1:]).abs() <= 1
score = float(near[:, 10:].float().mean())
learned = score > 0.7
