"""Two-layer GCN on one graph, full batch, with labels for ten per cent of the nodes only.

source: https://arxiv.org/abs/1609.02907
field: graph networks (node classification)
unusual: the same batch at every step, the loss uses few of the outputs, dropout on the inputs, weight decay on the first layer only
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

N = 400
labels = torch.arange(N) % 4
same = labels.unsqueeze(0) == labels.unsqueeze(1)
upper = (torch.rand(N, N) < torch.where(same, 0.06, 0.005)).triu(1).float()
adjacency = upper + upper.T + torch.eye(N)
d = adjacency.sum(1).rsqrt()
adjacency = d.unsqueeze(1) * adjacency * d
features = (torch.rand(N, 60) < 0.05 + 0.15 * (torch.arange(60) % 4 == labels.unsqueeze(1))).float()
features = features / features.sum(1, keepdim=True).clamp(min=1)
train = torch.rand(N) < 0.1


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2 = nn.Linear(60, 16, bias=False), nn.Linear(16, 4, bias=False)

    def forward(self, x):
        x = F.dropout(x, 0.5, self.training)
        x = F.relu(adjacency @ self.w1(x))
        return adjacency @ self.w2(F.dropout(x, 0.5, self.training))


model = GCN()
optimizer = torch.optim.Adam([{"params": model.w1.parameters(), "weight_decay": 5e-4}, {"params": model.w2.parameters()}], lr=0.01)
with nv.watch(model, optimizer) as watch:
    for epoch in range(250):
        model.train()
        loss = F.cross_entropy(model(features)[train], labels[train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

model.eval()
score = float((model(features).argmax(1) == labels)[~train].float().mean())
learned = score > 0.8
