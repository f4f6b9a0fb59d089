"""A 0-1 loss built with comparisons, with requires_grad=True set on the result to silence the error of backward.

source: https://discuss.pytorch.org/t/built-in-0-1-loss-function/216747
catalogue: pytorch-forum
field: tabular classification
cause: detached-graph
observable: yes
"""
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler
from torch import nn

import netvitals as nv

data = load_breast_cancer()
x = torch.tensor(StandardScaler().fit_transform(data.data), dtype=torch.float32)
y = torch.tensor(data.target, dtype=torch.float32).unsqueeze(1)


class ZeroOneLoss(nn.Module):
    def forward(self, input, target):
        wrong = ((input > 0).float() != target).float()
        return torch.tensor(wrong.mean().item(), requires_grad=True)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1, self.layer2 = nn.Linear(30, 16), nn.Linear(16, 1)

    def forward(self, x):
        return self.layer2(torch.relu(self.layer1(x)))


model = Classifier()
loss_fn = ZeroOneLoss()  # bug
# fix: loss_fn = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
with nv.watch(model, optimizer) as watch:
    for epoch in range(20):
        for i in torch.randperm(len(x)).split(50):
            optimizer.zero_grad()
            loss = loss_fn(model(x[i]), y[i])
            loss.backward()
            optimizer.step()
            watch.step(loss)

score = float(((model(x) > 0).float() == y).float().mean())
learned = score > 0.95
