"""Batch-hard triplet loss with too large a rate: all embeddings collapse into one point and the loss stays at the margin.

source: https://github.com/VisualComputingInstitute/triplet-reid/issues/30
catalogue: github
field: metric learning
cause: lr-too-high
observable: yes
"""
import torch
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
by_class = [torch.where(y == c)[0] for c in range(10)]


def pk_batch(p=8, k=6):
    classes = torch.randperm(10)[:p]
    return torch.cat([by_class[c][torch.randperm(len(by_class[c]))[:k]] for c in classes])


def batch_hard(embedding, label, margin=0.5):
    distance = torch.cdist(embedding, embedding)
    same = label.unsqueeze(0) == label.unsqueeze(1)
    hardest_positive = (distance * same).amax(1)
    hardest_negative = distance.masked_fill(same, float("inf")).amin(1)
    return (margin + hardest_positive - hardest_negative).clamp(min=0).mean()


net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 16))
optimizer = torch.optim.Adam(net.parameters(), lr=0.1)  # bug
# fix: optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
with nv.watch(net, optimizer) as watch:
    for iteration in range(400):
        i = pk_batch()
        loss = batch_hard(net(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    distance = torch.cdist(net(x), net(x)).fill_diagonal_(float("inf"))
score = float((y[distance.argmin(1)] == y).float().mean())  # rank-1 retrieval
learned = score > 0.95 and float(loss.detach()) < 0.4
