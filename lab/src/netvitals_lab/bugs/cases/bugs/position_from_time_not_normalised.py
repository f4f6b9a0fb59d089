"""Trajectory regression: times of 0..10000 and positions of 0..50000 without min-max scaling.

source: https://stackoverflow.com/questions/47932589
catalogue: deepfd
field: regression
cause: inputs-not-scaled, targets-not-scaled
observable: yes
"""
import numpy as np
import torch
from torch import nn

import netvitals as nv

train_x = np.sort(np.random.rand(1000)) * 10000
train_y = 25000 + 15000 * np.sin(train_x / 1500) + train_x + 300 * np.random.randn(1000)
# fix: train_x = (train_x - train_x.min()) / (train_x.max() - train_x.min()) * 2 - 1
# fix: train_y = (train_y - train_y.min()) / (train_y.max() - train_y.min())
train_x = torch.tensor(train_x, dtype=torch.float32).reshape(-1, 1)
train_y = torch.tensor(train_y, dtype=torch.float32).reshape(-1, 1)


class Trajectory(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.l1 = nn.Linear(1, hidden)
        self.l2 = nn.Linear(hidden, hidden)
        self.l3 = nn.Linear(hidden, 1)

    def forward(self, t):
        t = torch.tanh(self.l1(t))
        t = torch.tanh(self.l2(t))
        return self.l3(t)


net = Trajectory()
adam = torch.optim.Adam(net.parameters(), lr=0.005)
losses = []
with nv.watch(net, adam) as watch:
    for epoch in range(25):
        for part in torch.randperm(1000).split(40):
            loss = nn.functional.mse_loss(net(train_x[part]), train_y[part])
            adam.zero_grad()
            loss.backward()
            adam.step()
            losses.append(loss.item())
            watch.step(loss)

with torch.no_grad():
    score = 1 - float(((net(train_x) - train_y) ** 2).mean() / train_y.var())
learned = score > 0.85
