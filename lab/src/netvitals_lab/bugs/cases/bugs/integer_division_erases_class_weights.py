"""Class weights from integer counts: the integer division leaves 0 for the frequent class.

source: https://github.com/qubvel/segmentation_models.pytorch/pull/186 (gDefects4DL segmentation_models.pytorch186)
catalogue: gdefects4dl
field: segmentation
cause: class-weights-wrong, low-precision
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


def scenes(n, size=16):
    """Discs of two kinds on a noisy ground."""
    grid = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")).float()
    mask = torch.zeros(n, size, size, dtype=torch.long)
    for kind, radius in ((1, 4.5), (2, 3.0)):
        centre = torch.randint(3, size - 3, (n, 2, 1, 1)).float()
        mask[((grid - centre) ** 2).sum(1) < radius**2] = kind
    palette = torch.tensor([[0.2, 0.3, 0.2], [0.8, 0.3, 0.3], [0.3, 0.3, 0.8]])
    return palette[mask].permute(0, 3, 1, 2) + 0.25 * torch.randn(n, 3, size, size), mask


class SmallUnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1 = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU())
        self.down2 = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1, stride=2), nn.ReLU())
        self.up = nn.ConvTranspose2d(32, 16, 2, stride=2)
        self.last = nn.Conv2d(32, 3, 3, padding=1)

    def forward(self, x):
        a = self.down1(x)
        return self.last(torch.cat([a, self.up(self.down2(a))], 1))


def iou(prediction, mask):
    return sum(float(((prediction == k) & (mask == k)).sum() / ((prediction == k) | (mask == k)).sum())
               for k in range(3)) / 3


images, masks = scenes(400)
counts = torch.bincount(masks.flatten(), minlength=3)
weights = counts.sum() // (3 * counts)  # bug
# fix: weights = counts.sum() / (3 * counts)
model = SmallUnet()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
with nv.watch(model, optimizer) as watch:
    for epoch in range(16):
        for rows in torch.randperm(360).split(24):
            loss = F.cross_entropy(model(images[rows]), masks[rows], weight=weights.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = iou(model(images[360:]).argmax(1), masks[360:])
learned = score > 0.75
