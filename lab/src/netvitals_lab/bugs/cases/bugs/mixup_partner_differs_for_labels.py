"""Mixup draws one permutation for the images and another one for the labels.

source: https://github.com/xudonmao/VMT/issues/1
catalogue: github
field: image classification with mixup
cause: labels-wrong
observable: yes
"""
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
one_hot = torch.eye(10)[torch.tensor(digits.target)]


def shuffled(t):
    return t[torch.randperm(len(t))]


def mixup(x, y, alpha=1.0):
    weight = torch.tensor(np.random.beta(alpha, alpha, (len(x), 1)), dtype=torch.float32)
    x2, y2 = shuffled(x), shuffled(y)  # bug
    # fix: order = torch.randperm(len(x))
    # fix: x2, y2 = x[order], y[order]
    w = weight.view(-1, 1, 1, 1)
    return w * x + (1 - w) * x2, weight * y + (1 - weight) * y2


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.InstanceNorm2d(1)
        self.conv1 = nn.Conv2d(1, 24, 3, padding=1)
        self.conv2 = nn.Conv2d(24, 24, 3, padding=1)
        self.out = nn.Linear(24 * 16, 10)

    def forward(self, x):
        x = nn.functional.leaky_relu(self.conv1(self.norm(x)), 0.1)
        x = nn.functional.max_pool2d(nn.functional.leaky_relu(self.conv2(x), 0.1), 2)
        return self.out(x.flatten(1)).log_softmax(1)


model = Classifier()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.5, 0.999))
with nv.watch(model, optimizer) as watch:
    for step in range(350):
        rows = torch.randint(0, 1500, (64,))
        x, y = mixup(images[rows], one_hot[rows])
        loss = -(y * model(x)).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

model.eval()
with torch.no_grad():
    score = float((model(images[1500:]) * one_hot[1500:]).sum(1).mean())  # log-likelihood
learned = score > -0.62
