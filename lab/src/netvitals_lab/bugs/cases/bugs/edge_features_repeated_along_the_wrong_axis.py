"""Point-cloud EdgeConv: the neighbours' features are repeated along the wrong axis, so a point is paired with itself only.

source: https://github.com/prs-eth/OverlapPredator/pull/14
catalogue: github
field: point clouds (graph network)
cause: inputs-lost
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


def clouds(n, pairs=10):
    """Pairs of close points; in one class the partners lie beside, in the other above each other."""
    y = torch.randint(0, 2, (n,))
    centres = torch.rand(n, pairs, 2) * 4 - 2
    offset = 0.15 * torch.stack([1 - y, y], 1).float().unsqueeze(1) + 0.02 * torch.randn(n, pairs, 2)
    x = torch.cat([centres, centres + offset], 1)
    return x.transpose(1, 2), y


def get_graph_feature(coords, feats, k=1):
    B, C, N = feats.size()
    dist = torch.cdist(coords.transpose(1, 2), coords.transpose(1, 2))
    idx = dist.topk(k + 1, dim=-1, largest=False)[1][:, :, 1:]  # (B, N, k)
    idx = idx.unsqueeze(1).repeat(1, C, 1, 1)
    all_feats = feats.unsqueeze(-1).repeat(1, 1, 1, N)  # bug
    # fix: all_feats = feats.unsqueeze(2).repeat(1, 1, N, 1)
    neighbor_feats = torch.gather(all_feats, dim=-1, index=idx)
    feats = feats.unsqueeze(-1).repeat(1, 1, 1, k)
    return torch.cat((feats, neighbor_feats - feats), dim=1)


class EdgeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(4, 32, 1), nn.Conv2d(32, 32, 1)
        self.head = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, x):
        h = F.relu(self.conv2(F.relu(self.conv1(get_graph_feature(x, x)))))
        return self.head(h.amax((2, 3)))


model = EdgeNet()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
x_train, y_train = clouds(1200)
with nv.watch(model, optimizer) as watch:
    for epoch in range(10):
        for i in torch.randperm(1200).split(40):
            loss = F.cross_entropy(model(x_train[i]), y_train[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

x, y = clouds(400)
score = float((model(x).argmax(1) == y).float().mean())
learned = score > 0.85
