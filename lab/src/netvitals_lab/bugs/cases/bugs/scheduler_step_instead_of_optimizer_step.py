"""Only scheduler.step() is called, in the belief that it also steps the optimizer it wraps.

source: https://github.com/pytorch/pytorch/issues/3814
catalogue: github
field: tabular classification
cause: missing-step
observable: yes
"""
import torch
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR

import netvitals as nv

wine = load_wine()
x = torch.tensor(StandardScaler().fit_transform(wine.data), dtype=torch.float32)
y = torch.tensor(wine.target)

model = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = CosineAnnealingLR(optimizer, T_max=300)
criterion = nn.CrossEntropyLoss()

with nv.watch(model, optimizer) as watch:
    for iteration in range(300):
        i = torch.randint(0, len(x), (32,))
        optimizer.zero_grad()
        loss = criterion(model(x[i]), y[i])
        loss.backward()
        # fix: optimizer.step()
        scheduler.step()
        watch.step(loss)

model.eval()
score = float((model(x).argmax(1) == y).float().mean())
learned = score > 0.95
