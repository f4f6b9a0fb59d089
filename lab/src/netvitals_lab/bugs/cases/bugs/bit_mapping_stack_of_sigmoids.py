"""A random map between bit strings, three sigmoid layers drawn with a tiny normal: everything comes out 0.5.

source: https://stackoverflow.com/questions/39217567
catalogue: deepfd
field: toy regression
cause: vanishing-gradients, init-too-small
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

dim = 6
X = torch.tensor([[float(c) for c in format(i, f"0{dim}b")] for i in range(2 ** dim)])
y = X[torch.randperm(len(X))]


def dense(n_in, n_out):
    layer = nn.Linear(n_in, n_out)
    nn.init.normal_(layer.weight, std=0.05)  # bug
    # fix: nn.init.kaiming_normal_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


model = nn.Sequential(
    dense(dim, 128), nn.Sigmoid(),  # bug
    dense(128, 128), nn.Sigmoid(),  # bug
    # fix: dense(dim, 128), nn.ReLU(),
    # fix: dense(128, 128), nn.ReLU(),
    dense(128, dim), nn.Sigmoid(),
)
sgd = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
with nv.watch(model, sgd) as watch:
    for epoch in range(300):
        for rows in torch.randperm(len(X)).split(50):
            loss = nn.functional.mse_loss(model(X[rows]), y[rows])
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            watch.step(loss)

with torch.no_grad():
    score = float(((model(X) >= 0.5) == (y > 0.5)).float().mean())
learned = score > 0.95
