"""A deep ReLU network on digits trained by Adam with a rate fit for SGD: the units die in the first epoch.

source: https://github.com/shiningrain/AUTOTRAINER (problem DR, MNIST dataset)
catalogue: autotrainer
field: image classification
cause: dead-units, lr-too-high
observable: yes
"""
import torch
from sklearn.datasets import load_digits
from torch import nn, optim

import netvitals as nv

data = load_digits()
x = torch.as_tensor(data.data).float() / 16
y = torch.as_tensor(data.target)
idx = torch.randperm(len(x))
train, test = idx[:1437], idx[1437:]

model = nn.Sequential()
sizes = [64, 64, 64, 64, 64, 64, 64]
for n_in, n_out in zip(sizes[:-1], sizes[1:]):
    linear = nn.Linear(n_in, n_out)
    nn.init.kaiming_uniform_(linear.weight, nonlinearity="relu")
    model.append(linear).append(nn.ReLU())
model.append(nn.Linear(64, 10))
lr = 0.1  # bug
# fix: lr = 0.001
adam = optim.Adam(model.parameters(), lr=lr)
criterion = nn.CrossEntropyLoss()

with nv.watch(model, adam) as watch:
    for epoch in range(7):
        for b in train[torch.randperm(len(train))].split(32):
            adam.zero_grad()
            loss = criterion(model(x[b]), y[b])
            loss.backward()
            adam.step()
            watch.step(loss)

with torch.no_grad():
    score = float((model(x[test]).argmax(1) == y[test]).float().mean())
learned = score > 0.8
