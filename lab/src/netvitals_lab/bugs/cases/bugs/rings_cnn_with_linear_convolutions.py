"""A CNN whose convolutions and dense layers all have a linear activation cannot see curved shapes.

source: https://github.com/BerkeleyHCI/umlaut (user_eval/eval_b.py, activation='linear')
catalogue: umlaut
field: image classification
cause: missing-nonlinearity
observable: yes
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

import netvitals as nv


def textures(n, size=14):
    """Class 0: one long wave; class 1: short waves; class 2: short waves of half contrast; random phases."""
    y = torch.randint(0, 3, (n,))
    frequency = torch.where(y == 0, 0.5, 2.0)
    contrast = torch.where(y == 2, 0.4, 1.2)
    angle, phase = torch.rand(2, n) * 6.283
    g = torch.arange(size).float()
    along = g[None, None, :] * torch.cos(angle)[:, None, None] + g[None, :, None] * torch.sin(angle)[:, None, None]
    waves = contrast[:, None, None] * torch.sin(frequency[:, None, None] * along + phase[:, None, None])
    return (waves + 0.2 * torch.randn(n, size, size)).unsqueeze(1), y


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 16, 3)
        self.c2 = nn.Conv2d(16, 16, 3)
        self.d1 = nn.Linear(16 * 5 * 5, 48)
        self.d2 = nn.Linear(48, 3)

    def forward(self, x):
        x = self.c1(x)  # bug
        x = F.avg_pool2d(self.c2(x), 2)  # bug
        x = self.d1(x.flatten(1))  # bug
        # fix: x = F.relu(self.c1(x))
        # fix: x = F.avg_pool2d(F.relu(self.c2(x)), 2)
        # fix: x = F.relu(self.d1(x.flatten(1)))
        return self.d2(x)


model = Cnn()
optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
with nv.watch(model, optimizer) as watch:
    for step in range(300):
        image, label = textures(64)
        loss = F.cross_entropy(model(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

image, label = textures(500)
with torch.no_grad():
    score = float((model(image).argmax(1) == label).float().mean())
learned = score > 0.85
