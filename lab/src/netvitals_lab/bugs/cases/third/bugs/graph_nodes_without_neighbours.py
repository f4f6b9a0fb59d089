"""Symmetric normalisation of a learned k-NN graph divides by the degree; a node without any edge makes everything NaN.

source: https://github.com/BorealisAI/SLAPS-GNN/issues/3
catalogue: github
field: graph networks (node classification)
cause: bad-values
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

NODES = 240
label = torch.randint(0, 3, (NODES,))
features = F.one_hot(label, 3).float() @ torch.randn(3, 12) + 1.6 * torch.randn(NODES, 12)
probability = torch.where(label[:, None] == label[None, :], 0.06, 0.005)
adjacency = (torch.rand(NODES, NODES) < probability).triu(1).float()
adjacency = adjacency + adjacency.T
adjacency[:, :4] = 0  # four texts that nothing cites and that cite nothing
adjacency[:4] = 0


def normalize(adj):
    inv_sqrt_degree = 1.0 / adj.sum(1).sqrt()  # bug
    # fix: inv_sqrt_degree = 1.0 / (adj.sum(1).sqrt() + 1e-10)
    return inv_sqrt_degree[:, None] * adj * inv_sqrt_degree[None, :]


class GCN(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(12, hidden), nn.Linear(hidden, 3)
        self.self1, self.self2 = nn.Linear(12, hidden), nn.Linear(hidden, 3)

    def forward(self, x, adj):
        h = F.relu(adj @ self.lin1(x) + self.self1(x))
        return adj @ self.lin2(h) + self.self2(h)


train = torch.zeros(NODES, dtype=torch.bool)
train[torch.randperm(NODES)[:80]] = True
model, adj = GCN(), normalize(adjacency)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
with nv.watch(model, optimizer) as watch:
    for epoch in range(150):
        loss = F.cross_entropy(model(features, adj)[train], label[train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

score = float((model(features, adj).argmax(1) == label)[~train].float().mean())
learned = score > 0.75
