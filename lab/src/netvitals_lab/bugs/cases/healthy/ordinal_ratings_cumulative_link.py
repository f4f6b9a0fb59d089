"""Star ratings 1..5 as an ordinal target: one shared score and four ordered thresholds (CORAL).

source: Cao, Mirjalili & Raschka, Rank consistent ordinal regression (2020)
field: ordinal regression
unusual: a single weight vector with several biases, the targets are cumulative 0/1 vectors
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

LEVELS = 5


class Coral(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 1, bias=False))
        self.thresholds = nn.Parameter(torch.linspace(1.5, -1.5, LEVELS - 1))

    def forward(self, x):
        return self.features(x) + self.thresholds


def ratings(n):
    x = torch.randn(n, 7)
    latent = x[:, 0] - 0.7 * x[:, 1] + 0.5 * x[:, 2] * (x[:, 3] > 0) + 0.3 * torch.randn(n)
    return x, torch.bucketize(latent, torch.tensor([-1.2, -0.4, 0.4, 1.2]))


x_train, stars = ratings(2400)
levels = (stars[:, None] > torch.arange(LEVELS - 1)).float()
model = Coral()
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
with nv.watch(model, optimizer) as watch:
    for epoch in range(8):
        for rows in torch.randperm(len(x_train)).split(48):
            optimizer.zero_grad()
            loss = F.binary_cross_entropy_with_logits(model(x_train[rows]), levels[rows])
            loss.backward()
            optimizer.step()
            watch.step(loss)

x_test, stars = ratings(800)
with torch.no_grad():
    predicted = (model(x_test) > 0).sum(1)
score = -float((predicted - stars).abs().float().mean())
learned = score > -0.5
