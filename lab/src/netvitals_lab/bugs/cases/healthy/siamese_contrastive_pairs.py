"""A siamese network with shared weights and the contrastive loss on pairs of digits.

source: Hadsell, Chopra & LeCun, Dimensionality Reduction by Learning an Invariant Mapping (CVPR 2006)
field: metric learning
unusual: the same module is called twice per step, the loss of far-apart negative pairs is exactly zero
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
x = torch.tensor(digits.data / 16 - 0.3, dtype=torch.float32)
y = torch.tensor(digits.target)
shuffle = torch.randperm(len(y))
x, y = x[shuffle], y[shuffle]
train = 1400
members = [torch.nonzero(y[:train] == k).squeeze(1) for k in range(10)]


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))

    def forward(self, a, b):
        return self.net(a), self.net(b)


def draw_pairs(n=64):
    left = torch.randint(0, train, (n,))
    right = torch.randint(0, train, (n,))
    for i in range(0, n, 2):
        group = members[int(y[left[i]])]
        right[i] = group[torch.randint(0, len(group), (1,))]
    return x[left], x[right], (y[left] == y[right]).float()


siamese = Embedder()
optimizer = torch.optim.Adam(siamese.parameters(), lr=0.002)
with nv.watch(siamese, optimizer) as watch:
    for step in range(350):
        a, b, same = draw_pairs()
        u, v = siamese(a, b)
        d = (u - v).pow(2).sum(1).add(1e-8).sqrt()
        loss = (same * d ** 2 + (1 - same) * F.relu(1.0 - d) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    code = siamese.net(x)
    nearest = torch.cdist(code[train:], code[:train]).argmin(1)
score = float((y[:train][nearest] == y[train:]).float().mean())
learned = score > 0.9
