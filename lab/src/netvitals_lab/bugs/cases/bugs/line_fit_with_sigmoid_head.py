"""A line with values up to 10 is to be fitted by a network whose output neuron is a sigmoid.

source: https://stackoverflow.com/questions/48221692
catalogue: deepfd
field: regression
cause: output-activation
observable: yes
"""
import numpy as np
import torch
from torch import nn

import netvitals as nv

points = np.random.uniform(-2, 2, size=(400, 1))
values = 2 * points + 5 + np.random.normal(0, 0.2, size=points.shape)
X_train, Y_train = torch.tensor(points[:300]).float(), torch.tensor(values[:300]).float()
X_test, Y_test = torch.tensor(points[300:]).float(), torch.tensor(values[300:]).float()


class NeuralNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(1, 5)
        self.out = nn.Linear(5, 1)

    def forward(self, x):
        h = torch.sigmoid(self.hidden(x))
        return torch.sigmoid(self.out(h))  # bug
        # fix: return self.out(h)


network = NeuralNetwork()
sgd = torch.optim.SGD(network.parameters(), lr=0.1)
with nv.watch(network, sgd) as watch:
    for epoch in range(800):
        sgd.zero_grad()
        loss = torch.mean((network(X_train) - Y_train) ** 2)
        loss.backward()
        sgd.step()
        watch.step(loss)

with torch.no_grad():
    score = 1 - float(((network(X_test) - Y_test) ** 2).mean() / Y_test.var())
learned = score > 0.93
