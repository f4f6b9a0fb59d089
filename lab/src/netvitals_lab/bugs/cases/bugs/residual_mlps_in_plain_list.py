"""Sub-networks kept in a Python list: the optimizer never sees their parameters.

source: https://github.com/LianpoWang/SLIIF/issues/13 (and https://github.com/pytorch/pytorch/issues/72580)
catalogue: github
field: implicit image function
cause: parameters-not-registered
observable: yes
"""
import torch
from torch import nn

import netvitals as nv


class RES_MLP(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))

    def forward(self, x):
        return x + self.body(x)


class ImplicitImage(nn.Module):
    def __init__(self, dim=48, depth=4):
        super().__init__()
        self.coordinates = nn.Linear(2, dim)
        self.mlps = [RES_MLP(dim) for _ in range(depth)]  # bug
        # fix: self.mlps = nn.ModuleList([RES_MLP(dim) for _ in range(depth)])
        self.rgb = nn.Linear(dim, 3)

    def forward(self, xy):
        h = torch.relu(self.coordinates(xy))
        for mlp in self.mlps:
            h = mlp(h)
        return self.rgb(h)


def picture(size=32):
    y, x = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
    red = torch.sin(4 * x) * torch.cos(3 * y)
    green = ((x - 0.3) ** 2 + (y + 0.2) ** 2 < 0.3).float()
    blue = torch.sin(5 * (x * y))
    return torch.stack([x, y], -1).view(-1, 2), torch.stack([red, green, blue], -1).view(-1, 3)


xy, colour = picture()
model = ImplicitImage()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 600)
with nv.watch(model, optimizer) as watch:
    for iteration in range(600):
        points = torch.randint(0, len(xy), (256,))
        loss = nn.functional.l1_loss(model(xy[points]), colour[points])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        watch.step(loss)

with torch.no_grad():
    score = float(-10 * torch.log10((model(xy) - colour).square().mean()))  # PSNR
learned = score > 17
