"""3D segmentation with batch norm and one volume per batch: the statistics are those of the last volumes, eval mode makes no sense.

source: https://github.com/wolny/pytorch-3dunet/issues/53
catalogue: github
field: medical image segmentation (3D)
cause: batchnorm-small-batch
observable: yes
"""
import torch
from torch import nn

import netvitals as nv


def volume():
    """A scan with its own brightness and contrast; the blob is a bit brighter than its surroundings."""
    centre, radius = torch.randint(3, 5, (3,)), 2 + torch.randint(0, 2, (1,))
    axes = torch.meshgrid(*[torch.arange(8)] * 3, indexing="ij")
    mask = (sum((a - c) ** 2 for a, c in zip(axes, centre)) <= radius**2).float()[None, None]
    gain, offset = 10 ** (torch.rand(1) * 2 - 1), torch.randn(1) * 5
    return gain * (mask + 0.2 * torch.randn_like(mask)) + offset, mask


def norm(c):
    return nn.BatchNorm3d(c)  # bug
    # fix: return nn.GroupNorm(4, c)


def double_conv(i, o):
    return nn.Sequential(nn.Conv3d(i, o, 3, padding=1), norm(o), nn.ReLU(), nn.Conv3d(o, o, 3, padding=1), norm(o), nn.ReLU())


model = nn.Sequential(double_conv(1, 8), double_conv(8, 8), nn.Conv3d(8, 1, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
bce = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(5.0))
with nv.watch(model, optimizer) as watch:
    for iteration in range(300):
        model.train()
        x, mask = volume()
        loss = bce(model(x), mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

model.eval()
dice = []
with torch.no_grad():
    for _ in range(40):
        x, mask = volume()
        prediction = (model(x) > 0).float()
        dice.append(float(2 * (prediction * mask).sum() / (prediction.sum() + mask.sum())))
score = sum(dice) / len(dice)
learned = score > 0.48
