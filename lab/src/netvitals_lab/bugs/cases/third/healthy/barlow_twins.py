"""Barlow Twins: the cross-correlation of two views is driven to the identity matrix.

source: https://arxiv.org/abs/2103.03230
field: self-supervised learning (Barlow Twins)
unusual: the loss is a sum over pairs of features, not over examples; examples are standardised over the batch by hand
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16


def augment(x):
    return x * (torch.rand_like(x) > 0.2) * (0.7 + 0.6 * torch.rand(len(x), 1)) + 0.1 * torch.randn_like(x)


backbone = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 48))
projector = nn.Sequential(nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 64))
model = nn.Sequential(backbone, projector)


@torch.no_grad()
def agreement():
    """How much nearer two views of a picture are to each other than views of different pictures."""
    z1, z2 = (model(augment(images[1300:])) for _ in range(2))
    return 1 - float((z1 - z2).pow(2).mean() / (z1 - z2.roll(1, 0)).pow(2).mean())


before = agreement()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(400):
        x = images[torch.randint(0, 1300, (128,))]
        a, b = model(augment(x)), model(augment(x))
        a, b = (a - a.mean(0)) / a.std(0), (b - b.mean(0)) / b.std(0)
        c = a.T @ b / len(x)
        on = (c.diagonal() - 1).pow(2).sum()
        off = c.pow(2).sum() - c.diagonal().pow(2).sum()
        loss = on + 5e-3 * off
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

score = agreement()
learned = score > before + 0.1
