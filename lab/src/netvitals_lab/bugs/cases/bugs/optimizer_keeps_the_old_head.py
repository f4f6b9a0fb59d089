"""Transfer learning: the head is replaced by a fresh layer after Adam was created, and Adam keeps the old one.

source: https://pypi.org/project/torchtest2/ (bug gallery: optimizer created before the head was swapped)
catalogue: torchtest
field: transfer learning
cause: stale-parameters, parameters-not-in-optimizer
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
x = torch.tensor(digits.data / 16).float()
y = torch.tensor(digits.target)
old_task, new_task = y < 5, y >= 5


class Backbone(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.head = nn.Linear(32, classes)

    def forward(self, t):
        return self.head(self.trunk(t))


def fit(model, optimizer, data, target, epochs, watch=None):
    for epoch in range(epochs):
        for i in torch.randperm(len(data)).split(32):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(data[i]), target[i])
            loss.backward()
            optimizer.step()
            if watch:
                watch.step(loss)


model = Backbone(5)
fit(model, torch.optim.Adam(model.parameters(), lr=0.002), x[old_task], y[old_task], 6)
optimizer = torch.optim.Adam([  # bug
    {"params": model.trunk.parameters(), "lr": 2e-5},  # bug
    {"params": model.head.parameters(), "lr": 0.01}])  # bug
model.head = nn.Linear(32, 5)
# fix: optimizer = torch.optim.Adam([
# fix:     {"params": model.trunk.parameters(), "lr": 2e-5},
# fix:     {"params": model.head.parameters(), "lr": 0.01}])
with nv.watch(model, optimizer) as watch:
    fit(model, optimizer, x[new_task], y[new_task] - 5, 12, watch)

with torch.no_grad():
    score = float((model(x[new_task]).argmax(1) == y[new_task] - 5).float().mean())
learned = score > 0.5
