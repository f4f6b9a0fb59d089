"""Depth estimation in log space: pixels the sensor missed have depth 0, the mask is applied after the logarithm.

source: https://github.com/zhengqili/MegaDepth/issues/38
catalogue: github
field: depth estimation
cause: bad-values
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


def rooms(n):
    """A floor that recedes and a box on it; brightness falls with distance, the sensor misses five per cent."""
    rows = torch.linspace(0, 1, 12).view(1, 12, 1)
    depth = (1 + 6 * (1 - rows) * (0.5 + torch.rand(n, 1, 1))).repeat(1, 1, 12)
    for k in range(n):
        y, x = torch.randint(0, 8, (2,)).tolist()
        depth[k, y : y + 4, x : x + 4] = depth[k, y + 3, x]
    image = 2 / depth + 0.05 * torch.randn(n, 12, 12)
    return image.unsqueeze(1), depth * (torch.rand(n, 12, 12) > 0.05)


def silog(log_prediction, depth):
    mask = (depth > 0).float()
    log_d_diff = log_prediction - torch.log(depth)  # bug
    # fix: log_d_diff = log_prediction - torch.log(depth.clamp(min=1e-3))
    log_d_diff = log_d_diff * mask
    n = mask.sum()
    return log_d_diff.pow(2).sum() / n - 0.5 * log_d_diff.sum().pow(2) / n**2


net = nn.Sequential(nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 1, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
with nv.watch(net, optimizer) as watch:
    for step in range(250):
        image, depth = rooms(24)
        loss = silog(net(image).squeeze(1), depth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

image, depth = rooms(200)
with torch.no_grad():
    error = (net(image).squeeze(1) - torch.log(depth.clamp(min=1e-3)))[depth > 0]
    score = 1 - float(error.var() / torch.log(depth[depth > 0]).var())
learned = score > 0.7
