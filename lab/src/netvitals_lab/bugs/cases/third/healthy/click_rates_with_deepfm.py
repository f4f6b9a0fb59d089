"""DeepFM: first-order, pairwise and deep parts share one table of embeddings; five per cent of the rows are clicks.

source: https://arxiv.org/abs/1703.04247
field: recommenders (click-through rate)
unusual: rare positives without any weights, the loss begins near its floor; most rows of the table are rarely used
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

SIZES = torch.tensor([200, 60, 24, 7])
offset = torch.cat([torch.zeros(1, dtype=torch.long), SIZES.cumsum(0)[:-1]])
hidden = torch.randn(int(SIZES.sum()), 3)


def impressions(n):
    c = (torch.rand(n, 4).pow(2) * SIZES).long() + offset  # small numbers are common
    v = hidden[c]
    logit = -4.2 + 1.3 * (v[:, 0] * v[:, 1]).sum(1) + (v[:, 0] * v[:, 2]).sum(1) + v[:, 3, 0]
    return c, torch.bernoulli(torch.sigmoid(logit))


class DeepFM(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.linear, self.embed = nn.Embedding(len(hidden), 1), nn.Embedding(len(hidden), dim)
        nn.init.zeros_(self.linear.weight), nn.init.normal_(self.embed.weight, std=0.1)
        self.deep = nn.Sequential(nn.Linear(4 * dim, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
        self.bias = nn.Parameter(torch.tensor(-3.0))

    def forward(self, c):
        v = self.embed(c)
        pairs = 0.5 * (v.sum(1).pow(2) - v.pow(2).sum(1)).sum(1)
        return self.bias + self.linear(c).sum((1, 2)) + pairs + self.deep(v.flatten(1)).squeeze(1)


c_train, y_train = impressions(24000)
model = DeepFM()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-6)
with nv.watch(model, optimizer) as watch:
    for epoch in range(3):
        for i in torch.randperm(24000).split(128):
            loss = F.binary_cross_entropy_with_logits(model(c_train[i]), y_train[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

c, y = impressions(6000)
with torch.no_grad():
    s = model(c)
score = float((s[y == 1].unsqueeze(1) > s[y == 0]).float().mean())
learned = score > 0.72
