"""RankNet on query groups of different length with graded relevance; scores are only determined up to a constant.

source: https://icml.cc/Conferences/2005/proceedings/papers/012_LearningToRank_BurgesEtAl.pdf
field: learning to rank
unusual: the loss compares outputs with each other; the last bias has a gradient of zero; one query per step; the loss starts at log 2
"""
import random

import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


def query():
    n = random.randint(5, 15)
    x = torch.randn(n, 6)
    value = x[:, 0] + x[:, 1].abs() - x[:, 2] * x[:, 3] + 0.1 * torch.randn(n)
    return x, torch.bucketize(value, torch.tensor([-0.5, 0.5, 1.5]))


ranker = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(ranker.parameters(), lr=2e-3)
with nv.watch(ranker, optimizer) as watch:
    for step in range(600):
        losses = []
        for _ in range(4):
            x, grade = query()
            s = ranker(x).squeeze(1)
            better = grade.unsqueeze(1) > grade.unsqueeze(0)
            if better.any():
                losses.append(F.softplus(s.unsqueeze(0) - s.unsqueeze(1))[better].mean())
        loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

right, total = 0, 0
with torch.no_grad():
    for _ in range(100):
        x, grade = query()
        s = ranker(x).squeeze(1)
        better = grade.unsqueeze(1) > grade.unsqueeze(0)
        right += int((s.unsqueeze(1) > s.unsqueeze(0))[better].sum())
        total += int(better.sum())
score = right / total
learned = score > 0.85
