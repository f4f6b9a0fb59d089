"""A two-hidden-layer sigmoid network on digits: inputs centred, He-scaled weights, a well chosen rate.

source: LeCun et al., Efficient BackProp (1998); Nielsen, Neural Networks and Deep Learning, ch. 3
field: image classification
unusual: sigmoid activations everywhere, mean activation is near 0.5, gradients of the first layer are small
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
x = torch.tensor(digits.data / 16, dtype=torch.float32)
x, y = x - x.mean(0), torch.tensor(digits.target)
order = torch.randperm(len(y))
train, test = order[:1400], order[1400:]


class SigmoidNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 100), nn.Linear(100, 50), nn.Linear(50, 10)])
        for layer in self.layers:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)

    def forward(self, t):
        for layer in self.layers[:-1]:
            t = torch.sigmoid(layer(t))
        return self.layers[-1](t)


model = SigmoidNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.8)
with nv.watch(model, optimizer) as watch:
    for epoch in range(12):
        for rows in train[torch.randperm(len(train))].split(28):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = float((model(x[test]).argmax(1) == y[test]).float().mean())
learned = score > 0.92
