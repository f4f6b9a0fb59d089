"""Siamese network with a hand-written Euclidean distance: two equal samples give sqrt(0), whose gradient is not a number.

source: https://github.com/adambielski/siamese-triplet/issues/18
catalogue: github
field: metric learning
cause: bad-values
observable: yes
"""
import torch
from sklearn.datasets import load_iris
from torch import nn

import netvitals as nv

iris = load_iris()  # has duplicated rows
x = torch.tensor(iris.data, dtype=torch.float32)
x = (x - x.mean(0)) / x.std(0)
y = torch.tensor(iris.target)


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=1.0):
        super().__init__()
        self.margin = margin
        self.eps = 1e-9

    def forward(self, output1, output2, target):
        squared = (output2 - output1).pow(2).sum(1)
        distances = squared.sqrt()  # bug
        # fix: distances = (squared + self.eps).sqrt()
        losses = 0.5 * (target * distances.pow(2) + (1 - target) * torch.relu(self.margin - distances).pow(2))
        return losses.mean()


class SiameseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Sequential(nn.Linear(4, 32), nn.PReLU(), nn.Linear(32, 2))

    def forward(self, x1, x2):
        return self.embedding(x1), self.embedding(x2)


model = SiameseNet()
criterion = ContrastiveLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(300):
        i, j = torch.randint(0, 150, (2, 48))
        loss = criterion(*model(x[i], x[j]), (y[i] == y[j]).float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    e = model.embedding(x)
centres = torch.stack([e[y == c].mean(0) for c in range(3)])
score = float((torch.cdist(e, centres).argmin(1) == y).float().mean())
learned = score > 0.9
