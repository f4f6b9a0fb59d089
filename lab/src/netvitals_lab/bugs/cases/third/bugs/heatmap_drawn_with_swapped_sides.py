"""Keypoint heatmaps: the shape of the map is read as (width, height), so points in the right part are cut off.

source: https://github.com/pprp/SimpleCVReproduction/issues/13
catalogue: github
field: keypoint detection (heatmaps)
cause: labels-wrong
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

HEIGHT, WIDTH, RADIUS = 8, 24, 2
yy, xx = torch.meshgrid(torch.arange(5.0) - 2, torch.arange(5.0) - 2, indexing="ij")
gaussian = torch.exp(-(xx**2 + yy**2) / 2)


def draw_gaussian(heatmap, x, y):
    width, height = heatmap.shape  # bug
    # fix: height, width = heatmap.shape
    left, right = min(x, RADIUS), min(width - x, RADIUS + 1)
    top, bottom = min(y, RADIUS), min(height - y, RADIUS + 1)
    region = heatmap[y - top : y + bottom, x - left : x + right]
    patch = gaussian[RADIUS - top : RADIUS + bottom, RADIUS - left : RADIUS + right]
    if min(region.shape) > 0 and min(patch.shape) > 0:
        rows, columns = min(region.shape[0], patch.shape[0]), min(region.shape[1], patch.shape[1])
        region[:rows, :columns] = torch.maximum(region[:rows, :columns], patch[:rows, :columns])


def hands(n):
    """A wide picture with the tip of one finger; a cross among bars."""
    point = torch.stack([torch.randint(1, WIDTH - 1, (n,)), torch.randint(1, HEIGHT - 1, (n,))], 1)
    image, maps = 0.25 * torch.randn(n, 1, HEIGHT, WIDTH), torch.zeros(n, HEIGHT, WIDTH)
    for k, (x, y) in enumerate(point.tolist()):
        image[k, 0, y - 1 : y + 2, x] += 1
        image[k, 0, y, x - 1 : x + 2] += 1
        draw_gaussian(maps[k], x, y)
    return image, maps, point


def focal(logits, target):
    p = logits.sigmoid().clamp(1e-4, 1 - 1e-4)
    positive = target.eq(1).float()
    loss = positive * (1 - p) ** 2 * p.log() + (1 - positive) * (1 - target) ** 4 * p**2 * (1 - p).log()
    return -loss.sum() / len(logits)


net = nn.Sequential(nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 1, 1))
nn.init.constant_(net[-1].bias, -2.19)
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
with nv.watch(net, optimizer) as watch:
    for step in range(200):
        image, maps, _ = hands(24)
        loss = focal(net(image).squeeze(1), maps)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

image, _, point = hands(300)
with torch.no_grad():
    p = net(image).squeeze(1).sigmoid()
score = float((p[torch.arange(300), point[:, 1], point[:, 0]] > 0.6).float().mean())
learned = score > 0.75
