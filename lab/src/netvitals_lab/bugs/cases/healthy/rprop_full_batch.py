"""Rprop on the full batch: only the sign of the gradient is used, every weight has its own step.

source: Riedmiller & Braun, A direct adaptive method for faster backpropagation learning: RPROP (1993)
field: regression
unusual: the same full batch in every step, step sizes grow to large values, gradients become tiny while steps do not
"""
import torch
from sklearn.datasets import load_diabetes
from torch import nn

import netvitals as nv

data = load_diabetes()
x = torch.tensor(data.data / data.data.std(0), dtype=torch.float32)
y = torch.tensor((data.target - data.target.mean()) / data.target.std(), dtype=torch.float32).unsqueeze(1)

model = nn.Sequential(nn.Linear(10, 6), nn.Tanh(), nn.Linear(6, 1))
optimizer = torch.optim.Rprop(model.parameters(), lr=0.01, step_sizes=(1e-6, 1.0))
with nv.watch(model, optimizer) as watch:
    for epoch in range(150):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        watch.step(loss)

score = 1 - loss.item()
learned = score > 0.5
