"""Flow matching: the velocity of a straight path between noise and data is regressed, an ODE draws the samples.

source: https://arxiv.org/abs/2210.02747
field: flow matching
unusual: the loss has a floor far above zero; inputs, times and targets are drawn anew in each step
"""
import torch
from torch import nn

import netvitals as nv


angle = torch.arange(8) * 0.7854
centres = 2 * torch.stack([angle.cos(), angle.sin()], 1)


def clouds(n):
    return centres[torch.randint(0, 8, (n,))] + 0.2 * torch.randn(n, 2)


class Velocity(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(),
                                 nn.Linear(width, 2))

    def forward(self, x, t):
        return self.net(torch.cat([x, t], 1))


net = Velocity()
optimizer = torch.optim.Adam(net.parameters(), lr=4e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1400)
with nv.watch(net, optimizer) as watch:
    for step in range(1400):
        x1, x0, t = clouds(256), torch.randn(256, 2), torch.rand(256, 1)
        loss = (net((1 - t) * x0 + t * x1, t) - (x1 - x0)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        watch.step(loss)

with torch.no_grad():
    x = torch.randn(3000, 2)
    for k in range(30):
        x = x + net(x, torch.full((3000, 1), k / 30)) / 30
score = float((torch.cdist(x, centres).min(1)[0] < 0.6).float().mean())
learned = score > 0.7
