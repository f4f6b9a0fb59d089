"""Iris with a sigmoid on the three class scores in front of the categorical cross-entropy.

source: https://stackoverflow.com/questions/59278771
catalogue: deepfd
field: tabular classification
cause: output-activation
observable: yes
"""
import torch
from sklearn import datasets
from sklearn.preprocessing import scale
from torch import nn

import netvitals as nv

iris = datasets.load_iris()
X = torch.tensor(scale(iris.data), dtype=torch.float32)
y = torch.tensor(iris.target)


class Baseline(nn.Module):
    def __init__(self):
        super().__init__()
        self.input = nn.Linear(4, 16)
        self.output = nn.Linear(16, 3)

    def forward(self, x):
        hidden = torch.relu(self.input(x))
        scores = self.output(hidden)
        scores = torch.sigmoid(scores)  # bug
        return scores


model = Baseline()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()
epochs, batch_size = 25, 5
with nv.watch(model, optimizer) as watch:
    for epoch in range(epochs):
        permutation = torch.randperm(len(X))
        for i in range(0, len(X), batch_size):
            indices = permutation[i:i + batch_size]
            loss = criterion(model(X[indices]), y[indices])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = -float(criterion(model(X), y))
learned = score > -0.2
