"""Two percent positives, focal loss and a prior in the last bias, as in RetinaNet.

source: Lin et al., Focal Loss for Dense Object Detection (ICCV 2017)
field: imbalanced classification
unusual: almost all labels are zero, the output bias starts at -log(49), loss values are tiny
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

PRIOR = 0.02


def anchors(n):
    y = (torch.rand(n) < PRIOR).float()
    x = torch.randn(n, 8) + 1.8 * y[:, None] * torch.tensor([1, -1, 1, -1, 0, 0, 0, 0.0])
    return x, y


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.cls = nn.Linear(32, 1)
        nn.init.normal_(self.cls.weight, std=0.01)
        nn.init.constant_(self.cls.bias, -math.log((1 - PRIOR) / PRIOR))

    def forward(self, x):
        return self.cls(self.body(x)).squeeze(1)


def focal(logit, y, alpha=0.75, gamma=2.0):
    ce = F.binary_cross_entropy_with_logits(logit, y, reduction="none")
    p = torch.sigmoid(logit)
    p_t = p * y + (1 - p) * (1 - y)
    weight = alpha * y + (1 - alpha) * (1 - y)
    return (weight * (1 - p_t) ** gamma * ce).sum() / y.sum().clamp(min=1)


model = Head()
optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
with nv.watch(model, optimizer) as watch:
    for step in range(350):
        x, y = anchors(256)
        loss = focal(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

x, y = anchors(8000)
with torch.no_grad():
    logit = model(x)
    positive, negative = logit[y == 1], logit[y == 0]
    score = float((positive[:, None] > negative[None, :]).float().mean())  # area under the ROC curve
learned = score > 0.95
