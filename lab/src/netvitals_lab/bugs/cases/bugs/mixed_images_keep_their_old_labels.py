"""CutMix replaces a part of each image, the label stays that of the first image even where most was replaced.

source: https://github.com/timeseriesAI/tsai/issues/791
catalogue: github
field: time series classification with mixed augmentation
cause: labels-wrong, augmentation-wrong
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


def series(n):
    kind = torch.randint(0, 4, (n,))
    t = torch.linspace(0, 1, 32).expand(n, 1, 32)
    phase = torch.rand(n, 1, 1)
    waves = torch.stack([torch.sin(6.28 * (3 * t + phase)), torch.sign(torch.sin(6.28 * (3 * t + phase))),
                         2 * ((3 * t + phase) % 1) - 1, torch.sin(6.28 * (6 * t + phase))])
    return waves[kind, torch.arange(n)] + 0.3 * torch.randn(n, 1, 32), kind


class CutMix1d:
    """Callback: before the batch mixes the series, the loss mixes the labels."""

    def before_batch(self, x, y):
        self.order = torch.randperm(len(x))
        self.lam = float(torch.rand(()))
        start = int(torch.randint(0, 32, ()))
        where = (torch.arange(32) - start) % 32 < round((1 - self.lam) * 32)
        self.y, self.y2 = y, y[self.order]
        return torch.where(where, x[self.order], x)

    def loss(self, logits):
        return F.cross_entropy(logits, self.y)  # bug
        # fix: return self.lam * F.cross_entropy(logits, self.y) + (1 - self.lam) * F.cross_entropy(logits, self.y2)


class FCN(nn.Module):
    def __init__(self):
        super().__init__()
        widths = (1, 24, 48)
        self.convs = nn.ModuleList(nn.Conv1d(i, o, 7, padding=3) for i, o in zip(widths, widths[1:]))
        self.bns = nn.ModuleList(nn.BatchNorm1d(o) for o in widths[1:])
        self.head = nn.Linear(48, 4)

    def forward(self, x):
        for conv, bn in zip(self.convs, self.bns):
            x = torch.relu(bn(conv(x)))
        return self.head(x.mean(2))


x, y = series(1200)
test_x, test_y = series(500)
model, mix = FCN(), CutMix1d()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=12 * 24)
with nv.watch(model, optimizer) as watch:
    for epoch in range(12):
        model.train()
        for rows in torch.randperm(1200).split(50):
            logits = model(mix.before_batch(x[rows], y[rows]))
            loss = mix.loss(logits)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            watch.step(loss)

model.eval()
with torch.no_grad():
    score = -float(F.cross_entropy(model(test_x), test_y))
learned = score > -0.12
