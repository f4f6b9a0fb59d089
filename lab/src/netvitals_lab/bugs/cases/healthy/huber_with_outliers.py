"""Regression with Cauchy-like outliers in the targets, Huber loss keeps them harmless.

source: Huber, Robust Estimation of a Location Parameter (1964); https://pytorch.org/docs/stable/generated/torch.nn.HuberLoss.html
field: robust regression
unusual: targets with values of several hundred standard deviations, spikes in the loss
"""
import torch
from torch import nn

import netvitals as nv


def truth(x):
    return torch.sin(x[:, :1] * 2) + 0.5 * x[:, 1:2] ** 2 - x[:, 2:3]


x = torch.randn(2500, 3)
heavy = torch.distributions.StudentT(1.3).sample((2500, 1))
y = truth(x) + 0.2 * heavy

model = nn.Sequential(nn.Linear(3, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.003, weight_decay=1e-3)
huber = nn.HuberLoss(delta=0.5)
with nv.watch(model, optimizer) as watch:
    for epoch in range(10):
        for rows in torch.randperm(2500).split(64):
            optimizer.zero_grad()
            loss = huber(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            watch.step(loss)

clean = torch.randn(1000, 3)
with torch.no_grad():
    score = 1 - float((model(clean) - truth(clean)).pow(2).mean() / truth(clean).var())
learned = score > 0.85
