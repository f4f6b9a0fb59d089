"""SIREN that is given pixel indices from 0 to 31 where it expects coordinates between -1 and 1.

source: https://github.com/vsitzmann/siren/issues/19
catalogue: github
field: implicit image (SIREN)
cause: inputs-not-scaled
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

OMEGA = 30.0
rows, columns = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
u, v = rows / 31 * 2 - 1, columns / 31 * 2 - 1
picture = torch.sin(6 * u * v) * torch.cos(4 * u) + (u * u + v * v < 0.3).float()
picture = picture.reshape(-1, 1)
coords = torch.stack([rows, columns], -1).reshape(-1, 2)
# fix: coords = torch.stack([u, v], -1).reshape(-1, 2)


class SineLayer(nn.Module):
    def __init__(self, n_in, n_out, first=False):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        bound = 1 / n_in if first else (6 / n_in) ** 0.5 / OMEGA
        nn.init.uniform_(self.linear.weight, -bound, bound)

    def forward(self, x):
        return torch.sin(OMEGA * self.linear(x))


net = nn.Sequential(SineLayer(2, 64, first=True), SineLayer(64, 64), SineLayer(64, 64), nn.Linear(64, 1))
seen = (rows + columns).reshape(-1) % 2 == 0  # every second pixel; the others are asked for at the end
optimizer = torch.optim.Adam(net.parameters(), lr=3e-4)
with nv.watch(net, optimizer) as watch:
    for step in range(350):
        loss = (net(coords[seen]) - picture[seen]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    score = 1 - float((net(coords[~seen]) - picture[~seen]).pow(2).mean() / picture.var())
learned = score > 0.6
