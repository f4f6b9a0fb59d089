"""MarginRankingLoss is given labels 0 and 1 where it expects -1 and 1: for a label of 0 the loss is constant.

source: https://github.com/seathiefwang/RankPose/issues/4
catalogue: github
field: ranking (wear of tools)
cause: labels-wrong, loss-mismatch
observable: yes
"""
import torch
from torch import nn

import netvitals as nv


def photos_of_tools(n):
    """Two looks at each tool, the first is the older photo; wear only grows."""
    wear1 = torch.rand(n)
    wear2 = wear1 + (1 - wear1) * torch.rand(n)
    tool = torch.randn(n, 4)

    def look(wear):
        edge = torch.stack([(6 * wear).sin(), (6 * wear).cos(), wear * tool[:, 0], wear.sqrt() - tool[:, 1]], 1)
        return torch.cat([edge, tool], 1) + 0.05 * torch.randn(n, 8)

    return look(wear1), wear1, look(wear2), wear2


class RankNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.rank = nn.Linear(64, 1)

    def forward(self, x):
        return self.rank(self.backbone(x)).squeeze(1)


model = RankNet()
criterion = nn.MarginRankingLoss(margin=0.5)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(500):
        x1, wear1, x2, wear2 = photos_of_tools(64)
        label = (wear1 > wear2).float()  # bug
        # fix: label = (wear1 > wear2).float() * 2 - 1
        loss = criterion(model(x1), model(x2), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

x1, wear1, x2, wear2 = photos_of_tools(2000)
with torch.no_grad():
    score = float((model(x1) < model(x2)).float().mean())
learned = score > 0.9
