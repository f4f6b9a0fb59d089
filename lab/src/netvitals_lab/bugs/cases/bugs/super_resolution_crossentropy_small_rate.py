"""An SRCNN for continuous pixels is trained by binary cross-entropy with a rate of 0.0001 and hardly sharpens.

source: https://github.com/kcct-fujimotolab/keras-super-resolution/commit/a7616b6342df4e3428e5e4d1be4cca591a82b0d7
catalogue: deepfd
field: super-resolution
cause: lr-too-low, loss-mismatch
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


def images(n, size=16):
    g = torch.arange(size).float()
    angle, phase = torch.rand(n) * 3.14, torch.rand(n) * 6.28
    wave = (torch.cos(angle)[:, None, None] * g[None, None] + torch.sin(angle)[:, None, None] * g[None, :, None]) * 0.9
    sharp = torch.sigmoid(4 * torch.sin(wave + phase[:, None, None])).unsqueeze(1)
    small = F.avg_pool2d(sharp, 2)
    return F.interpolate(small, scale_factor=2, mode="bilinear"), sharp


class Srcnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(1, 24, 5, padding=2)
        self.map = nn.Conv2d(24, 16, 3, padding=1)
        self.rebuild = nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.patch(x))
        x = F.relu(self.map(x))
        return torch.sigmoid(self.rebuild(x))


model = Srcnn()
optimizer = torch.optim.Adam(model.parameters(), lr=0.0001)  # bug
# fix: optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
loss_fn = nn.BCELoss()  # bug
# fix: loss_fn = nn.MSELoss()
with nv.watch(model, optimizer) as watch:
    for step in range(300):
        blurred, sharp = images(16)
        optimizer.zero_grad()
        loss = loss_fn(model(blurred), sharp)
        loss.backward()
        optimizer.step()
        watch.step(loss)

blurred, sharp = images(100)
with torch.no_grad():
    score = 1 - float((model(blurred) - sharp).pow(2).mean() / (blurred - sharp).pow(2).mean())
learned = score > 0.4
