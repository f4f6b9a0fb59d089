"""To survive outliers the loss of each example is clamped: the examples that are most wrong get no gradient.

source: https://karpathy.github.io/2019/04/25/recipe/ ("tried to clip their loss instead of the gradients")
catalogue: blog
field: regression
cause: clipping-misuse
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

x = torch.randn(1600, 5)
base = torch.sin(x[:, 0]) + x[:, 1] * x[:, 2]
y = base + 6 * (x[:, 3] > 0.5).float() + 0.1 * torch.randn(1600)  # one third of the houses has a garden
y = y.unsqueeze(1)
model = nn.Sequential(nn.Linear(5, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)

with nv.watch(model, optimizer) as watch:
    for epoch in range(10):
        for rows in torch.randperm(1200).split(32):
            error = (model(x[rows]) - y[rows]) ** 2
            error = error.clamp(max=5.0)  # bug
            loss = error.mean()
            optimizer.zero_grad()
            loss.backward()
            # fix: nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            watch.step(loss)

with torch.no_grad():
    residual = model(x[1200:]) - y[1200:]
    score = 1 - float(residual.pow(2).mean() / y[1200:].var())
learned = score > 0.65
