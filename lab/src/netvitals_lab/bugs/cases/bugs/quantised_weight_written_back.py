"""Quantisation-aware training that writes the rounded weight back into the parameter, so small updates are rounded away.

source: https://github.com/eladhoffer/quantized.pytorch/issues/12
catalogue: github
field: quantisation-aware training
cause: low-precision
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv


def quantize(w, bits=3):
    scale = 1.0 / (2 ** (bits - 1) - 1)
    return (w / scale).round().clamp(-3, 3) * scale


class QLinear(nn.Linear):
    def forward(self, x):
        qweight = quantize(self.weight)
        self.weight.data = qweight.data  # bug
        qweight = self.weight + (qweight - self.weight).detach()
        return F.linear(x, qweight, self.bias)


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2, self.l3 = nn.Linear(64, 64), QLinear(64, 64), nn.Linear(64, 10)
        self.norm = nn.BatchNorm1d(64)
        nn.init.uniform_(self.l2.weight, -0.6, 0.6)

    def forward(self, x):
        x = torch.relu(self.l1(x))
        return self.l3(torch.relu(self.norm(self.l2(x))))


digits = load_digits()
x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
model = QNet()
model.l1.requires_grad_(False), model.l3.requires_grad_(False)  # only the quantised layer (and its norm) is tuned
first = quantize(model.l2.weight.detach()).clone()
optimizer = torch.optim.SGD(filter(lambda p: p.requires_grad, model.parameters()), lr=0.1, momentum=0.9)
with nv.watch(model, optimizer) as watch:
    for epoch in range(15):
        for i in torch.randperm(len(x)).split(64):
            loss = F.cross_entropy(model(x[i]), y[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

model.eval()
score = float((model(x).argmax(1) == y).float().mean())
learned = score > 0.93
