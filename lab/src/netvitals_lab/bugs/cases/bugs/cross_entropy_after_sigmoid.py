"""Logistic regression with F.cross_entropy on sigmoid outputs: the logits lie between 0 and 1, so no class can be certain.

source: https://github.com/opendataval/opendataval/issues/25
catalogue: github
field: tabular classification
cause: double-softmax, output-activation
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import netvitals as nv


class LogisticRegression(nn.Module):
    def __init__(self, input_dim, num_classes):
        super().__init__()
        self.linear = nn.Linear(input_dim, num_classes)

    def forward(self, x):
        x = self.linear(x)
        return F.sigmoid(x)  # bug
        # fix: return x

    def fit(self, x, y, watch, optimizer, epochs=30):
        for _ in range(epochs):
            for xb, yb in DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True):
                optimizer.zero_grad()
                loss = F.cross_entropy(self(xb), yb)
                loss.backward()
                optimizer.step()
                watch.step(loss)


wine = load_wine()
x, y = torch.tensor(scale(wine.data), dtype=torch.float32), torch.tensor(wine.target)
model = LogisticRegression(13, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
with nv.watch(model, optimizer) as watch:
    model.fit(x, y, watch, optimizer)

with torch.no_grad():
    score = -float(F.cross_entropy(model(x), y))  # as used for data valuation
learned = score > -0.2
