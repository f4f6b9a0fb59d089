"""Segmentation: annotations are resized bilinearly, so between classes 0 and 4 pixels of the classes 1, 2 and 3 appear.

source: https://github.com/shekkizh/FCN.tensorflow/issues/4 (and https://github.com/divamgupta/image-segmentation-keras/issues/11)
catalogue: github
field: image segmentation (resized annotations)
cause: labels-wrong
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

CLASSES = 6


def scenes(n, size=24):
    """Many small tiles of five materials on a ground of class 0; each material has its own grey."""
    label = torch.zeros(n, size, size, dtype=torch.long)
    for k in range(n):
        for _ in range(14):
            y, x = torch.randint(0, size - 2, (2,)).tolist()
            label[k, y : y + 2, x : x + 3] = int(torch.randint(1, CLASSES, ()))
    image = label.float() * 0.7 - 0.2 * (label % 2) + 0.1 * torch.randn(n, size, size)
    return image.unsqueeze(1), label


def resize(image, label, size=16):
    image = F.interpolate(image, size=(size, size), mode="nearest")
    small = F.interpolate(label.float().unsqueeze(1), size=(size, size), mode="bilinear")  # bug
    # fix: small = F.interpolate(label.float().unsqueeze(1), size=(size, size), mode="nearest")
    return image, small.squeeze(1).long()


net = nn.Sequential(nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, CLASSES, 1))
pictures, annotations = scenes(300)
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
with nv.watch(net, optimizer) as watch:
    for epoch in range(15):
        for i in torch.randperm(300).split(20):
            x, y = resize(pictures[i], annotations[i])
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

x, y = scenes(60)
with torch.no_grad():
    guess = net(x).argmax(1)
overlap = [((guess == c) & (y == c)).sum() / ((guess == c) | (y == c)).sum().clamp(min=1) for c in range(CLASSES)]
score = float(torch.stack(overlap).mean())
learned = score > 0.55
