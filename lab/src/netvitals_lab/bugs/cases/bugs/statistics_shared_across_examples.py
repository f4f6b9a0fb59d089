"""A home-made normalisation takes mean and std over the batch axis without running values: examples influence each other.

source: https://pypi.org/project/neural-net-checklist (check: forward batch independence)
catalogue: torchtest
field: tabular classification
cause: layout-mixed
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_iris
from torch import nn

import netvitals as nv


class Normalise(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        centred = x - x.mean(0, keepdim=True)  # bug
        return self.scale * centred / (x.std(0, keepdim=True) + 1e-5) + self.shift  # bug
        # fix: centred = x - x.mean(-1, keepdim=True)
        # fix: return self.scale * centred / (x.std(-1, keepdim=True) + 1e-5) + self.shift


iris = load_iris()
x = torch.tensor((iris.data - iris.data.mean(0)) / iris.data.std(0)).float()
y = torch.tensor(iris.target)
model = nn.Sequential(nn.Linear(4, 32), Normalise(32), nn.ReLU(), nn.Linear(32, 32), Normalise(32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
with nv.watch(model, optimizer) as watch:
    for epoch in range(40):
        for rows in torch.randperm(150).split(15):
            loss = F.cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():  # prediction: the flowers of one kind arrive together
    correct = [(model(x[y == kind]).argmax(1) == kind).float().mean() for kind in range(3)]
score = float(sum(correct) / 3)
learned = score > 0.92
