"""Segmentation trained on the Dice coefficient itself instead of one minus it.

source: https://github.com/sraashis/easytorch/pull/38
catalogue: github
field: image segmentation
cause: wrong-sign
observable: yes
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import netvitals as nv


class Squares(Dataset):
    """A textured square on a noisy background."""

    def __init__(self, n):
        self.images, self.masks = torch.randn(n, 1, 14, 14) * 0.5, torch.zeros(n, 1, 14, 14)
        for k in range(n):
            r, c, h, w = (int(v) for v in torch.randint(3, 8, (4,)))
            self.masks[k, 0, r : r + h, c : c + w] = 1
        self.images += self.masks

    def __len__(self):
        return len(self.images)

    def __getitem__(self, k):
        return {"input": self.images[k], "label": self.masks[k]}


def dice_loss(outputs, target, smooth=1.0):
    iflat, tflat = outputs.contiguous().view(-1), target.contiguous().view(-1)
    intersection = (iflat * tflat).sum()
    return (2.0 * intersection + smooth) / (iflat.sum() + tflat.sum() + smooth)  # bug
    # fix: return 1 - (2.0 * intersection + smooth) / (iflat.sum() + tflat.sum() + smooth)


net = nn.Sequential(
    nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(),
    nn.Conv2d(16, 16, 5, padding=2), nn.ReLU(),
    nn.Conv2d(16, 1, 1), nn.Sigmoid(),
)
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
loader = DataLoader(Squares(256), batch_size=16, shuffle=True)
with nv.watch(net, optimizer) as watch:
    for epoch in range(9):
        for batch in loader:
            optimizer.zero_grad()
            loss = dice_loss(net(batch["input"]), batch["label"])
            loss.backward()
            optimizer.step()
            watch.step(loss)

test = Squares(60)
with torch.no_grad():
    p = (net(test.images) > 0.5).float()
score = float(2 * (p * test.masks).sum() / (p.sum() + test.masks.sum()))
learned = score > 0.75
