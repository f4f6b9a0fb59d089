"""The averaged model takes over parameters only; its batch norm keeps the statistics of the start.

source: https://github.com/FlyreelAI/sesemi/issues/36 (and https://github.com/saltoricristiano/cosmix-uda/issues/21)
catalogue: github
field: image classification with an averaged model
cause: buffers-not-copied NEW, batchnorm-train-eval
observable: yes
silent: yes
"""
import copy

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
x = 16 - torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)  # black on white, as scanned
y = torch.tensor(digits.target)


class EMA:
    def __init__(self, model, decay=0.98):
        self.model = copy.deepcopy(model).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, online):
        for ema, new in zip(self.model.parameters(), online.parameters()):
            ema.mul_(self.decay).add_(new, alpha=1 - self.decay)
        # fix: for ema, new in zip(self.model.buffers(), online.buffers()):
        # fix:     ema.copy_(new)


def conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2))


model = nn.Sequential(conv(1, 16), conv(16, 32), nn.Flatten(), nn.Linear(128, 10))
averaged = EMA(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
with nv.watch(nn.ModuleDict({"online": model, "averaged": averaged.model}), optimizer) as watch:
    for epoch in range(10):
        model.train()
        for rows in torch.randperm(1500).split(50):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            averaged.update(model)
            watch.step(loss)
        with torch.no_grad():
            validation = (averaged.model(x[1500:]).argmax(1) == y[1500:]).float().mean()

score = float(validation)
learned = score > 0.85
