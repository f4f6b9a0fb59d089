"""Mixture of experts, k = 1: softmax over the single chosen logit is always one, the router never gets a gradient.

source: https://github.com/davidmrau/mixture-of-experts/issues/27
catalogue: github
field: mixture of experts (regression)
cause: softmax-over-one-class, detached-graph
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

maps = torch.randn(6, 5, 3)
turn = torch.randn(6, 2) * 3


def data(n):
    """Which of six linear maps applies is told by two of the columns."""
    which = torch.randint(0, 6, (n,))
    x = torch.randn(n, 5)
    place = turn[which] + 0.3 * torch.randn(n, 2)
    y = torch.einsum("nd,ndo->no", x, maps[which])
    return torch.cat([x, place], 1), y


class MoE(nn.Module):
    def __init__(self, experts=6, k=1):
        super().__init__()
        self.k = k
        self.w_gate = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, experts))
        self.experts = nn.ModuleList(nn.Linear(7, 3) for _ in range(experts))

    def forward(self, x):
        logits = self.w_gate(x)
        top_logits, top_indices = logits.topk(self.k, dim=1)
        top_gates = top_logits.softmax(1)  # bug
        # fix: top_gates = logits.softmax(1).gather(1, top_indices)
        gates = torch.zeros_like(logits).scatter(1, top_indices, top_gates)
        return torch.einsum("ne,eno->no", gates, torch.stack([expert(x) for expert in self.experts]))


model = MoE()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(900):
        x, y = data(128)
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

model.eval()
x, y = data(2000)
with torch.no_grad():
    score = 1 - float((model(x) - y).pow(2).mean() / y.var())
learned = score > 0.55
