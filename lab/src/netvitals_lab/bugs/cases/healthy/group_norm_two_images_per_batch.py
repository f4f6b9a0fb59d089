"""Batches of two images, group norm instead of batch norm, a small rate because the gradients are noisy.

source: Wu & He, Group Normalization (ECCV 2018)
field: image classification
unusual: batch size of two, noisy loss, several hundred small steps
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


def scans(n):
    """Crosses and circles at random places."""
    y = torch.randint(0, 2, (n,))
    c = torch.rand(n, 2) * 6 + 5
    g = torch.arange(16).float()
    dx, dy = (g[None, None] - c[:, :1, None]).expand(n, 16, 16), (g[None, :, None] - c[:, 1:, None]).expand(n, 16, 16)
    ring = ((dx ** 2 + dy ** 2).sqrt() - 3).abs() < 0.8
    cross = ((dx.abs() < 0.8) | (dy.abs() < 0.8)) & (dx.abs() < 4) & (dy.abs() < 4)
    image = torch.where((y == 0)[:, None, None], ring, cross).float()
    return image.unsqueeze(1) + 0.2 * torch.randn(n, 1, 16, 16), y


def unit(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(4, b), nn.ReLU(), nn.MaxPool2d(2))


model = nn.Sequential(unit(1, 16), unit(16, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9)
images, labels = scans(400)
with nv.watch(model, optimizer) as watch:
    for epoch in range(3):
        for pair in torch.randperm(400).split(2):
            loss = F.cross_entropy(model(images[pair]), labels[pair])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

images, labels = scans(400)
with torch.no_grad():
    score = float((model(images).argmax(1) == labels).float().mean())
learned = score > 0.9
