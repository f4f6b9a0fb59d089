"""Quantisation-aware training with 4-bit weights and activations, straight-through estimator and learned clipping bounds.

source: https://arxiv.org/abs/1805.06085
field: quantisation-aware training
unusual: outputs of layers take few distinct values; rounding with a passed-through gradient; a scalar parameter per activation; full-precision warm-up
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


class QLayer(nn.Module):
    def __init__(self, layer, activation=True):
        super().__init__()
        self.layer, self.activation = layer, activation
        self.alpha = nn.Parameter(torch.tensor(4.0)) if activation else None
        self.quantised = False

    def forward(self, x):
        w = self.layer.weight
        if self.quantised:
            scale = w.detach().abs().max() / 7
            w = Round.apply(w / scale) * scale
        if isinstance(self.layer, nn.Conv2d):
            x = F.conv2d(x, w, self.layer.bias, padding=1)
        else:
            x = F.linear(x, w, self.layer.bias)
        if self.activation:
            x = torch.minimum(x.relu(), self.alpha)
            if self.quantised:
                x = Round.apply(x / self.alpha * 15) * self.alpha / 15
        return x


digits = load_digits()
x, y = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(digits.target)
model = nn.Sequential(
    QLayer(nn.Conv2d(1, 12, 3)), nn.MaxPool2d(2), QLayer(nn.Conv2d(12, 24, 3)), nn.MaxPool2d(2), nn.Flatten(),
    QLayer(nn.Linear(96, 48)), QLayer(nn.Linear(48, 10), activation=False),
)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
with nv.watch(model, optimizer) as watch:
    for epoch in range(6):
        if epoch == 2:
            for layer in model:
                layer.quantised = True
        for i in torch.randperm(1500).split(50):
            loss = F.cross_entropy(model(x[i]), y[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

score = float((model(x[1500:]).argmax(1) == y[1500:]).float().mean())
learned = score > 0.8
