"""The output layer was built with bias=False, but the data do not go through the origin.

source: https://github.com/dpressel/baseline/commit/6126107
catalogue: humbatova
field: regression
cause: missing-bias NEW
observable: yes
"""
import torch
from sklearn.datasets import load_diabetes
from torch import nn

import netvitals as nv

bunch = load_diabetes()
X = torch.tensor(bunch.data, dtype=torch.float32)
X = X / X.std(0)
y = torch.tensor(bunch.target, dtype=torch.float32).unsqueeze(1) / 100
model = nn.Linear(X.shape[1], 1, bias=False)  # bug
# fix: model = nn.Linear(X.shape[1], 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

with nv.watch(model, optimizer) as watch:
    for epoch in range(30):
        for rows in torch.randperm(len(X)).split(40):
            residual = model(X[rows]) - y[rows]
            loss = residual.pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = 1 - float((model(X) - y).pow(2).mean() / y.var())
learned = score > 0.45
