"""GCN that multiplies with the raw adjacency: no self-loops and no normalisation, so hubs drown everything.

source: https://github.com/Emory-Melody/GraphSlim/issues/4
catalogue: github
field: graph networks (node classification)
cause: exploding-activations NEW, inputs-not-scaled
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

N, CLASSES = 400, 4
labels = torch.randint(0, CLASSES, (N,))
same = labels.unsqueeze(0) == labels.unsqueeze(1)
upper = (torch.rand(N, N) < torch.where(same, 0.25, 0.15)).triu(1)  # a dense graph; degrees of about 70
hubs = torch.randperm(N)[:12]
upper[hubs] = torch.rand(12, N) < 0.8
adjacency = ((upper + upper.T) > 0).float()
adjacency.fill_diagonal_(0)
features = F.one_hot(labels, CLASSES).float() + 1.2 * torch.randn(N, CLASSES) + 1.0
train = torch.arange(N) < 120


class GraphConvolution(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.linear = nn.Linear(i, o)

    def forward(self, x, adj):
        return adj @ self.linear(x)


class GCN(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.gc1, self.gc2, self.gc3 = GraphConvolution(CLASSES, hidden), GraphConvolution(hidden, hidden), GraphConvolution(hidden, CLASSES)

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.relu(self.gc2(x, adj))
        return self.gc3(x, adj)


adj = adjacency  # bug
# fix: adj = adjacency + 8 * torch.eye(N)
# fix: adj = adj / adj.sum(1).sqrt().unsqueeze(0) / adj.sum(1).sqrt().unsqueeze(1)
model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
with nv.watch(model, optimizer) as watch:
    for epoch in range(250):
        model.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(features, adj)[train], labels[train])
        loss.backward()
        optimizer.step()
        watch.step(loss)

score = float((model(features, adj).argmax(1) == labels)[~train].float().mean())
learned = score > 0.7
