"""Multi-task: one trunk, a classification head and a regression head, weights learned from the uncertainty.

source: https://arxiv.org/abs/1705.07115
field: multi-task learning
unusual: two losses of different scale; the loss can become negative; two free scalars are parameters
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
y = torch.tensor(digits.target)
rows = torch.arange(8.0).view(1, 1, 8, 1)
height = ((x * rows).sum((1, 2, 3)) / x.sum((1, 2, 3))).unsqueeze(1)  # the centre of the ink
height = (height - height.mean()) / height.std()


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                                   nn.Linear(256, 64), nn.ReLU())
        self.kind, self.height = nn.Linear(64, 10), nn.Linear(64, 1)
        self.log_variance = nn.Parameter(torch.zeros(2))

    def forward(self, images):
        h = self.trunk(images)
        return self.kind(h), self.height(h)

    def loss(self, kind, height, wanted_kind, wanted_height):
        losses = torch.stack([F.cross_entropy(kind, wanted_kind), 0.5 * F.mse_loss(height, wanted_height)])
        return (torch.exp(-self.log_variance) * losses + 0.5 * self.log_variance).sum()


model = MultiTask()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
with nv.watch(model, optimizer) as watch:
    for epoch in range(15):
        for batch in torch.randperm(1500).split(64):
            loss = model.loss(*model(x[batch]), y[batch], height[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    kind, centre = model(x[1500:])
    accuracy = float((kind.argmax(1) == y[1500:]).float().mean())
    r2 = 1 - float((centre - height[1500:]).square().sum() / (height[1500:] - height[1500:].mean()).square().sum())
score = min(accuracy, r2)
learned = score > 0.82
