"""Fourier neural operator in one dimension: complex weights act on the lowest frequencies of a signal.

source: https://arxiv.org/abs/2010.08895
field: operator learning (FNO)
unusual: complex parameters; FFT and its inverse within the network; tested on a finer grid than it was trained on
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


def heat(n, grid):
    """A temperature on a ring, and what it is a little later."""
    x = torch.arange(grid) / grid
    k = torch.arange(1, 7)
    a, b = torch.randn(2, n, 6, 1)
    waves = 6.2832 * k.view(1, 6, 1) * x
    fade = torch.exp(-0.02 * k.view(1, 6, 1) ** 2)
    start = (a * waves.sin() + b * waves.cos()).sum(1) / 3
    end = (fade * (a * (waves - 0.5).sin() + b * (waves - 0.5).cos())).sum(1) / 3
    return start.unsqueeze(1), end.unsqueeze(1)


class Spectral(nn.Module):
    def __init__(self, width, modes=8):
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(width, width, modes, dtype=torch.cfloat) / width)
        self.local = nn.Conv1d(width, width, 1)

    def forward(self, x):
        f = torch.fft.rfft(x, norm="forward")
        low = torch.einsum("bik,iok->bok", f[..., : self.modes], self.weight)
        out = torch.zeros(*low.shape[:2], f.shape[2], dtype=f.dtype)
        out[..., : self.modes] = low
        return torch.fft.irfft(out, n=x.shape[2], norm="forward") + self.local(x)


class FNO(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.lift, self.a, self.b, self.down = nn.Conv1d(1, width, 1), Spectral(width), Spectral(width), nn.Conv1d(width, 1, 1)

    def forward(self, x):
        return self.down(self.b(F.gelu(self.a(self.lift(x)))))


model = FNO()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(300):
        x, y = heat(32, 32)
        error = (model(x) - y).flatten(1).norm(dim=1) / y.flatten(1).norm(dim=1)
        loss = error.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    x, y = heat(200, 64)
    score = 1 - float((model(x) - y).pow(2).mean() / y.var())
learned = score > 0.85
