"""Graph attention on many small graphs: a node must find out the value of its neighbour with the same key.

source: https://arxiv.org/abs/1710.10903
field: graph networks (attention)
unusual: attention masked with minus infinity, so many weights are exactly zero; ELU; node-wise regression
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


def graphs(n, nodes=10):
    key = torch.rand(n, nodes).argsort(1) % (nodes // 2)  # each key twice
    value = torch.randn(n, nodes)
    same = (key.unsqueeze(1) == key.unsqueeze(2)) & ~torch.eye(nodes, dtype=torch.bool)
    edges = same | (torch.rand(n, nodes, nodes) < 0.4) | torch.eye(nodes, dtype=torch.bool)
    x = torch.cat([F.one_hot(key, nodes // 2).float(), value.unsqueeze(-1)], -1)
    return x, edges, (same.float() @ value.unsqueeze(-1)).squeeze(-1)


class GraphAttention(nn.Module):
    def __init__(self, i, o, heads=4):
        super().__init__()
        self.heads = heads
        self.left, self.right, self.w = nn.Linear(i, heads * o), nn.Linear(i, heads * o), nn.Linear(i, heads * o)
        self.a = nn.Parameter(torch.randn(heads, o) / o**0.5)

    def forward(self, x, edges):
        n, m, _ = x.shape
        left, right, w = (f(x).view(n, m, self.heads, -1) for f in (self.left, self.right, self.w))
        e = (F.leaky_relu(left.unsqueeze(2) + right.unsqueeze(1), 0.2) * self.a).sum(-1)  # GATv2
        alpha = e.masked_fill(~edges.unsqueeze(-1), float("-inf")).softmax(2)
        return torch.einsum("nijh,njhd->nihd", alpha, w).flatten(2)


class GAT(nn.Module):
    def __init__(self):
        super().__init__()
        self.gat, self.skip, self.out = GraphAttention(6, 16), nn.Linear(6, 64), nn.Linear(64, 1)

    def forward(self, x, edges):
        return self.out(F.elu(self.gat(x, edges) + self.skip(x))).squeeze(-1)


model = GAT()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(450):
        x, edges, y = graphs(48)
        loss = F.mse_loss(model(x, edges), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

x, edges, y = graphs(300)
score = 1 - float(F.mse_loss(model(x, edges), y) / y.var())
learned = score > 0.8
