"""A noisy parabola with targets up to 125 and SGD with lr 0.1: the loss is NaN after some steps.

source: https://stackoverflow.com/questions/48934338
catalogue: deepfd
field: regression
cause: lr-too-high, targets-not-scaled
observable: yes
"""
import numpy as np
import torch
from torch import nn

import netvitals as nv

X = np.arange(0.0, 5.0, 0.02, dtype="float32").reshape(-1, 1)
y = 5 * np.power(X, 2) + np.power(np.random.randn(len(X), 1), 3)
# fix: y = (y - y.mean()) / y.std()
X, y = torch.from_numpy(X), torch.from_numpy(y.astype("float32"))

model = nn.Sequential(
    nn.Linear(1, 50), nn.ReLU(),
    nn.Linear(50, 30), nn.ReLU(),
    nn.Linear(30, 1),
)
sgd = torch.optim.SGD(model.parameters(), lr=0.1)  # bug
# fix: sgd = torch.optim.SGD(model.parameters(), lr=0.02)

with nv.watch(model, sgd) as watch:
    for epoch in range(80):
        perm = torch.randperm(len(X))
        for b in perm.split(32):
            sgd.zero_grad()
            loss = ((model(X[b]) - y[b]) ** 2).mean()
            loss.backward()
            sgd.step()
            watch.step(loss)

with torch.no_grad():
    score = 1 - float(((model(X) - y) ** 2).mean() / y.var())
learned = score > 0.9
