"""GIN: batches of graphs of different size as one block, sums over neighbours, a learned epsilon, readout of every layer.

source: https://arxiv.org/abs/1810.00826
field: graph networks (graph classification)
unusual: sum aggregation lets activations grow with the size of the graph; all nodes start with the same feature
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


def graphs(n):
    """Rings of different length; in class 1 with some chords that close triangles."""
    edges, owner, labels, start = [], [], torch.randint(0, 2, (n,)), 0
    for g, y in enumerate(labels.tolist()):
        size = int(torch.randint(8, 16, ()))
        ring = torch.arange(size)
        pairs = [torch.stack([ring, (ring + 1) % size])]
        spot = torch.randint(0, size, (3,))
        pairs.append(torch.stack([spot, (spot + (2 if y else 4)) % size]))
        both = torch.cat(pairs, 1) + start
        edges.append(torch.cat([both, both.flip(0)], 1))
        owner.append(torch.full((size,), g))
        start += size
    return torch.cat(edges, 1), torch.cat(owner), labels


class GIN(nn.Module):
    def __init__(self, width=32, layers=3):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(layers))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(1 if k == 0 else width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
            for k in range(layers)
        )
        self.heads = nn.ModuleList(nn.Linear(width, 2) for _ in range(layers))

    def forward(self, edges, owner, count):
        h, out = torch.ones(len(owner), 1), 0
        for eps, mlp, head in zip(self.eps, self.mlps, self.heads):
            neighbours = torch.zeros_like(h).index_add(0, edges[1], h[edges[0]])
            h = mlp((1 + eps) * h + neighbours)
            out = out + head(torch.zeros(count, h.shape[1]).index_add(0, owner, h))
        return out


model = GIN()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
data = [graphs(32) for _ in range(40)]
with nv.watch(model, optimizer) as watch:
    for step in range(520):
        edges, owner, y = data[step % 40]
        loss = F.cross_entropy(model(edges, owner, 32), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

model.eval()
edges, owner, y = graphs(400)
score = float((model(edges, owner, 400).argmax(1) == y).float().mean())
learned = score > 0.68
