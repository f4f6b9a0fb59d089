"""SIREN whose first layer is drawn like the hidden ones: it starts far too smooth and never reaches the high notes.

source: https://github.com/lucidrains/siren-pytorch/issues/1
catalogue: github
field: implicit signal (SIREN)
cause: init-too-small
observable: yes
"""
import torch
from torch import nn

import netvitals as nv


class Siren(nn.Module):
    def __init__(self, dim_in, dim_out, w0=30.0, is_first=False):
        super().__init__()
        self.w0 = w0
        self.linear = nn.Linear(dim_in, dim_out)
        bound = (6 / dim_in) ** 0.5 / w0  # bug
        # fix: bound = 1 / dim_in if is_first else (6 / dim_in) ** 0.5 / w0
        nn.init.uniform_(self.linear.weight, -bound, bound)
        nn.init.uniform_(self.linear.bias, -bound, bound)

    def forward(self, x):
        return torch.sin(self.w0 * self.linear(x))


class SirenNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.layers = nn.Sequential(Siren(1, width, is_first=True), Siren(width, width), Siren(width, width))
        self.last = nn.Linear(width, 1)

    def forward(self, x):
        return self.last(self.layers(x))


t = torch.linspace(-1, 1, 400).unsqueeze(1)
sound = torch.sin(95 * t) * torch.exp(-2 * t * t) + 0.5 * torch.sin(140 * t + 1) + 0.3 * torch.sin(20 * t)
net = SirenNet()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-4)
with nv.watch(net, optimizer) as watch:
    for step in range(400):
        loss = (net(t) - sound).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    score = 1 - float((net(t) - sound).pow(2).mean() / sound.var())
learned = score > 0.8
