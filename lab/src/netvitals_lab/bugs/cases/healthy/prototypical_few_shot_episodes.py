"""Few-shot learning by episodes: class means of the support set are the classifier (prototypical networks).

source: Snell, Swersky & Zemel, Prototypical Networks for Few-shot Learning (NeurIPS 2017)
field: few-shot learning
unusual: labels mean something else in every step, there is no output layer, classes of the test are never seen in training
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

SEEN, NEW, DIM = 60, 20, 24
signature = torch.randn(SEEN + NEW, 6)
lift = torch.randn(6, DIM)
nuisance = torch.randn(6, DIM) * 1.5


def episode(low, high, ways=5, shots=3, queries=5):
    kinds = torch.randperm(high - low)[:ways] + low
    which = kinds.repeat_interleave(shots + queries)
    x = signature[which] @ lift + torch.randn(len(which), 6) @ nuisance + 0.2 * torch.randn(len(which), DIM)
    x = torch.tanh(x / 4).view(ways, shots + queries, DIM)
    return x[:, :shots], x[:, shots:]


class ProtoNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(DIM, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))

    def forward(self, support, query):
        prototypes = self.encoder(support).mean(1)
        return -torch.cdist(self.encoder(query).flatten(0, 1), prototypes) ** 2


model = ProtoNet()
optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
label = torch.arange(5).repeat_interleave(5)
with nv.watch(model, optimizer) as watch:
    for step in range(500):
        support, query = episode(0, SEEN)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(support, query), label)
        loss.backward()
        optimizer.step()
        watch.step(loss)

right = []
with torch.no_grad():
    for _ in range(100):
        support, query = episode(SEEN, SEEN + NEW)
        right.append((model(support, query).argmax(1) == label).float().mean())
score = float(torch.stack(right).mean())
learned = score > 0.75
