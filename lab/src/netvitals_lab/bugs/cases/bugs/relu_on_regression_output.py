"""A regression network ends in ReLU although half of the targets are negative: it predicts zeros.

source: https://stackoverflow.com/questions/48251943
catalogue: deepfd
field: regression
cause: output-activation
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

n = 600
X = torch.rand(n, 2) * 2 - 1
Y = 1.5 * X[:, 0] - 0.8 * X[:, 1] ** 2 - 0.4 + 0.05 * torch.randn(n)
Y = (Y - Y.mean()) / Y.std()
Y = Y.unsqueeze(1)

layers = [nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1)]
layers.append(nn.ReLU())  # bug
model = nn.Sequential(*layers)
sgd = torch.optim.SGD(model.parameters(), lr=0.1)
mse = nn.MSELoss()

with nv.watch(model, sgd) as watch:
    for epoch in range(12):
        permutation = torch.randperm(n)
        for i in range(0, n, 10):
            rows = permutation[i:i + 10]
            loss = mse(model(X[rows]), Y[rows])
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            watch.step(loss)

with torch.no_grad():
    score = 1 - float(((model(X) - Y) ** 2).mean() / Y.var())
learned = score > 0.9
