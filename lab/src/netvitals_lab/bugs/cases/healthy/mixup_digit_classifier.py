"""Digits trained with mixup: every batch is a blend of two shuffles, so training loss and accuracy look poor.

source: Zhang et al., mixup: Beyond Empirical Risk Minimization (ICLR 2018)
field: image classification
unusual: blended inputs, two targets, training loss stays high although validation is good
"""
import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
x = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32)
y = torch.tensor(digits.target)
order = torch.randperm(len(y))
x_train, y_train, x_val, y_val = x[order[:1400]], y[order[:1400]], x[order[1400:]], y[order[1400:]]

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(128, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
with nv.watch(model, optimizer) as watch:
    for epoch in range(8):
        model.train()
        for rows in torch.randperm(1400).split(50):
            lam = float(np.random.beta(0.4, 0.4))
            partner = rows[torch.randperm(len(rows))]
            out = model(lam * x_train[rows] + (1 - lam) * x_train[partner])
            loss = lam * F.cross_entropy(out, y_train[rows]) + (1 - lam) * F.cross_entropy(out, y_train[partner])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)
        scheduler.step()

model.eval()
with torch.no_grad():
    score = float((model(x_val).argmax(1) == y_val).float().mean())
learned = score > 0.94
