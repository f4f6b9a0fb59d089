"""PointNet: a shared network per point, a maximum over points, a learned rotation that starts as the identity.

source: https://arxiv.org/abs/1612.00593
field: point clouds (PointNet)
unusual: only the points at the maximum get a gradient; a regulariser holds a predicted matrix near orthogonal
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

POINTS = 64


def clouds(n):
    """Spheres, cubes and cylinders of random size, noise and order of points."""
    y = torch.randint(0, 3, (n,))
    g = torch.randn(n, POINTS, 3)
    sphere = F.normalize(g, dim=2)
    cube = g / g.abs().amax(2, keepdim=True)
    cylinder = torch.cat([F.normalize(g[..., :2], dim=2), torch.rand(n, POINTS, 1) * 2 - 1], 2)
    x = torch.stack([sphere, cube, cylinder])[y, torch.arange(n)]
    return x * (0.8 + 0.4 * torch.rand(n, 1, 1)) + 0.04 * torch.randn(n, POINTS, 3), y


def shared(*widths):
    layers = []
    for i, o in zip(widths, widths[1:]):
        layers += [nn.Conv1d(i, o, 1), nn.BatchNorm1d(o), nn.ReLU()]
    return nn.Sequential(*layers)


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.t_points, self.t_out = shared(3, 32, 48), nn.Sequential(nn.Linear(48, 24), nn.ReLU(), nn.Linear(24, 9))
        nn.init.zeros_(self.t_out[-1].weight)
        with torch.no_grad():
            self.t_out[-1].bias.copy_(torch.eye(3).flatten())
        self.points = shared(3, 32, 64)
        self.head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 3))

    def forward(self, x):
        x = x.transpose(1, 2)
        matrix = self.t_out(self.t_points(x).amax(2)).view(-1, 3, 3)
        return self.head(self.points(matrix @ x).amax(2)), matrix


net = PointNet()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
with nv.watch(net, optimizer) as watch:
    for step in range(250):
        x, y = clouds(32)
        logits, matrix = net(x)
        orthogonal = (matrix @ matrix.transpose(1, 2) - torch.eye(3)).pow(2).sum((1, 2)).mean()
        loss = F.cross_entropy(logits, y) + 1e-3 * orthogonal
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

net.eval()
x, y = clouds(400)
score = float((net(x)[0].argmax(1) == y).float().mean())
learned = score > 0.85
