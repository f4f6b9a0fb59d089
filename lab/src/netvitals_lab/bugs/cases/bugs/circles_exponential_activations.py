"""Eight layers of five units with the exponential as activation: the outputs and gradients overflow.

source: https://github.com/shiningrain/AUTOTRAINER (problem GE, Circle dataset, model_0ae2cd88)
catalogue: autotrainer
field: toy classification
cause: exploding-gradients
observable: yes
"""
import torch
from sklearn.datasets import make_circles
from torch import nn

import netvitals as nv

X, y = make_circles(n_samples=1200, noise=0.1, factor=0.2)
X, y = torch.tensor(X, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)


class Dense(nn.Linear):
    """A layer with He-uniform weights and zero bias."""

    def reset_parameters(self):
        nn.init.kaiming_uniform_(self.weight, nonlinearity="relu")
        nn.init.zeros_(self.bias)


class CircleNet(nn.Module):
    def __init__(self, depth=8, units=16):
        super().__init__()
        sizes = [2] + [units] * depth
        self.dense = nn.ModuleList(Dense(a, b) for a, b in zip(sizes, sizes[1:]))
        self.out = Dense(units, 1)

    def forward(self, x):
        for layer in self.dense:
            x = torch.exp(layer(x))  # bug
            # fix: x = torch.nn.functional.selu(layer(x))
        return self.out(x).squeeze(-1)


model = CircleNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
bce = nn.BCEWithLogitsLoss()
with nv.watch(model, optimizer) as watch:
    for epoch in range(12):
        for rows in torch.randperm(1000).split(32):
            loss = bce(model(X[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = float(((model(X[1000:]) > 0).float() == y[1000:]).float().mean())
learned = score > 0.93
