"""A hand-written max-margin loss returns one value per example and forgets the mean: backward sums the batch.

source: https://stackoverflow.com/questions/44221396
catalogue: humbatova
field: ranking
cause: reduction-wrong
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

N_ITEMS, DIM = 120, 12
items = torch.randn(N_ITEMS, DIM)
taste = torch.randn(DIM)
value = (items @ taste + 2 * torch.tanh(items[:, 0] * items[:, 1]))


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(DIM, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def max_margin(positive, negative, margin=1.0):
    return torch.clamp(margin - positive + negative, min=0)  # bug
    # fix: return torch.clamp(margin - positive + negative, min=0).mean()


scorer = Scorer()
sgd = torch.optim.SGD(scorer.parameters(), lr=0.05, momentum=0.9)
with nv.watch(scorer, sgd) as watch:
    for step in range(300):
        a, b = torch.randint(0, N_ITEMS, (2, 256))
        better = torch.where(value[a] > value[b], a, b)
        worse = torch.where(value[a] > value[b], b, a)
        loss = max_margin(scorer(items[better]), scorer(items[worse]))
        sgd.zero_grad()
        loss.backward(torch.ones_like(loss))
        sgd.step()
        watch.step(loss.sum())

with torch.no_grad():
    s = scorer(items)
    i, j = torch.triu_indices(N_ITEMS, N_ITEMS, 1)
    score = float(((s[i] > s[j]) == (value[i] > value[j])).float().mean())
learned = score > 0.93
