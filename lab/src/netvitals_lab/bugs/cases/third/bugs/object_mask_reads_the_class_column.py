"""YOLO loss that looks for objects in column 5 of the target, where the classes begin; confidence is column 4.

source: https://github.com/duanyiqun/YOLO-Minimal/issues/2
catalogue: github
field: object detection (YOLO)
cause: labels-wrong
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

S, SIZE = 4, 16


def pictures(n):
    """One bright square or disc per picture; targets per cell: x, y, w, h, confidence, square, disc."""
    centre, half, kind = torch.rand(n, 2) * 12 + 2, torch.rand(n, 1) * 1.5 + 1.5, torch.randint(0, 2, (n,))
    y, x = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    dx, dy = (x - centre[:, :1, None]).abs(), (y - centre[:, 1:, None]).abs()
    square = (torch.maximum(dx, dy) < half.unsqueeze(2)).float()
    disc = (dx**2 + dy**2 < half.unsqueeze(2) ** 2).float() * (1 - 0.6 * (dx**2 + dy**2 < 1.5).float())
    image = torch.where(kind.view(-1, 1, 1) == 0, square, disc) + 0.1 * torch.randn(n, 16, 16)
    target = torch.zeros(n, S, S, 7)
    column, row = (centre / 4).long().T
    cell = torch.cat([centre / 4 - (centre / 4).floor(), half.repeat(1, 2) / 4, torch.ones(n, 1), F.one_hot(kind, 2)], 1)
    target[torch.arange(n), row, column] = cell
    return image.unsqueeze(1), target


class YoloLoss(nn.Module):
    def forward(self, pred, target):
        coord_mask, noobj_mask = target[..., 5] > 0, target[..., 5] == 0  # bug
        # fix: coord_mask, noobj_mask = target[..., 4] > 0, target[..., 4] == 0
        p, t = pred[coord_mask], target[coord_mask]
        box = F.mse_loss(p[:, :4], t[:, :4], reduction="sum")
        confidence = F.mse_loss(p[:, 4], torch.ones(len(p)), reduction="sum")
        nothing = F.mse_loss(pred[noobj_mask][:, 4], torch.zeros(int(noobj_mask.sum())), reduction="sum")
        return (5 * box + confidence + 0.5 * nothing + F.mse_loss(p[:, 5:], t[:, 5:], reduction="sum")) / len(pred)


net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.LeakyReLU(0.1), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
                    nn.LeakyReLU(0.1), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.LeakyReLU(0.1), nn.Conv2d(64, 7, 1))
criterion = YoloLoss()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
with nv.watch(net, optimizer) as watch:
    for step in range(350):
        x, target = pictures(48)
        loss = criterion(net(x).permute(0, 2, 3, 1), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    x, target = pictures(500)
    pred = net(x).permute(0, 2, 3, 1)[target[..., 4] > 0]
    right = pred[:, 5:].argmax(1) == target[target[..., 4] > 0][:, 5:].argmax(1)
score = float((right & (pred[:, 4] > 0.5)).float().mean())
learned = score > 0.75
