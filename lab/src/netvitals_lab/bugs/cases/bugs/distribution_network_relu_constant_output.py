"""A network that outputs a probability distribution gives the same one for every input: its ReLU units are dead.

source: https://stackoverflow.com/questions/50555434
catalogue: humbatova
field: distribution regression
cause: dead-units, inputs-not-scaled
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

count, bins = 1500, 8
situation = torch.rand(count, 4) * 30
mixing = torch.randn(4, bins) / 12
share = F.softmax((situation - 15) @ mixing, dim=1)


class Distribution(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(4, 32)
        self.two = nn.Linear(32, 32)
        self.three = nn.Linear(32, bins)

    def forward(self, x):
        x = F.relu(self.one(x))  # bug
        x = F.relu(self.two(x))  # bug
        # fix: x = torch.tanh(self.one((x - 15) / 9))
        # fix: x = torch.tanh(self.two(x))
        return F.log_softmax(self.three(x), dim=1)


model = Distribution()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
with nv.watch(model, optimizer) as watch:
    for epoch in range(15):
        for rows in torch.randperm(1200).split(30):
            loss = F.kl_div(model(situation[rows]), share[rows], reduction="batchmean")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = -float(F.kl_div(model(situation[1200:]), share[1200:], reduction="batchmean"))
learned = score > -0.05
