"""A head pose network learns the angle between directions with acos; at 1.0 its slope is infinite.

source: https://github.com/GPflow/GPflow/issues/409 (gDefects4DL gpflow409)
catalogue: gdefects4dl
field: direction regression
cause: bad-values
observable: yes
"""
import torch
from torch import nn
from torch.nn.functional import normalize

import netvitals as nv


class GazeNet(nn.Module):
    """From the 8 x 8 picture of a ball to the direction of the light."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten())
        self.direction = nn.Linear(16 * 16, 3)

    def forward(self, x):
        return normalize(self.direction(self.features(x)), dim=1)


def shaded_balls(n):
    light = normalize(torch.randn(n, 3) * torch.tensor([1.0, 1.0, 0.3]) + torch.tensor([0.0, 0.0, 1.0]), dim=1)
    light[torch.rand(n) < 0.1] = torch.tensor([0.0, 0.0, 1.0])  # many photos are lit from the front
    u, v = torch.meshgrid(torch.linspace(-0.7, 0.7, 8), torch.linspace(-0.7, 0.7, 8), indexing="ij")
    surface = torch.stack([u, v, (1 - u**2 - v**2).sqrt()])
    return torch.einsum("nc,cij->nij", light, surface).clamp_min(0).unsqueeze(1), light


def angular_distance(a, b):
    cosine = (a * b).sum(1).clamp(-1, 1)
    return torch.acos(cosine)  # bug
    # fix: return torch.acos(cosine * (1 - 1e-6))


images, lights = shaded_balls(2000)
model = GazeNet()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(600):
        rows = torch.randint(0, 1800, (64,))
        loss = angular_distance(model(images[rows]), lights[rows]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    score = -float(torch.rad2deg(torch.acos((model(images[1800:]) * lights[1800:]).sum(1).clamp(-1, 1))).mean())
learned = score > -6.0
