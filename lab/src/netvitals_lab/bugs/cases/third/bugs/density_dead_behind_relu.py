"""A radiance field whose density ends in a ReLU: after an unlucky start it is zero everywhere and stays so.

source: https://github.com/munshisanowarraihan/nerf-meta/issues/3
catalogue: github
field: radiance fields (NeRF)
cause: dead-units, output-activation
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

SAMPLES = 32
depth = torch.linspace(0, 2, SAMPLES)


def scene(p):
    """A coloured disc in the plane."""
    inside = (p.pow(2).sum(-1, keepdim=True) < 0.36).float()
    return 12 * inside, torch.cat([0.5 + 0.5 * (4 * p).sin(), torch.full_like(p[..., :1], 0.3)], -1)


def render(field, origin, direction):
    p = origin[:, None] + depth[None, :, None] * direction[:, None]
    sigma, colour = field(p)
    alpha = 1 - torch.exp(-sigma.squeeze(-1) * (2 / SAMPLES))
    light = torch.cumprod(torch.cat([torch.ones(len(p), 1), 1 - alpha + 1e-10], 1), 1)[:, :-1]
    weight = alpha * light
    return (weight.unsqueeze(-1) * colour).sum(1) + (1 - weight.sum(1, keepdim=True))  # on white


def rays(n):
    angle, aim = torch.rand(n, 1) * 6.2832, (torch.rand(n, 1) - 0.5) * 0.8
    origin = torch.cat([angle.cos(), angle.sin()], 1)
    return origin, F.normalize(-origin + aim * torch.cat([-angle.sin(), angle.cos()], 1), dim=1)


class NeRF(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(18, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.sigma, self.colour = nn.Linear(64, 1), nn.Linear(64, 3)
        nn.init.constant_(self.sigma.bias, -0.7)

    def forward(self, p):
        encoded = torch.cat([p, *(f(2**k * torch.pi * p) for k in range(4) for f in (torch.sin, torch.cos))], -1)
        h = self.trunk(encoded)
        return F.relu(self.sigma(h)), self.colour(h).sigmoid()  # bug
        # fix: return F.softplus(self.sigma(h)), self.colour(h).sigmoid()


nerf = NeRF()
optimizer = torch.optim.Adam(nerf.parameters(), lr=3e-3)
with nv.watch(nerf, optimizer) as watch:
    for step in range(350):
        origin, direction = rays(96)
        loss = F.mse_loss(render(nerf, origin, direction), render(scene, origin, direction))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    origin, direction = rays(500)
    true = render(scene, origin, direction)
    score = 1 - float(F.mse_loss(render(nerf, origin, direction), true) / true.var())
learned = score > 0.7
