"""A CNN shall learn one step of Conway's game of life; with the small rate it only predicts empty boards.

source: https://github.com/ArabelaTso/DeepFD (benchmark entry gol_nn)
catalogue: deepfd
field: board prediction
cause: lr-too-low
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

RING = torch.ones(1, 1, 3, 3)
RING[0, 0, 1, 1] = 0


def boards(n, size=12):
    now = (torch.rand(n, 1, size, size) < 0.4).float()
    around = F.conv2d(now, RING, padding=1)
    following = ((around == 3) | ((around == 2) & (now == 1))).float()
    return now, following


model = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
    nn.Conv2d(32, 16, 1), nn.ReLU(),
    nn.Conv2d(16, 1, 1),
)
lr = 1e-4  # bug
# fix: lr = 0.01
optimizer = torch.optim.Adam(model.parameters(), lr=lr)
criterion = nn.BCEWithLogitsLoss()
with nv.watch(model, optimizer) as watch:
    for step in range(300):
        now, following = boards(32)
        optimizer.zero_grad()
        loss = criterion(model(now), following)
        loss.backward()
        optimizer.step()
        watch.step(loss)

now, following = boards(100)
with torch.no_grad():
    predicted = (model(now) > 0).float()
score = float((predicted == following).float().mean())
learned = score > 0.95
