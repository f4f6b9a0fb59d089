"""A two-level U-Net with skip connections segments discs; most pixels are background.

source: Ronneberger et al., U-Net (MICCAI 2015); dice term as in Milletari et al. 2016
field: segmentation
unusual: pixel labels are mostly zero, loss is a sum of BCE and dice, transposed convolution
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


def cells(n, size=20):
    centre, radius = torch.rand(n, 2, 2) * 14 + 3, torch.rand(n, 2) * 2 + 1.5
    g = torch.arange(size).float()
    d = (g[None, None, None, :] - centre[:, :, 0, None, None]) ** 2 + (g[None, None, :, None] - centre[:, :, 1, None, None]) ** 2
    mask = (d < radius[:, :, None, None] ** 2).any(1, keepdim=True).float()
    return mask * 0.7 + 0.35 * torch.randn(n, 1, size, size), mask


def double_conv(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(),
                         nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.bottom = double_conv(1, 8), double_conv(8, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.merge, self.out = double_conv(16, 8), nn.Conv2d(8, 1, 1)

    def forward(self, x):
        skip = self.down(x)
        deep = self.up(self.bottom(F.max_pool2d(skip, 2)))
        return self.out(self.merge(torch.cat([skip, deep], dim=1)))


def dice_loss(logit, mask):
    p = torch.sigmoid(logit)
    overlap = (p * mask).sum((1, 2, 3))
    return (1 - (2 * overlap + 1) / (p.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)).mean()


unet = UNet()
optimizer = torch.optim.Adam(unet.parameters(), lr=0.003)
with nv.watch(unet, optimizer) as watch:
    for step in range(150):
        image, mask = cells(16)
        logit = unet(image)
        loss = F.binary_cross_entropy_with_logits(logit, mask) + dice_loss(logit, mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

unet.eval()
image, mask = cells(100)
with torch.no_grad():
    guess = (unet(image) > 0).float()
score = float((guess * mask).sum() / torch.maximum(guess, mask).sum())
learned = score > 0.7
