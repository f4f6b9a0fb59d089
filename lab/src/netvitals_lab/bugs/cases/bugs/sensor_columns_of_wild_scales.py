"""Three sensor columns of very different magnitude are fed to the network without a scaler.

source: https://stackoverflow.com/questions/39525358
catalogue: deepfd
field: tabular classification
cause: inputs-not-scaled
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

n = 1500
voltage = 0.02 * torch.randn(n) + 0.5
timestamp = torch.randint(0, 200000, (n,)).float()
pressure = 1000 + 300 * torch.randn(n)
X = torch.stack([timestamp, voltage, pressure], dim=1)
Y = ((voltage - 0.5) / 0.02 + (pressure - 1000) / 300 > 0).float().unsqueeze(1)
# fix: X = (X - X.mean(0)) / X.std(0)


def build():
    return nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 1))


model = build()
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
with nv.watch(model, optimizer) as watch:
    for epoch in range(15):
        shuffled = torch.randperm(n)
        for i in range(0, n, 50):
            batch = shuffled[i:i + 50]
            logit = model(X[batch])
            loss = F.binary_cross_entropy_with_logits(logit, Y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    score = float(((model(X) > 0).float() == Y).float().mean())
learned = score > 0.93
