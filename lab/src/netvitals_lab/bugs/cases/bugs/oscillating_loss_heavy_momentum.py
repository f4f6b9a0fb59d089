"""The loss swings up and down for the whole training: SGD with momentum 0.99 and a large rate.

source: https://github.com/shiningrain/AUTOTRAINER (problem OL, CIFAR-10 dataset)
catalogue: autotrainer
field: image classification
cause: momentum-too-high, lr-too-high
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

base = torch.randn(6, 3, 12, 12)
kind = torch.randint(0, 6, (900,))
pixels = 0.35 * base[kind] + torch.randn(900, 3, 12, 12)


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 12, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(12, 24, 3), nn.ReLU())
        self.classify = nn.Sequential(nn.Linear(24 * 9, 60), nn.ReLU(), nn.Linear(60, 6))

    def forward(self, x):
        return self.classify(self.features(x).flatten(1))


lenet = LeNet()
optimizer = torch.optim.SGD(lenet.parameters(), lr=0.05, momentum=0.99)  # bug
# fix: optimizer = torch.optim.SGD(lenet.parameters(), lr=0.02, momentum=0.9)
with nv.watch(lenet, optimizer) as watch:
    for epoch in range(10):
        for rows in torch.randperm(700).split(32):
            optimizer.zero_grad()
            loss = F.cross_entropy(lenet(pixels[rows]), kind[rows])
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = float((lenet(pixels[700:]).argmax(1) == kind[700:]).float().mean())
learned = score > 0.85
