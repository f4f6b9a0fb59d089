"""A coordinate network with random Fourier features learns one picture, trained by NAdam.

source: Tancik et al., Fourier Features Let Networks Learn High Frequency Functions (NeurIPS 2020)
field: implicit neural representation
unusual: inputs pass a fixed random projection, one single image is the whole data set, every batch is a set of pixels
"""
import math

import torch
from torch import nn

import netvitals as nv

SIZE = 32
g = torch.linspace(-1, 1, SIZE)
yy, xx = torch.meshgrid(g, g, indexing="ij")
picture = 0.5 + 0.25 * torch.sin(9 * xx + 4 * yy) + 0.25 * torch.sign(xx * yy) * (xx ** 2 + yy ** 2 < 0.6)
coordinates, colour = torch.stack([xx, yy], -1).view(-1, 2), picture.view(-1, 1)


class FourierNet(nn.Module):
    def __init__(self, features=48, scale=0.8):
        super().__init__()
        self.register_buffer("projection", torch.randn(2, features) * scale)
        self.mlp = nn.Sequential(nn.Linear(2 * features, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, position):
        angle = 2 * math.pi * position @ self.projection
        return self.mlp(torch.cat([angle.sin(), angle.cos()], dim=-1))


model = FourierNet()
optimizer = torch.optim.NAdam(model.parameters(), lr=0.002)
with nv.watch(model, optimizer) as watch:
    for epoch in range(60):
        for pixels in torch.randperm(SIZE * SIZE).split(128):
            loss = (model(coordinates[pixels]) - colour[pixels]).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    mse = (model(coordinates) - colour).pow(2).mean()
score = -10 * math.log10(float(mse))  # peak signal-to-noise ratio
learned = score > 22
