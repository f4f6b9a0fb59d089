"""Two rings and a fully connected network of eight sigmoid layers: the first layers get no gradient.

source: https://github.com/shiningrain/AUTOTRAINER (problem GV, Circle dataset)
catalogue: autotrainer
field: toy classification
cause: vanishing-gradients
observable: yes
"""
import torch
from sklearn.datasets import make_circles
from torch import nn

import netvitals as nv

points, ring = make_circles(n_samples=1000, noise=0.06, factor=0.5)
points = torch.tensor(points, dtype=torch.float32)
ring = torch.tensor(ring, dtype=torch.float32).unsqueeze(1)
activation = nn.Sigmoid  # bug
# fix: activation = nn.SELU

blocks = [nn.Linear(2, 32), activation()]
for _ in range(7):
    blocks.append(nn.Linear(32, 32))
    blocks.append(activation())
blocks.append(nn.Linear(32, 1))
model = nn.Sequential(*blocks)

optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
bce = nn.BCEWithLogitsLoss()
with nv.watch(model, optimizer) as watch:
    for epoch in range(25):
        for take in torch.randperm(800).split(32):
            optimizer.zero_grad()
            loss = bce(model(points[take]), ring[take])
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = float(((model(points[800:]) > 0).float() == ring[800:]).float().mean())
learned = score > 0.93
