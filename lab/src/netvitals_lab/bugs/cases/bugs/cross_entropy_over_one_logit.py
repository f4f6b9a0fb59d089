"""Binary labels, one logit, and softmax cross-entropy over it: the loss is exactly zero from the first step.

source: https://medium.com/@keeper6928/how-to-unit-test-machine-learning-code-57cf6fd81765 (mltest, torchtest's model)
catalogue: torchtest
field: image classification
cause: softmax-over-one-class
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
is_even = torch.tensor(digits.target % 2 == 0).float()[:, None]


class EvenOdd(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 12, 3), nn.ELU(), nn.Conv2d(12, 12, 3), nn.ELU(), nn.Flatten())
        self.logit = nn.Linear(12 * 16, 1)

    def forward(self, x):
        return self.logit(self.body(x))


def objective(logits, labels):
    return -(labels * F.log_softmax(logits, dim=1)).sum(1).mean()  # bug
    # fix: return F.binary_cross_entropy_with_logits(logits, labels)


model = EvenOdd()
optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
with nv.watch(model, optimizer) as watch:
    for epoch in range(5):
        for rows in torch.randperm(1500).split(30):
            optimizer.zero_grad()
            loss = objective(model(images[rows]), is_even[rows])
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = float(((model(images[1500:]) > 0).float() == is_even[1500:]).float().mean())
learned = score > 0.8
