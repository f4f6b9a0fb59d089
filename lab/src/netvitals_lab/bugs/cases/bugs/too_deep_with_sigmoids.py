"""Twelve fully connected sigmoid layers, because deeper is better: hardly any gradient reaches the first ones.

source: http://theorangeduck.com/page/neural-network-not-working (You Used a Network that was too Deep)
catalogue: blog
field: image classification
cause: vanishing-gradients
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32) / 16
y = torch.tensor(digits.target)
depth = 12  # bug
# fix: depth = 1
hidden = [nn.Sequential(nn.Linear(64, 64), nn.Sigmoid()) for _ in range(depth)]
model = nn.Sequential(*hidden, nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
with nv.watch(model, optimizer) as watch:
    for epoch in range(12):
        for batch in torch.randperm(1500).split(50):
            loss = F.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            watch.step(loss)

score = float((model(x[1500:]).argmax(1) == y[1500:]).float().mean())
learned = score > 0.7
