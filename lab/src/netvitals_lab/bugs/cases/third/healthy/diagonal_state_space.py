"""S4D: a diagonal complex state-space model run as one long convolution, with a smaller rate and no decay for the state.

source: https://arxiv.org/abs/2206.11893
field: state-space models (S4D)
unusual: complex numbers built from real parameters; FFT convolution; three parameter groups with rates from 1e-3 to 1e-2
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


class S4D(nn.Module):
    def __init__(self, width, n=16):
        super().__init__()
        self.log_dt = nn.Parameter(torch.rand(width) * (math.log(0.1) - math.log(0.001)) + math.log(0.001))
        self.log_a_real = nn.Parameter(torch.full((width, n), math.log(0.5)))
        self.a_imag = nn.Parameter(math.pi * torch.arange(n).repeat(width, 1).float())
        self.c = nn.Parameter(torch.randn(width, n, 2))
        self.skip, self.mix = nn.Parameter(torch.randn(width)), nn.Conv1d(width, 2 * width, 1)

    def forward(self, u):
        length = u.shape[2]
        a = -self.log_a_real.exp() + 1j * self.a_imag
        dta = a * self.log_dt.exp().unsqueeze(1)
        c = torch.view_as_complex(self.c) * (dta.exp() - 1) / a
        kernel = 2 * torch.einsum("hn,hnl->hl", c, (dta.unsqueeze(2) * torch.arange(length)).exp()).real
        y = torch.fft.irfft(torch.fft.rfft(kernel, 2 * length) * torch.fft.rfft(u, 2 * length), 2 * length)[..., :length]
        return F.glu(self.mix(F.gelu(y + self.skip.unsqueeze(1) * u)), dim=1)


class Net(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.inside = nn.Sequential(nn.Conv1d(2, width, 1), nn.GELU(), nn.Conv1d(width, width, 1))
        self.s4, self.norm, self.out = S4D(width), nn.LayerNorm(width), nn.Linear(width, 3)

    def forward(self, x):
        h = self.inside(x)
        return self.out(self.norm((h + self.s4(h)).transpose(1, 2)).mean(1))


def chirps(n, length=64):
    """Tones that rise, fall or stay, in noise."""
    y, t = torch.randint(0, 3, (n,)), torch.linspace(0, 1, length)
    bend = (y - 1).unsqueeze(1) * 18
    angle = 6.2832 * (4 + 3 * torch.rand(n, 1)) * t + bend * (t - 0.5).pow(2) + 6 * torch.rand(n, 1)
    return torch.stack([angle.sin() + 0.5 * torch.randn(n, length), t.expand(n, -1)], 1), y


net = Net()
slow = [net.s4.log_dt, net.s4.log_a_real, net.s4.a_imag]
rest = [p for p in net.parameters() if all(p is not q for q in slow)]
optimizer = torch.optim.AdamW([{"params": rest, "weight_decay": 0.01}, {"params": slow, "lr": 1e-3, "weight_decay": 0.0}], lr=1e-2)
with nv.watch(net, optimizer) as watch:
    for step in range(350):
        x, y = chirps(48)
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

x, y = chirps(600)
score = float((net(x).argmax(1) == y).float().mean())
learned = score > 0.75
