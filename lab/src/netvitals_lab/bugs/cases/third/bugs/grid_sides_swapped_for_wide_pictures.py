"""YOLO on wide pictures: box centres are scaled by (rows, columns) instead of (columns, rows), offsets exceed one.

source: https://github.com/bubbliiiing/yolo3-tf2/issues/6
catalogue: github
field: object detection (YOLO, wide input)
cause: labels-wrong, loss-mismatch
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

grid_shape = (2, 8)  # rows, columns
HEIGHT, WIDTH = 8, 32


def plates(n):
    """A number plate somewhere in a wide picture; its centre in fractions of the width and of the height."""
    xy = torch.rand(n, 2) * torch.tensor([0.9, 0.7]) + torch.tensor([0.05, 0.15])
    y, x = torch.meshgrid(torch.arange(HEIGHT) + 0.5, torch.arange(WIDTH) + 0.5, indexing="ij")
    inside = ((x - xy[:, :1, None] * WIDTH).abs() < 2.5) & ((y - xy[:, 1:, None] * HEIGHT).abs() < 1.5)
    return (inside.float() + 0.2 * torch.randn(n, HEIGHT, WIDTH)).unsqueeze(1), xy


def cell_and_offset(xy):
    column = (xy[:, 0] * grid_shape[1]).long()
    row = (xy[:, 1] * grid_shape[0]).long()
    scaled = xy * torch.tensor(grid_shape)  # bug
    # fix: scaled = xy * torch.tensor(grid_shape[::-1])
    return row, column, scaled - torch.stack([column, row], 1)


net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
                    nn.MaxPool2d(2), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 3, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
with nv.watch(net, optimizer) as watch:
    for step in range(450):
        x, xy = plates(48)
        pred = net(x)
        row, column, offset = cell_and_offset(xy)
        b = torch.arange(48)
        confidence = torch.zeros(48, *grid_shape)
        confidence[b, row, column] = 1
        loss_xy = F.binary_cross_entropy_with_logits(pred[b, :2, row, column], offset, reduction="sum") / 48
        loss = loss_xy + F.binary_cross_entropy_with_logits(pred[:, 2], confidence, reduction="sum") / 48
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    x, xy = plates(500)
    pred = net(x)
    best = pred[:, 2].flatten(1).argmax(1)
    b, row, column = torch.arange(500), best // grid_shape[1], best % grid_shape[1]
    found = (pred[b, :2, row, column].sigmoid() + torch.stack([column, row], 1)) / torch.tensor(grid_shape[::-1])
miss = ((found - xy) * torch.tensor([WIDTH, HEIGHT])).abs().max(1)[0]
score = float((miss < 1.0).float().mean())
learned = score > 0.7
