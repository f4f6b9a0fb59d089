"""The hidden layers live in a plain Python list: parameters() does not see them, only the last layer is trained.

source: https://www.engineermaxxing.com/micro/lessons/pytorch-internals.html
catalogue: blog
field: tabular regression
cause: parameters-not-registered
observable: yes
"""
import torch
from torch import nn

import netvitals as nv


class DeepRegressor(nn.Module):
    def __init__(self, sizes=(8, 16, 16, 16)):
        super().__init__()
        layers = [nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])]
        self.layers = layers  # bug
        # fix: self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(sizes[-1], 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.head(x).squeeze(-1)


x = torch.randn(2000, 8)
y = torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] - 0.5 * x[:, 3].abs()
y = (y - y.mean()) / y.std()
model = DeepRegressor()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
with nv.watch(model, optimizer) as watch:
    for epoch in range(20):
        for i in torch.randperm(1600).split(64):
            loss = nn.functional.mse_loss(model(x[i]), y[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

score = 1 - float((model(x[1600:]) - y[1600:]).pow(2).mean() / y[1600:].var())
learned = score > 0.75
