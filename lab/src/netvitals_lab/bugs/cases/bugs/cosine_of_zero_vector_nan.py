"""A matching network with its own cosine: dead ReLU rows have norm zero and the division gives NaN.

source: https://github.com/keras-team/keras/issues/2672 (gDefects4DL keras2672)
catalogue: gdefects4dl
field: siamese matching
cause: bad-values
observable: yes
"""
import torch
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32) / 16 - 0.5
y = torch.tensor(digits.target)


def cosine(a, b):
    denominator = (a.square().sum(1) * b.square().sum(1)).sqrt()
    return (a * b).sum(1) / denominator  # bug
    # fix: return torch.nn.functional.cosine_similarity(a, b, dim=1)


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())

    def forward(self, x):
        return self.net(x)


def pairs(n, low, high):
    a = torch.randint(low, high, (n,))
    b = torch.randint(low, high, (n,))
    partner = torch.stack([torch.randint(low, high, (n,)) for _ in range(30)])
    same = (y[partner] == y[a]).float().argmax(0)
    b = torch.where(torch.rand(n) < 0.5, partner[same, torch.arange(n)], b)
    return x[a], x[b], (y[a] == y[b]).float()


model = Tower()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(500):
        left, right, match = pairs(128, 0, 1400)
        similarity = cosine(model(left), model(right))
        loss = (similarity - match).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    left, right, match = pairs(1000, 1400, 1797)
    score = float(((cosine(model(left), model(right)) > 0.5) == match.bool()).float().mean())
learned = score > 0.72
