"""Link prediction: the edges that are to be predicted are also the ones along which messages are passed.

source: https://github.com/cynricfu/MAGNN/issues/7
catalogue: github
field: graph networks (link prediction)
cause: label-leak
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

NODES = 160
hidden = torch.randn(NODES, 2)
features = torch.cat([hidden + 1.2 * torch.randn(NODES, 2), torch.randn(NODES, 10)], 1)
near = torch.cdist(hidden, hidden) + 3 * torch.eye(NODES)
edges = (near.triu(1) + 100 * torch.ones(NODES, NODES).tril()).flatten().argsort()[:900]
edges = torch.stack([edges // NODES, edges % NODES])[:, torch.randperm(900)]
train, test = edges[:, :650], edges[:, 650:]


def adjacency(pairs):
    a = torch.eye(NODES) * 0
    a[pairs[0], pairs[1]] = a[pairs[1], pairs[0]] = 1
    return a


class LinkNet(nn.Module):
    """Scores a pair by both embeddings and by the share of the mail that each gets from the other."""

    def __init__(self):
        super().__init__()
        self.inside = nn.Linear(12, 24)
        self.own, self.mail = nn.Linear(24, 24), nn.Linear(24, 24)
        self.score = nn.Sequential(nn.Linear(25, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, adj, pairs):
        h = F.relu(self.inside(features))
        a = adj / adj.sum(1, keepdim=True).clamp(min=1)
        z = self.own(h) + self.mail(a @ h)
        u, v = pairs
        return self.score(torch.cat([z[u] * z[v], (a[u, v] + a[v, u]).unsqueeze(1)], 1)).squeeze(1)


def negatives(n):
    pair = torch.randint(0, NODES, (2, n))
    known = adjacency(edges).bool()[pair[0], pair[1]]
    return pair[:, ~known]


model = LinkNet()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(600):
        order = torch.randperm(650)
        asked, rest = train[:, order[:200]], train[:, order]
        # fix: rest = train[:, order[200:]]
        against = negatives(200)
        logits = model(adjacency(rest), torch.cat([asked, against], 1))
        target = torch.cat([torch.ones(200), torch.zeros(against.shape[1])])
        loss = F.binary_cross_entropy_with_logits(logits, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    good, bad = model(adjacency(train), test), model(adjacency(train), negatives(600))
score = float((good.unsqueeze(1) > bad).float().mean())
learned = score > 0.946
