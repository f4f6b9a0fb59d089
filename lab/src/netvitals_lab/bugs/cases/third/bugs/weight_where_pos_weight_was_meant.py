"""Rare tags get a class weight that scales positives and negatives alike, where pos_weight was meant.

source: https://github.com/open-mmlab/mmpretrain/issues/434
catalogue: github
field: multi-label classification (rare tags)
cause: class-weights-wrong, class-imbalance
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

TAGS = 10
direction = torch.randn(12, TAGS)
rate = torch.linspace(-3.0, -5.0, TAGS)


def photos(n):
    x = torch.randn(n, 12)
    chance = torch.sigmoid(1.2 * (x @ direction) / 12**0.5 * 2 + rate)
    return x, (torch.rand(n, TAGS) < chance).float()


def binary_cross_entropy(pred, label, class_weight):
    return F.binary_cross_entropy_with_logits(pred, label, weight=class_weight)  # bug
    # fix: return F.binary_cross_entropy_with_logits(pred, label, pos_weight=class_weight)


x_train, y_train = photos(3000)
class_weight = (1 - y_train.mean(0)) / y_train.mean(0).clamp(min=1e-3)
net = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, TAGS))
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3, weight_decay=1e-4)
with nv.watch(net, optimizer) as watch:
    for epoch in range(12):
        for i in torch.randperm(3000).split(96):
            loss = binary_cross_entropy(net(x_train[i]), y_train[i], class_weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

x, y = photos(4000)
with torch.no_grad():
    guess = (net(x) > 0).float()
recall = (guess * y).sum(0) / y.sum(0).clamp(min=1)
rejection = ((1 - guess) * (1 - y)).sum(0) / (1 - y).sum(0)
score = float((recall + rejection).mean() / 2)
learned = score > 0.7
