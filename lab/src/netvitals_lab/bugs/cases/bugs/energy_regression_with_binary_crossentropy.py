"""A continuous target (mean 22, sd 9) is trained with binary cross-entropy, plain SGD, nothing scaled.

source: https://stackoverflow.com/questions/46642627
catalogue: deepfd
field: regression
cause: loss-mismatch, targets-not-scaled
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

N = 1000
X = torch.rand(N, 8) * torch.tensor([1.0, 5.0, 10.0, 2.0, 3.0, 1.0, 4.0, 6.0])
Y = 10 + 6 * X[:, 0] + 1.5 * X[:, 2] + 2 * torch.sin(X[:, 7]) + 0.5 * torch.randn(N)
# fix: X = (X - X.mean(0)) / X.std(0)
# fix: Y = (Y - Y.mean()) / Y.std()
Y = Y.unsqueeze(1)

model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
with nv.watch(model, opt) as watch:
    for epoch in range(12):
        for rows in torch.randperm(N).split(20):
            prediction = model(X[rows])
            loss = F.binary_cross_entropy_with_logits(prediction, Y[rows])  # bug
            # fix: loss = F.mse_loss(prediction, Y[rows])
            opt.zero_grad()
            loss.backward()
            opt.step()
            watch.step(loss)

with torch.no_grad():
    score = max(-1e6, 1 - float(((model(X) - Y) ** 2).mean() / Y.var()))
learned = score > 0.85
