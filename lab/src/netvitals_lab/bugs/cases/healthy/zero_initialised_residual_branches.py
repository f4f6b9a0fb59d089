"""A twelve-block residual network whose branches start at zero, so that it starts as the identity.

source: Zhang, Dauphin & Ma, Fixup Initialization (ICLR 2019); Goyal et al. 2017 (zero gamma)
field: regression
unusual: half of the weight matrices are exactly zero at the start, in the first step their partners get no gradient
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

BLOCKS, WIDTH = 12, 32


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        nn.init.kaiming_normal_(self.first.weight, nonlinearity="relu")
        nn.init.zeros_(self.first.bias)
        nn.init.zeros_(self.second.weight)
        nn.init.zeros_(self.second.bias)

    def forward(self, x):
        return x + self.second(F.relu(self.first(x)))


model = nn.Sequential(nn.Linear(8, WIDTH), *[Branch() for _ in range(BLOCKS)], nn.Linear(WIDTH, 1))
nn.init.zeros_(model[-1].weight)
nn.init.zeros_(model[-1].bias)


def task(n):
    x = torch.randn(n, 8)
    return x, (torch.sin(x[:, 0] + x[:, 1]) + x[:, 2] * torch.sigmoid(3 * x[:, 3]) + 0.3 * x[:, 4:].sum(1)).unsqueeze(1)


optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
x, y = task(3000)
with nv.watch(model, optimizer) as watch:
    for epoch in range(8):
        for rows in torch.randperm(3000).split(64):
            loss = F.mse_loss(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

x, y = task(1000)
with torch.no_grad():
    score = 1 - float(F.mse_loss(model(x), y) / y.var())
learned = score > 0.85
