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


def clouds(n, points=24):
    """A pair of points at a distance below 0.1 exists (1) or not (0)."""
    grid = torch.cartesian_prod(torch.arange(7), torch.arange(7)).float() / 3 - 1
    x = torch.stack([grid[torch.randperm(49)[:points]] for _ in range(n)]) + 0.05 * torch.randn(n, points, 2)
    y = torch.randint(0, 2, (n,))
    near = x[:, 1] + 0.02 * torch.randn(n, 2)
    x[:, 0] = torch.where(y.unsqueeze(1) == 1, near, x[:, 0])
    return x.transpose(1, 2), y


def get_graph_feature(coords, feats, k=3):
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
    for epoch in range(15):
        for i in torch.randperm(1200).split(40):
            loss = F.cross_entropy(model(x_train[i]), y_train[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

x, y = clouds(400)
score = float((model(x).argmax(1) == y).float().mean())
learned = score > 0.85
