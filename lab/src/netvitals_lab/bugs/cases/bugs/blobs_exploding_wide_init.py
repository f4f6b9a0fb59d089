"""Blobs, six ReLU layers drawn from a normal of std 0.5: the first gradients are astronomic.

source: https://github.com/shiningrain/AUTOTRAINER (problem GE, Blob dataset)
catalogue: autotrainer
field: toy classification
cause: exploding-gradients, init-too-large
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import make_blobs
from torch import nn

import netvitals as nv

X, labels = make_blobs(1200, 2, centers=[[-4, 0], [4, 0], [0, 5]])
X = torch.tensor(X / 3).float()
labels = torch.tensor(labels)


class Mlp(nn.Module):
    def __init__(self, depth=6, width=64):
        super().__init__()
        self.inp = nn.Linear(2, width)
        self.hidden = nn.ModuleList([nn.Linear(width, width) for _ in range(depth - 1)])
        self.out = nn.Linear(width, 3)
        for layer in [self.inp, *self.hidden]:
            nn.init.normal_(layer.weight, std=0.5)  # bug
            # fix: nn.init.kaiming_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        x = F.relu(self.inp(x))
        for layer in self.hidden:
            x = F.relu(layer(x))
        return self.out(x)


model = Mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with nv.watch(model, optimizer) as watch:
    for epoch in range(10):
        for index in torch.randperm(1000).split(32):
            loss = F.cross_entropy(model(X[index]), labels[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = float((model(X[1000:]).argmax(1) == labels[1000:]).float().mean())
learned = score > 0.9
