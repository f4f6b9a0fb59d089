"""The book's 64-30-10 network with lr 3.0, but both Dense layers were left linear.

source: https://stackoverflow.com/questions/48385830
catalogue: deepfd
field: image classification
cause: missing-nonlinearity, lr-too-high
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

images, labels = load_digits(return_X_y=True)
x_train = torch.tensor(images, dtype=torch.float32) / 16
y_train = torch.tensor(labels)
one_hot = F.one_hot(y_train, 10).float()

net = nn.Sequential()
net.add_module("hidden", nn.Linear(64, 30))
# fix: net.add_module("sigmoid1", nn.Sigmoid())
net.add_module("output", nn.Linear(30, 10))
# fix: net.add_module("sigmoid2", nn.Sigmoid())
sgd = torch.optim.SGD(net.parameters(), lr=3.0)
batch_size = 10

with nv.watch(net, sgd) as watch:
    for epoch in range(4):
        order = torch.randperm(len(x_train))
        for start in range(0, len(order), batch_size):
            idx = order[start:start + batch_size]
            out = net(x_train[idx])
            loss = ((out - one_hot[idx]) ** 2).sum(1).mean() / 2
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            watch.step(loss)

with torch.no_grad():
    score = float((net(x_train).argmax(1) == y_train).float().mean())
learned = score > 0.9
