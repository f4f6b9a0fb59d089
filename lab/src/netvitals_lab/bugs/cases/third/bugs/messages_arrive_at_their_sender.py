"""A graph layer sums messages at the source of an edge instead of its target: nobody hears from its predecessors.

source: https://github.com/pyg-team/pytorch_geometric/issues/670
catalogue: github
field: graph networks (directed graphs)
cause: inputs-lost, layout-mixed
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

NODES = 60


def graph():
    """A directed graph; a node's class is the commonest kind among those that point to it."""
    kind = torch.randint(0, 3, (NODES,))
    source, target = torch.randint(0, NODES, (2, 5 * NODES))
    votes = torch.zeros(NODES, 3).index_add(0, target, F.one_hot(kind[source], 3).float())
    votes = votes + 0.01 * torch.rand(NODES, 3)
    return F.one_hot(kind, 3).float(), torch.stack([source, target]), votes.argmax(1)


class NodeModel(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.node_mlp_1 = nn.Sequential(nn.Linear(n_in, 32), nn.ReLU(), nn.Linear(32, 32))
        self.node_mlp_2 = nn.Sequential(nn.Linear(n_in + 32, 32), nn.ReLU(), nn.Linear(32, n_out))

    def forward(self, x, edge_index):
        row, col = edge_index
        message, place = self.node_mlp_1(x[col]), row  # bug
        # fix: message, place = self.node_mlp_1(x[row]), col
        total = torch.zeros(len(x), 32).index_add(0, place, message)
        count = torch.zeros(len(x)).index_add(0, place, torch.ones(len(place))).clamp(min=1)
        return self.node_mlp_2(torch.cat([x, total / count.unsqueeze(1)], 1))


model = NodeModel(3, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(350):
        x, edge_index, y = graph()
        loss = F.cross_entropy(model(x, edge_index), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    hits = [(model(x, e).argmax(1) == y).float().mean() for x, e, y in (graph() for _ in range(20))]
score = float(torch.stack(hits).mean())
learned = score > 0.8
