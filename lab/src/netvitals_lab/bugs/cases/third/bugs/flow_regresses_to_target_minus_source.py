"""Flow matching from noise to the target, conditioned on a source: the velocity is taken as target - source.

source: https://github.com/theislab/CellFlow/pull/305
catalogue: github
field: flow matching (conditional)
cause: labels-wrong
observable: no, source and noise have the same shape and scale, the loss falls as it should; only the sampler lands elsewhere
"""
import torch
from torch import nn

import netvitals as nv


def cells(n):
    """Cells before and after a treatment: those on the right split into two fates."""
    source = torch.randn(n, 2)
    fate = torch.randint(0, 2, (n, 1)) * 2.0 - 1
    moved = torch.cat([source[:, :1] + 2, 1.5 * fate * (source[:, :1] > 0)], 1)
    return source, moved + 0.15 * torch.randn(n, 2)


class Velocity(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 2))

    def forward(self, t, x, condition):
        return self.net(torch.cat([t, x, condition], 1))


field = Velocity()
optimizer = torch.optim.Adam(field.parameters(), lr=2e-3)
with nv.watch(field, optimizer) as watch:
    for step in range(900):
        source, target = cells(192)
        latent, t = torch.randn_like(target), torch.rand(192, 1)
        x_t = (1 - t) * latent + t * target
        u_t = target - source  # bug
        # fix: u_t = target - latent
        loss = (field(t, x_t, source) - u_t).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    source, target = cells(1500)
    x = torch.randn(1500, 2)
    for k in range(20):
        x = x + field(torch.full((1500, 1), k / 20), x, source) / 20
fates = torch.stack([source[:, :1] + 2 + 0 * x[:, :1], 1.5 * x[:, 1:].sign() * (source[:, :1] > 0)], 1).squeeze(2)
score = -float((x - fates).norm(dim=1).mean())  # distance to the nearer fate
learned = score > -0.5
