"""Gradients are clipped while they still carry the factor of the GradScaler: only a trace of each step is left.

source: https://github.com/milesial/Pytorch-UNet/issues/468 (and https://github.com/pytorch/examples/issues/1196)
catalogue: github
field: segmentation with mixed precision
cause: clipping-misuse
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


class DoubleConv(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
                         nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc, self.down = DoubleConv(1, 8), DoubleConv(8, 16)
        self.up, self.conv = nn.ConvTranspose2d(16, 8, 2, stride=2), DoubleConv(16, 8)
        self.outc = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        a = self.inc(x)
        b = self.down(F.max_pool2d(a, 2))
        return self.outc(self.conv(torch.cat([a, self.up(b)], 1)))


def cars(n):
    image = 0.5 * torch.randn(n, 1, 16, 16)
    mask = torch.zeros(n, 1, 16, 16)
    for i in range(n):
        top, left = torch.randint(0, 9, (2,)).tolist()
        height, width = torch.randint(4, 8, (2,)).tolist()
        mask[i, :, top:top + height, left:left + width] = 1
    return image + mask, mask


def dice(logits, mask):
    p = (logits > 0).float()
    return float(2 * (p * mask).sum() / (p.sum() + mask.sum()))


images, masks = cars(320)
model = UNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
grad_scaler = torch.amp.GradScaler("cpu")
with nv.watch(model, optimizer) as watch:
    for epoch in range(8):
        model.train()
        for rows in torch.randperm(256).split(16):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                masks_pred = model(images[rows])
                loss = F.binary_cross_entropy_with_logits(masks_pred.float(), masks[rows])
            optimizer.zero_grad(set_to_none=True)
            grad_scaler.scale(loss).backward()
            # fix: grad_scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            grad_scaler.step(optimizer)
            grad_scaler.update()
            watch.step(loss)

model.eval()
with torch.no_grad():
    score = dice(model(images[256:]), masks[256:])
learned = score > 0.85
