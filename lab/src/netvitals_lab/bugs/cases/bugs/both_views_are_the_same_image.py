"""Contrastive training in which the second view is a name for the first one: the positives are identical.

source: https://github.com/microsoft/A-CLIP/pull/4
catalogue: github
field: self-supervised learning
cause: label-is-input, augmentation-wrong
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

patterns = torch.randn(12, 24)


def photos(n):
    """A pattern under a random light, seen through a part of the sensors."""
    kind = torch.randint(0, 12, (n,))
    return patterns[kind], kind


def augment(x):
    light = torch.randn(len(x), 1) * 2
    colour = torch.randn(len(x), 24) * 0.5
    seen = (torch.rand_like(x) > 0.2).float()
    return (x + light + colour) * seen


class SIMCLRLoss(nn.Module):
    def __init__(self, temperature=0.1):
        super().__init__()
        self.tau = temperature

    def forward(self, q_a, q_b):
        q_a, q_b = F.normalize(q_a, dim=-1), F.normalize(q_b, dim=-1)
        q_b = q_a  # bug
        n = len(q_a)
        logits_aa = q_a @ q_a.t() / self.tau - torch.eye(n) * 1e9
        logits_ab = q_a @ q_b.t() / self.tau
        return F.cross_entropy(torch.cat([logits_ab, logits_aa], 1), torch.arange(n))


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 32))
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(32, 16))

    def forward(self, x):
        return self.head(self.trunk(x))


model, criterion = Tower(), SIMCLRLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
with nv.watch(model, optimizer) as watch:
    for step in range(500):
        x, _ = photos(96)
        loss = criterion(model(augment(x)), model(augment(x)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():  # nearest neighbour among the embeddings of other photos
    (x, a), (z, b) = photos(600), photos(600)
    similarity = F.normalize(model(augment(x)), dim=1) @ F.normalize(model(augment(z)), dim=1).t()
    score = float((b[similarity.topk(5).indices].mode(1).values == a).float().mean())
learned = score > 0.75
